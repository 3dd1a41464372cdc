"""What some tests need of the machine beside Python: where it is missing they are named as not run; in CI that is a failure."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"  # a daemon is not on everybody's path


@dataclass(frozen=True, slots=True)
class Need:
    """`tests` are the files (a pattern below tests/) that cannot run without it; `install` says how to get it."""

    name: str
    tests: str
    is_there: Callable[[], bool]
    install: str

    def files(self) -> list[str]:
        """The test files, from the project's root."""
        return [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").glob(self.tests))]


def _program(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name, path=PROGRAMS) for name in names)


def _can_mount() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("mount") is not None


PGBOUNCER = Need(
    "PgBouncer", "db/test_pgbouncer*.py", _program("pgbouncer"),
    "`sudo apt-get install pgbouncer` (Debian), `sudo dnf install pgbouncer` (Fedora), `brew install pgbouncer` (macOS)",
)  # fmt: skip
NODE = Need(
    "Node and npm", "e2e/test_scale_out*.py", _program("node", "npm"),
    "`sudo apt-get install nodejs npm` (Debian), `sudo dnf install nodejs` (Fedora), `brew install node` (macOS)",
)  # fmt: skip
SMALL_DISK = Need(
    "a small file system to fill",
    "crash/test_disk_full*.py",
    _can_mount,
    "run it as root on Linux, for example in a container",
)
NEEDS = (PGBOUNCER, NODE, SMALL_DISK)


def not_run(suites: Sequence[str], environment: Mapping[str, str], needs: Sequence[Need] = NEEDS) -> dict[str, Need]:
    """The files of these suites that this machine cannot run, with what they need. Raises UserError where it is CI."""
    missing = {
        file: need for need in needs for file in need.files() if file.split("/")[1] in suites and not need.is_there()
    }
    if missing and environment.get("CI", "").lower() == "true":
        raise UserError("Not all tests can run here, and this is CI:\n" + "\n".join(sentences(missing)))
    return missing


def sentences(missing: Mapping[str, Need]) -> list[str]:
    """A line for each need: what is not run for want of it, and how to get it."""
    told = dict.fromkeys(missing.values())
    return [
        f"not run: {', '.join(file for file, need in missing.items() if need is wanted)}"
        f" (need {wanted.name}: {wanted.install})"
        for wanted in told
    ]
