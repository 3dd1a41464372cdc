"""Where the figures are measured: a Postgres cluster of its own with default durability, and hosts on it. Loopback only."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from local.host_process import ROOT, HostProcess
from local.ports import free_port as free_port
from local.postgres import EmbeddedPostgres
from local.standins.twilio import ACCOUNT_SID, AUTH_TOKEN, WHATSAPP_FROM
from shared.db.migrate import migrate
from shared.db.pool import Conn
from shared.errors import AntwoordError, UserError
from shared.settings import setting_names

FOLDER = ROOT / ".antwoord"  # not the system's temporary folder: that may be in memory, where a commit costs nothing
VARIANT_APP = ROOT / "bench" / "variant_app" / "function_app.py"
SHIPPED = ROOT / "local.settings.sample.json"
NOBODY = "http://127.0.0.1:9"  # where no service listens, for what a figure must not need

NO_TIME_LIMIT = "SET statement_timeout = 0"
ACTIVE = "SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing')"
REST = (
    "UPDATE job_types SET resting_until = now() + interval '1 day', resting_reason = 'the bench measures the webhook'"
)


class BenchFailed(AntwoordError):
    """A figure could not be measured."""


class Lab:
    """A context manager; at its end the hosts are stopped and the cluster is deleted."""

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # Or all would be left behind.
            before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
            self._closing.callback(signal.signal, signal.SIGTERM, before)
        FOLDER.mkdir(exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="bench-", dir=FOLDER))
        self._closing.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.postgres = EmbeddedPostgres(self.folder / "pg")
        self._closing.callback(self.postgres.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def database(self, name: str, *, template: str | None = None) -> str:
        """A fresh database at the newest version; `template` is another one's name, to which nobody is connected."""
        url = self.postgres.create(name, template=template)
        with psycopg.connect(url, autocommit=True) as connection:
            migrate(connection)
        return url

    def connect(self, url: str) -> Conn:
        """An administrator's connection without a limit of time, closed at the end."""
        connection = psycopg.connect(url, autocommit=True)
        connection.execute(NO_TIME_LIMIT)
        return self._closing.enter_context(connection)

    def enter[T](self, manager: contextlib.AbstractContextManager[T]) -> T:
        """Keep something open until the end."""
        return self._closing.enter_context(manager)

    def variant(self) -> Path:
        """A folder with the variant application and the project's host.json."""
        folder = Path(tempfile.mkdtemp(prefix="app-", dir=self.folder))
        shutil.copy(VARIANT_APP, folder / "function_app.py")
        shutil.copy(ROOT / "host.json", folder)
        return folder

    def host(
        self, database_url: str, *arguments: str, app: Path | None = None, changes: Mapping[str, str] | None = None
    ) -> HostProcess:
        """A host that answers; `changes` are settings, `app` another application than the project's."""
        port = free_port()
        folder = ["--app", str(app)] if app else []
        log = self.enter((self.folder / f"host-{port}.log").open("wb"))
        given = environment(database_url, f"http://127.0.0.1:{port}", changes)
        host = HostProcess(given, port=port, arguments=[*folder, *arguments], log=log)
        try:
            return self.enter(host)
        except UserError as failed:
            lines = (self.folder / f"host-{port}.log").read_text("utf-8", "replace").strip().splitlines()
            raise BenchFailed(f"{failed} It said: {lines[-1] if lines else 'nothing'}") from failed


def environment(database_url: str, host_url: str, changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a host runs with: the settings as they are shipped, none of this machine's own; `changes` by their names.

    Names that are not set are empty, so that no `local.settings.json` can bring a real service in.
    """
    own = set(setting_names())
    shipped: dict[str, str] = json.loads(SHIPPED.read_text("utf-8"))["Values"]
    return (
        {name: value for name, value in os.environ.items() if name not in own}
        | dict.fromkeys(own, "")
        | {name: value for name, value in shipped.items() if value}
        | {
            "DATABASE_URL": database_url,
            "AZURE_OPENAI_ENDPOINT": NOBODY,
            "AZURE_OPENAI_API_KEY": "standin",
            "AZURE_OPENAI_CHAT_DEPLOYMENT": "standin-chat",
            "AZURE_OPENAI_EMBEDDING_DEPLOYMENT": "standin-embedding",
            "TWILIO_API_BASE_URL": NOBODY,
            "TWILIO_ACCOUNT_SID": ACCOUNT_SID,
            "TWILIO_AUTH_TOKEN": AUTH_TOKEN,
            "TWILIO_WHATSAPP_FROM": WHATSAPP_FROM,
            "PUBLIC_BASE_URL": host_url,
        }
        | dict(changes or {})
    )


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Poll a condition until it holds. Raises BenchFailed when it does not in time."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise BenchFailed(f"The bench waited {seconds:g} s for {what} in vain.")
        time.sleep(0.01)


def is_idle(connection: Conn) -> bool:
    """Whether no job waits or runs."""
    row = connection.execute(ACTIVE).fetchone()
    return row is not None and row[0] == 0
