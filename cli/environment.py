"""Where a command finds its settings: the environment, `local.settings.json`, and the `up` that runs beside it."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import psycopg

from local.functions.config import fill_from_local_settings
from shared.app import open_database
from shared.clients.wake import StorageWake, open_wake
from shared.db.migrate import available, version
from shared.db.pool import Conn, Database
from shared.errors import AntwoordError
from shared.settings import Settings, load

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("ANTWOORD_FOLDER") or ROOT / ".antwoord")  # the database of `up`, and what it runs with
RUNNING = FOLDER / "running.json"  # what `up` runs with, while it runs
# What statements of this version meet in a database of another one.
NOT_THERE = (
    psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedObject,
)  # fmt: skip
WAKE_SECONDS = 10.0  # that a command waits at its end for its hints to be sent: the library takes a while to load


def environment() -> dict[str, str]:
    """The environment wins over local.settings.json, and both over a running `up`; its parts are taken as a whole."""
    found = dict(os.environ)
    fill_from_local_settings(ROOT, found)
    if not found.get("DATABASE_URL", "").strip():
        for name, value in running().items():
            if not found.get(name, "").strip():
                found[name] = value
    return found


def running() -> dict[str, str]:
    """What the `up` beside this command runs with; nothing when there is none."""
    try:
        state = json.loads(RUNNING.read_text("utf-8"))
        os.kill(int(state["pid"]), 0)
        return {str(name): str(value) for name, value in state["environment"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return {}


def announce(values: Mapping[str, str]) -> None:
    """Tell the commands that run beside this `up` what it runs with; readable by its owner alone."""
    FOLDER.mkdir(exist_ok=True)
    RUNNING.unlink(missing_ok=True)
    with os.fdopen(os.open(RUNNING, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "environment": dict(values)}, file)


def withdraw() -> None:
    """This `up` has ended."""
    RUNNING.unlink(missing_ok=True)


def settings(*only: str) -> Settings:
    """The settings, of which only those named must be there. Raises SettingsError."""
    return load(environment(), only=only)


def person() -> str:
    """Who runs this command, for the audit log."""
    try:
        return f"command:{getpass.getuser()}"
    except (OSError, KeyError):  # a container's user may have no name
        return f"command:{os.getuid()}"


class OtherVersion(AntwoordError):
    """The database was never migrated, or is older or newer than this command."""

    def __init__(self) -> None:
        super().__init__("The database is not at this version: run ./antwoord migrate.")


@contextlib.contextmanager
def database(*also: str) -> Iterator[tuple[Settings, Database]]:
    """The settings and the application's pool, for a command that needs the database and `also`."""
    with any_database(*also) as (found, pool):
        try:
            yield found, pool
        except NOT_THERE as missing:
            with pool.connection() as opened:
                if version(opened) == len(available()):
                    raise  # ours to mend: the traceback says where
            raise OtherVersion from missing


@contextlib.contextmanager
def any_database(*also: str) -> Iterator[tuple[Settings, Database]]:
    """The same for a database of whatever version."""
    found = settings("database_url", *also)
    pool = open_database(found)
    try:
        yield found, pool
    finally:
        pool.close()


@contextlib.contextmanager
def connection(needs: Collection[str] = ()) -> Iterator[Conn]:
    """A connection to the application's database."""
    with database(*needs) as (_, pool), pool.connection() as opened:
        yield opened


@contextlib.contextmanager
def waking() -> Iterator[Callable[[float], None]]:
    """A way to tell the workers that a job is due in so many seconds; best effort, and nothing without a storage queue."""
    wake = open_wake(settings("database_url"))
    try:
        yield wake.wake
    finally:
        if isinstance(wake, StorageWake):
            wake.close(WAKE_SECONDS)


def wake_workers(count: int = 1) -> None:
    """So many jobs are due now."""
    if count:
        with waking() as wake:
            for _ in range(count):
                wake(0.0)
