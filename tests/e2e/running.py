"""The whole application against the stand-ins: in this process (`Inside`), or behind its host (`Outside`)."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from local.host_process import HostProcess
from local.ports import free_port as free_port
from local.stack import Stack
from local.standins.azure_openai import OpenAIStandIn
from local.standins.twilio import TwilioStandIn
from shared.app import App
from shared.db.pool import Database, Row
from shared.settings import load
from tests.fakes.eventually import eventually
from tests.fakes.world import World


class Rows:
    """The few looks into the database that these tests take."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)

    def rows(self, sql: str, **parameters: Any) -> list[Row]:
        """The rows of a statement."""
        return self._connection.execute(sql.encode(), parameters).fetchall()

    def value(self, sql: str, **parameters: Any) -> Any:
        """The first value of a statement."""
        found = self.rows(sql, **parameters)
        return found[0][0] if found else None

    def execute(self, sql: str, **parameters: Any) -> None:
        """A statement without rows."""
        self._connection.execute(sql.encode(), parameters)

    def close(self) -> None:
        self._connection.close()


class Inside:
    """The application in this process with its real clients; time is moved by SQL, nothing waits for a retry."""

    def __init__(self, database: Database, openai: OpenAIStandIn, twilio: TwilioStandIn, **changes: str) -> None:
        self.openai, self.twilio = openai, twilio
        self.environment = {
            "DATABASE_URL": "postgresql://given/elsewhere",
            "AZURE_OPENAI_ENDPOINT": openai.url,
            "AZURE_OPENAI_API_KEY": "standin",
            "AZURE_OPENAI_CHAT_DEPLOYMENT": "standin-chat",
            "AZURE_OPENAI_EMBEDDING_DEPLOYMENT": "standin-embedding",
            "TWILIO_API_BASE_URL": twilio.url,
            "TWILIO_ACCOUNT_SID": twilio.account_sid,
            "TWILIO_AUTH_TOKEN": twilio.auth_token,
            "TWILIO_WHATSAPP_FROM": twilio.whatsapp_from,
            "PUBLIC_BASE_URL": "http://127.0.0.1:9",
            "SETTLE_SECONDS": "0",
            "UNKNOWN_SENDERS": "answer",
            "TYPING_INDICATOR": "off",
        } | changes
        self.world = World(database, SETTLE_SECONDS="0")
        self.app = App(load(self.environment), database=database)

    def ask(self, address: str, text: str) -> None:
        """A message comes in."""
        self.world.says(address, text)

    def run(self) -> None:
        """Run what is due, once."""
        while self.app.worker.poll_once(8):
            pass

    def run_all(self, rounds: int = 12) -> None:
        """Run everything, also what waits for a retry or rests."""
        for _ in range(rounds):
            self.world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
            self.world.execute("UPDATE job_types SET resting_until = now() WHERE resting_until IS NOT NULL")
            if not self.app.worker.poll_once(8):
                return

    def sent_to(self, address: str) -> list[str]:
        """What Twilio accepted for an address, in order."""
        return [message.body for message in self.twilio.sent if message.to == f"whatsapp:{address}"]


class Outside:
    """The application behind its host, as a process of its own, on a database that the test gives."""

    def __init__(self, database_url: str, *, arguments: tuple[str, ...] = ("--queue-standin",), **changes: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
        given = (
            inherited
            | {
                "DATABASE_URL": database_url,
                "JOB_LEASE_SECONDS": "2",
                "SETTLE_SECONDS": "0",
                "POLL_SCHEDULE": "* * * * * *",
            }
            | changes
        )
        self.stack = Stack(Path(tempfile.gettempdir()), given, host_url=self.url)
        self.arguments = arguments
        self.log = tempfile.NamedTemporaryFile("w+b", suffix=".log")  # noqa: SIM115 - closed with the rest
        self.database = Rows(database_url)
        self.host: HostProcess | None = None

    @property
    def twilio(self) -> TwilioStandIn:
        """The stand-in that the host talks to."""
        assert self.stack.twilio is not None
        return self.stack.twilio

    @property
    def openai(self) -> OpenAIStandIn:
        """The stand-in that the host talks to."""
        assert self.stack.openai is not None
        return self.stack.openai

    def start_host(self) -> HostProcess:
        """Start a host and wait until it answers."""
        self.host = HostProcess(
            self.stack.environment, port=self.port, arguments=self.arguments, log=self.log.file
        ).start()
        return self.host

    def sent_to(self, address: str) -> list[str]:
        """What Twilio accepted for an address, in order."""
        return [message.body for message in self.twilio.sent if message.to == f"whatsapp:{address}"]

    def logged(self) -> str:
        """What the host has written to stderr."""
        return Path(self.log.name).read_text("utf-8", "replace")

    def __enter__(self) -> Outside:
        self.stack.open()
        return self

    def __exit__(self, *_: object) -> None:
        if self.host is not None and self.host.poll() is None:
            self.host.kill()
        self.stack.close()
        self.database.close()
        self.log.close()


def embed_now(app: App, database: Database, paths: list[Path]) -> None:
    """Put documents into the database, embedded."""
    from shared.conversation.language import detect
    from shared.knowledge.ingest import add_document
    from shared.knowledge.upload import read_upload

    with database.connection() as connection:
        for path in paths:
            add_document(connection, read_upload(path.name, path.read_bytes(), None, "", detect=detect))
    while app.worker.poll_once(4):
        pass


def until[T](condition: Callable[[], T], seconds: float = 60.0) -> T:
    """Poll until the condition is true; what it gave."""
    return eventually(condition, seconds)


@contextlib.contextmanager
def standins() -> Iterator[tuple[OpenAIStandIn, TwilioStandIn]]:
    """Both services, in this process."""
    with OpenAIStandIn() as openai, TwilioStandIn() as twilio:
        yield openai, twilio
