"""Makes `.venv` with exactly what is pinned. Runs before there is one: any Python from 3.9 on, standard library only.

An installation that was cut off leaves its mark in the lock file, and the next one starts from an empty `.venv`. Two
that start at once take turns; the lock is also held by the running pip, so that one whose parent was killed still counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from cli import bootstrap, pythons

FAILED, USAGE = 1, 2
UNFINISHED = b"unfinished\n"

Run = Callable[[Sequence[str], int], None]


class Impossible(Exception):
    """Nothing can be installed; the text is for the person, `status` is the command's exit status."""

    def __init__(self, sentence: str, status: int = FAILED) -> None:
        super().__init__(sentence)
        self.status = status


class StepFailed(Exception):
    """A program of the installation ended with an error; `output` is all that it printed."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


def run_step(command: Sequence[str], lock: int) -> None:
    """Run a program that keeps the lock open while it lives; raises StepFailed with its output."""
    settings = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_USER": "0"}
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **settings},
        pass_fds=(lock,),
        check=False,
    )
    if done.returncode != 0:
        raise StepFailed(done.stdout.decode("utf-8", "replace"))


def ensure(
    root: str,
    *,
    find: Callable[[str], str] = pythons.find,
    probe: Callable[[str, Sequence[str]], pythons.Verdict] = pythons.probe,
    run: Run = run_step,
) -> None:
    """Install what is pinned, unless another process just did.

    `find` gives a Python 3.13, `probe` says whether an interpreter can be used, `run` runs one program. Raises
    Impossible with a sentence, and passes KeyboardInterrupt on.
    """
    try:
        with _lock(root) as lock:
            if bootstrap.is_current(root):
                return
            was_cut_off = os.pread(lock, len(UNFINISHED), 0) == UNFINISHED
            python = bootstrap.venv_python(root)
            fit = not was_cut_off and probe(python, ["pip"]) is pythons.Verdict.USABLE
            base = None if fit else find(root)
            _say("Installing Antwoord's packages into .venv (once, about a minute) …")
            with _marked(lock):
                if base:
                    run([base, "-I", "-m", "venv", "--clear", bootstrap.venv_folder(root)], lock)
                _install(root, python, run, lock)
    except pythons.NoPython as reason:
        raise Impossible(str(reason), USAGE) from None
    except StepFailed as failure:
        raise Impossible(_explained(failure.output)) from None
    except OSError as failure:
        raise Impossible(f".venv could not be made: {failure}.") from failure


def _install(root: str, python: str, run: Run, lock: int) -> None:
    """The pins, without what was pinned before, and the way to this project's own packages; the stamp comes last."""
    wanted = bootstrap.stamp_text(root)
    files = [part for name in bootstrap.REQUIREMENTS for part in ("-r", os.path.join(root, name))]
    # --no-deps: the files name every package; one that they forget should fail here, not come in unpinned.
    run([python, "-I", "-m", "pip", "install", "--no-deps", "--progress-bar", "off", *files], lock)
    dropped = _pinned(_former(root)) - _pinned(wanted)
    if dropped:
        run([python, "-I", "-m", "pip", "uninstall", "--yes", *sorted(dropped)], lock)
    for packages in glob.glob(os.path.join(bootstrap.venv_folder(root), "lib", "python3.13", "site-packages")):
        # The last place on the path, as in the deployed application; relative, so that the folder may be moved.
        _write(os.path.join(packages, "antwoord.pth"), "../../../..\n")
    _write(bootstrap.stamp_file(root), wanted)


def _pinned(requirements: str) -> set[str]:
    return set(re.findall(r"^([A-Za-z0-9._-]+)==", requirements, re.MULTILINE))


def _former(root: str) -> str:
    """What the last whole installation had pinned; nothing in a new `.venv`."""
    try:
        with open(bootstrap.stamp_file(root), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    """All of it or nothing: a process that dies here must not leave half a stamp."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


@contextlib.contextmanager
def _lock(root: str) -> Iterator[int]:
    """The one place of an installation, as a file descriptor. It lies outside `.venv`, which may be emptied."""
    folder = os.path.join(root, ".antwoord")
    os.makedirs(folder, exist_ok=True)
    lock = os.open(os.path.join(folder, "install.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("Another ./antwoord is installing; waiting for it …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


@contextlib.contextmanager
def _marked(lock: int) -> Iterator[None]:
    """Leave a mark while programs write into `.venv`: it stays if this process or its pip is cut off.

    A program that ended by itself, well or not, leaves no half packages behind: pip takes back what it did.
    """
    os.pwrite(lock, UNFINISHED, 0)
    try:
        yield
    except (StepFailed, OSError):
        os.ftruncate(lock, 0)
        raise
    os.ftruncate(lock, 0)


def _explained(output: str) -> str:
    """One sentence when the network is away; otherwise what the program said, since nobody can guess it."""
    if "connection broken by" in output or "NewConnectionError" in output:
        return (
            "the packages could not be fetched because the package index cannot be reached; "
            "connect to the network (or set your proxy) and run ./antwoord again."
        )
    return f"the packages could not be installed; this is what was said:\n{output.rstrip()}"


def _say(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()
