"""Finds Python 3.13 on a machine: PATH, pyenv's versions, uv's, and the interpreter that asks.

Written for any Python from 3.9 on, standard library only: it runs before there is a `.venv`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum

PROBE_SECONDS = 10.0  # a Python starts in well under a second; the first start on a cold disk may take some
HOW_TO_INSTALL = (
    "`uv python install 3.13`, `pyenv install 3.13`, or your system's package "
    "(Debian and Ubuntu: python3.13 and python3.13-venv; Fedora: python3.13; Homebrew: python@3.13)"
)


class Verdict(Enum):
    """What a candidate turned out to be."""

    USABLE = "usable"
    INCOMPLETE = "incomplete"  # 3.13, but a module that is asked for is missing
    OTHER = "other"  # another version, a shim that only prints an error, or nothing that runs


class NoPython(Exception):
    """There is no usable Python 3.13; the text is one sentence for the person."""


def find(root: str, environment: Mapping[str, str] | None = None, running: str | None = None) -> str:
    """The first Python 3.13 that can make a virtual environment.

    A candidate counts only after it was run: pyenv's shims and the like exist without working. Those inside the
    project's own `.venv` don't count, since that is what is to be made. `running` is the interpreter that asks.
    """
    own = os.path.join(os.path.realpath(root), ".venv", "")
    incomplete: str | None = None
    environment = os.environ if environment is None else environment
    running = running or getattr(sys, "_base_executable", None) or sys.executable
    for candidate in candidates(environment, running):
        if os.path.join(os.path.realpath(os.path.dirname(candidate)), "").startswith(own):
            continue
        verdict = probe(candidate, ("ensurepip", "venv"))
        if verdict is Verdict.USABLE:
            return candidate
        if verdict is Verdict.INCOMPLETE:
            incomplete = incomplete or candidate
    if incomplete:
        raise NoPython(
            f"{incomplete} is Python 3.13 without the modules venv and ensurepip: install them "
            "(Debian and Ubuntu: python3.13-venv) and run ./antwoord again."
        )
    raise NoPython(
        f"Python 3.13 is needed and was not found on PATH, in pyenv or in uv: install it with {HOW_TO_INSTALL}, "
        "and run ./antwoord again."
    )


def candidates(environment: Mapping[str, str], running: str) -> Iterator[str]:
    """Paths that may be Python 3.13, each once, the likeliest first; none was run yet."""
    seen: set[str] = set()
    for path in _everywhere(environment, running):
        if path not in seen and os.path.isfile(path) and os.access(path, os.X_OK):
            seen.add(path)
            yield path


def probe(python: str, modules: Iterable[str], seconds: float = PROBE_SECONDS) -> Verdict:
    """Run a candidate and see whether it is CPython 3.13 of the usual build, with these modules."""
    code = "import sys; print(*sys.version_info[:2], sys.abiflags or '-', flush=True); import " + ", ".join(modules)
    answer = _answer([python, "-I", "-c", code], seconds)
    if answer is None or answer[1].strip() != "3 13 -":
        return Verdict.OTHER
    return Verdict.USABLE if answer[0] == 0 else Verdict.INCOMPLETE


def _everywhere(environment: Mapping[str, str], running: str) -> Iterator[str]:
    search = environment.get("PATH", os.defpath)
    for folder in search.split(os.pathsep):
        if folder:
            yield os.path.join(os.path.abspath(folder), "python3.13")
    yield from _pyenv(environment)
    uv = shutil.which("uv", path=search)
    if uv:
        answer = _answer([uv, "python", "find", "3.13"], PROBE_SECONDS)
        if answer is not None and answer[0] == 0:
            yield answer[1].strip()
    yield running


def _pyenv(environment: Mapping[str, str]) -> Iterator[str]:
    home = environment.get("PYENV_ROOT") or os.path.join(environment.get("HOME", ""), ".pyenv")
    versions = os.path.join(home, "versions")
    try:
        names = [name for name in os.listdir(versions) if re.match(r"3\.13(\.|$)", name)]
    except OSError:
        return
    for name in sorted(names, key=_by_number, reverse=True):
        yield os.path.join(versions, name, "bin", "python")


def _by_number(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _answer(command: Sequence[str], seconds: float) -> tuple[int, str] | None:
    """The exit status and what was printed; None if it does not run or takes too long."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False, cwd=os.sep
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.returncode, done.stdout.decode("utf-8", "replace")
