"""Importing the app as the cloud's worker does, and saying in words why it cannot be imported."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from local.functions.errors import USAGE, CannotStart

MODULE = "function_app"
PROJECT_ROOT = Path(__file__).resolve().parents[2]


def import_app(app_dir: Path) -> ModuleType:
    """Import the app's `function_app`, with its folder as the current one and last on the import path.

    Last, since the cloud's worker appends it: an installed package wins over the app's folder of the same name. The
    library imports the module again and finds it here; done first because it keeps only the text of an exception.
    Raises CannotStart: with the sentences of a SettingsError (status 2), or with the traceback (status 1).
    """
    if not (app_dir / f"{MODULE}.py").is_file():
        raise CannotStart(f"there is no {MODULE}.py in {app_dir}", USAGE)
    own = [app_dir, PROJECT_ROOT] if app_dir != PROJECT_ROOT else [app_dir]
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() not in own] + [str(path) for path in own]
    os.chdir(app_dir)
    try:
        module = importlib.import_module(MODULE)
    except Exception as error:
        raise _explained(error) from error
    origin = Path(module.__file__ or "").resolve()
    if origin.parent != app_dir:
        raise CannotStart(f"{MODULE} was imported from {origin}, not from {app_dir}: something installed has its name")
    return module


def taken_names(app_dir: Path) -> Iterator[tuple[str, str]]:
    """Modules of the app's folder that were imported from elsewhere, each with where from."""
    for entry in sorted(app_dir.iterdir()):
        name = entry.stem if entry.suffix == ".py" else entry.name
        origin = getattr(sys.modules.get(name), "__file__", None)
        if origin and Path(origin).resolve().parent not in (app_dir, app_dir / name):
            yield name, origin


def _explained(error: Exception) -> CannotStart:
    errors = sys.modules.get("shared.errors")
    link: BaseException | None = error
    while link is not None and errors is not None:
        if isinstance(link, errors.SettingsError):
            return CannotStart(str(link), USAGE)
        link = link.__cause__ or link.__context__
    return CannotStart("".join(traceback.format_exception(error)).rstrip())
