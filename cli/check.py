"""`check`: formatter, linter, types, and the rules that are ours alone. Everything runs at once and is told in one order."""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import typer

from cli.output import Status

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = "antwoord"  # Python without a suffix: tools don't find it by themselves

Check = Callable[[], str]  # what is wrong, as text; empty when all is well


def command() -> None:
    """Check the formatting (ruff), the style (ruff), the types (mypy), and the import, start-up and SQL rules."""
    checks: dict[str, Check] = {
        "format": lambda: _tool("ruff", "format", "--check", ".", SCRIPT),
        "lint": lambda: _tool("ruff", "check", ".", SCRIPT),
        "types": lambda: _tool("mypy", *_typed_places()),
        "imports": _imports,
        "start-up": _startup,
        "sql": _sql,
    }
    if not run(checks):
        raise typer.Exit(Status.FAILED)


def run(checks: dict[str, Check]) -> bool:
    """Run the checks side by side and print each one's name with `ok` or what is wrong; whether all were well."""
    well = True
    with ThreadPoolExecutor(len(checks)) as pool:
        running = {name: pool.submit(_timed, check) for name, check in checks.items()}
        for name, result in running.items():
            wrong, seconds = result.result()
            print(f"{name:<9} {'failed' if wrong else 'ok':<7} {seconds:.1f} s", flush=True)
            if wrong:
                well = False
                print("".join(f"    {line}\n" for line in wrong.splitlines()), flush=True)
    return well


def _timed(check: Check) -> tuple[str, float]:
    start = time.monotonic()
    return check(), time.monotonic() - start


def _tool(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip()
    return "" if done.returncode == 0 else said or f"{arguments[0]} ended with status {done.returncode}"


def _typed_places() -> Sequence[str]:
    """The places that pyproject.toml names for mypy, as far as they exist: it stops at one that doesn't."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [place for place in settings["tool"]["mypy"]["files"] if (ROOT / place).exists()]


def _imports() -> str:
    from cli.rules import imports

    return "\n".join(map(str, imports.violations(ROOT)))


def _startup() -> str:
    from cli.rules import startup

    return "\n".join(map(str, startup.violations(ROOT)))


def _sql() -> str:
    from cli.rules import sql

    return "\n".join(map(str, sql.violations(ROOT)))
