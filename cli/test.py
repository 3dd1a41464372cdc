"""`test`: pytest on the suites that are asked for, after a look at what they need from the system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.needs import not_run, sentences
from cli.output import Status
from shared.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 3
SUITES = ("unit", "db", "crash", "e2e")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_BROWSERS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
# pytest: 0 passed, 1 failed, 2 stopped, 3 its own error, 4 wrong usage, 5 no test was found
STATUS_OF_PYTEST = {0: Status.DONE, 4: Status.USAGE, 5: Status.NOTHING}


def command(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUITE", help="unit, db, crash, e2e; all of them by default. After --: arguments of pytest."
        ),
    ] = None,
    expression: Annotated[str | None, typer.Option("-k", metavar="EXPR", help="Only tests whose name matches.")] = None,
) -> None:
    """Run the tests: all of them, or some of unit (no I/O), db (a real Postgres), crash (SIGKILL), e2e (host, browser)."""
    suites, further = split(what or [])
    require_browser(suites, browser())
    start = time.monotonic()
    named = any(not argument.startswith("-") for argument in further)
    asked = [] if named and not suites else suites or present()
    missing = not_run(asked, os.environ)
    folders = [*(f"tests/{suite}" for suite in asked), *(f"--ignore={file}" for file in missing)]
    chosen = ["-k", expression] if expression else []
    command = [sys.executable, "-m", "pytest", *workers(further), *folders, *chosen, *further]
    done = subprocess.run(command, cwd=ROOT, check=False)
    for sentence in sentences(missing):
        print(sentence, file=sys.stderr)
    print(f"{' '.join(suites) or 'all tests'}: {time.monotonic() - start:.1f} s", file=sys.stderr)
    raise typer.Exit(STATUS_OF_PYTEST.get(done.returncode, Status.FAILED))


def workers(further: Sequence[str]) -> list[str]:
    """Pytest in three processes, a file in one of them: much of the time is waiting. Not for somebody who looks inside."""
    alone = any(argument.startswith(("-n", "-s", "--pdb", "-x", "tests")) for argument in further)
    return [] if alone else ["-n", str(WORKERS), "--dist", "loadfile"]


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The suites that are named first, and what is left for pytest; a word that is neither is a UserError."""
    count = next((place for place, word in enumerate(words) if word not in SUITES), len(words))
    suites, further = list(dict.fromkeys(words[:count])), list(words[count:])
    if further and not further[0].startswith("-") and not (ROOT / further[0].split("::")[0]).exists():
        raise UserError(f"There are no tests called {further[0]!r}: choose from {', '.join(SUITES)}.")
    return suites, further


def present() -> list[str]:
    """The suites that have a folder."""
    return [suite for suite in SUITES if (ROOT / "tests" / suite).is_dir()]


def browser() -> str | None:
    """The Chromium or Chrome of this machine, for the browser tests."""
    found = (shutil.which(name) for name in BROWSERS)
    return next((path for path in found if path), None) or next(
        (path for path in MAC_BROWSERS if os.path.exists(path)), None
    )


def require_browser(suites: Sequence[str], found: str | None) -> None:
    """Refuse to begin when a suite would fail for want of a browser."""
    if "e2e" in (suites or SUITES) and found is None:
        raise UserError(
            "The e2e tests need Chromium, which is not installed: `sudo apt-get install chromium` (Debian), "
            "`sudo dnf install chromium` (Fedora), `brew install --cask chromium` (macOS); "
            "or run the others: ./antwoord test unit db crash."
        )
