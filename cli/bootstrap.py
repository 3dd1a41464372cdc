"""From any Python from 3.9 on to the command in `.venv`: installs first if what is pinned is not what is there.

Standard library only. What takes time to import is imported where it is needed, so that a run with nothing to install
is over in a few milliseconds.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # a type checker takes this for typing's; importing that one would take longer than the work here
if TYPE_CHECKING:
    from collections.abc import Sequence

REQUIREMENTS = ("requirements.txt", "requirements-dev.txt")
RECIPE = "recipe 1"  # another number makes every machine install again, for when the steps of cli/install.py change


def main(root: str, arguments: Sequence[str]) -> int:
    """Run the command with these arguments, in the caller's folder; returns (a status) only if it cannot."""
    if not is_current(root):
        from cli import install

        try:
            install.ensure(root)
        except install.Impossible as reason:
            sys.stderr.write(f"antwoord: {reason}\n")
            return reason.status
        except KeyboardInterrupt:
            sys.stderr.write("antwoord: the installation was interrupted; it begins again next time.\n")
            return 130
    python = venv_python(root)
    # -P: the caller's folder is no place to import from. The packages here are found by the .pth file in .venv.
    return os.execv(python, [python, "-P", "-m", "cli", *arguments])  # noqa: S606


def venv_folder(root: str) -> str:
    """Where the packages are."""
    return os.path.join(root, ".venv")


def venv_python(root: str) -> str:
    """The interpreter that everything runs with."""
    return os.path.join(venv_folder(root), "bin", "python")


def stamp_file(root: str) -> str:
    """The file that says what is installed; it is written last, so a half installation has none or an older one."""
    return os.path.join(venv_folder(root), "antwoord-installed.txt")


def stamp_text(root: str) -> str:
    """What the stamp says when all that is pinned is there: the pins themselves."""
    return "\n".join([RECIPE, *(_read(os.path.join(root, name)) for name in REQUIREMENTS)])


def is_current(root: str) -> bool:
    """Whether `.venv` is whole: its Python is still there and every pin is the one that was installed."""
    try:
        return _read(stamp_file(root)) == stamp_text(root) and os.path.exists(venv_python(root))
    except OSError:
        return False


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
