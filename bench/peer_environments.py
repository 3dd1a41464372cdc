"""Where the peers are installed: an environment of their own for Python's, a folder with node_modules for npm's.

Both are made when first needed, from the pinned lists beside this file, in a folder that git ignores. What cannot be
installed is told in a sentence, and the bench goes on without it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.lab import FOLDER
from local.host_process import ROOT

REQUIREMENTS = ROOT / "bench" / "requirements-peers.txt"
PROGRAMS = ROOT / "bench" / "peers"
NODE_AT_LEAST = (22, 18)
INSTALL_SECONDS = 300.0

type Note = Callable[[str], None]


def commands(note: Note) -> dict[str, Callable[[str], list[str]]]:
    """By runtime, what makes the command of a driver; those that are not there are missing."""
    found: dict[str, Callable[[str], list[str]]] = {"ours": _module(sys.executable)}
    if python := _python(note):
        found["python"] = _module(str(python))
    if node := _node(note):
        program, folder = node
        found["node"] = lambda driver: [program, str(folder / f"{driver}.mjs")]
    return found


def _module(python: str) -> Callable[[str], list[str]]:
    return lambda driver: [python, "-m", f"bench.peers.{driver}"]


def _python(note: Note) -> Path | None:
    folder = _folder("python", REQUIREMENTS)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(REQUIREMENTS)]
    made = install(folder, ([sys.executable, "-m", "venv", str(folder)], pip), note, "The Python peers")
    return python if made else None


def _node(note: Note) -> tuple[str, Path] | None:
    folder = _folder("node", PROGRAMS / "package-lock.json")
    if not (npm := shutil.which("npm")):
        note("The peers of Node are not measured: there is no npm on the path. Install Node 22 with npm.")
        return None
    if not install(
        folder, ([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"],), note, "The peers of Node"
    ):
        return None
    for driver in PROGRAMS.glob("*.mjs"):
        shutil.copy(driver, folder)  # beside node_modules, where Node looks for what they import
    shipped = next(folder.glob("node_modules/node-*/bin/node"), None)
    program = str(shipped) if shipped else shutil.which("node") or "node"
    if _version(program) < NODE_AT_LEAST:
        note(f"The peers of Node are not measured: they need Node {'.'.join(map(str, NODE_AT_LEAST))} or newer.")
        return None
    return program, folder


def _folder(name: str, pins: Path) -> Path:
    """Another one for other pins."""
    return FOLDER / "bench-peers" / f"{name}-{hashlib.sha256(pins.read_bytes()).hexdigest()[:12]}"


def install(folder: Path, steps: Sequence[Sequence[str]], note: Note, who: str) -> bool:
    """Make a folder by these steps, unless it is complete; False, and a sentence, when one of them fails."""
    complete = folder / "complete"
    if complete.exists():
        return True
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(PROGRAMS / name, folder)
    note(f"{who} are installed, once …")
    try:
        for step in steps:
            subprocess.run(step, cwd=folder, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as failed:
        said = (getattr(failed, "stderr", "") or str(failed)).strip().splitlines()
        note(f"{who} are not measured: they could not be installed ({said[-1] if said else 'no reason given'}).")
        shutil.rmtree(folder, ignore_errors=True)
        return False
    complete.touch()
    return True


def _version(node: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(int(number) for number in re.findall(r"\d+", said))
