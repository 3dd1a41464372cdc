"""A world for tests: the real application on a real database, with the model and Twilio's line replaced by fakes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from shared.app import App
from shared.clients.azure_openai import Answer, ChatMessage
from shared.conversation import inbound
from shared.db.pool import Database, Row
from shared.settings import EMBEDDING_DIMENSIONS, Settings, load
from tests.fakes.eventually import eventually
from tests.fakes.line import FakeLine as FakeLine

EXPIRED = "SELECT count(*) FROM ai_jobs WHERE status = 'processing' AND lease_until < now()"
ENVIRONMENT = {
    "DATABASE_URL": "postgresql://nowhere/none",
    "AZURE_OPENAI_ENDPOINT": "http://127.0.0.1:1",
    "AZURE_OPENAI_API_KEY": "fake",
    "AZURE_OPENAI_CHAT_DEPLOYMENT": "fake-chat",
    "AZURE_OPENAI_EMBEDDING_DEPLOYMENT": "fake-embedding",
    "TWILIO_ACCOUNT_SID": "AC" + "0" * 32,
    "TWILIO_AUTH_TOKEN": "token-one",
    "TWILIO_WHATSAPP_FROM": "whatsapp:+31201234567",
    "PUBLIC_BASE_URL": "https://antwoord.example.org",
    "SETTLE_SECONDS": "0",
    "UNKNOWN_SENDERS": "answer",
    "RETRIEVAL_FLOOR": "-1",
    "JOB_LEASE_SECONDS": "5",
}


def settings(**changes: str) -> Settings:
    """Settings of a test; `changes` by their names in the environment."""
    return load(ENVIRONMENT | changes)


@dataclass
class FakeModel:
    """A chat model and an embedder: what it says can be set, what it was asked is kept."""

    says: Callable[[Sequence[ChatMessage]], str] = lambda _: "Je hebt 200 uur verlof. [1]"
    asked: list[Sequence[ChatMessage]] = field(default_factory=list)
    embedded: list[list[str]] = field(default_factory=list)
    model: str = "fake-embedding"
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_whole: bool = True  # what it says comes to its end

    def answer(self, messages: Sequence[ChatMessage]) -> Answer:
        with self.lock:
            self.asked.append(messages)
        return Answer(self.says(messages), "fake-chat", {"temperature": 0, "seed": 1}, self.is_whole)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.embedded.append(list(texts))
        return [[1.0] + [0.0] * (EMBEDDING_DIMENSIONS - 1) for _ in texts]


class RecordingWake:
    """Keeps the delays that were asked for."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    def wake(self, delay_seconds: float = 0.0) -> None:
        self.delays.append(delay_seconds)

    def close(self) -> None:
        pass


class World:
    """One application on the file's database, and the few moves that tests make."""

    def __init__(self, database: Database, **changes: str) -> None:
        self.database = database
        self.line = FakeLine()
        self.model = FakeModel()
        self.wake = RecordingWake()
        self.settings = settings(**changes)
        self.app = App(
            self.settings, database=database, wake=self.wake, chat=self.model, embedder=self.model, line=self.line
        )

    def says(self, address: str, body: str, *, sid: str | None = None, **extra: str) -> inbound.Stored:
        """A message comes in."""
        fields = {
            "MessageSid": sid or f"SM{uuid4().hex}",
            "From": f"whatsapp:{address}",
            "To": self.settings.twilio_whatsapp_from,
            "Body": body,
            "NumMedia": "0",
        } | extra
        return inbound.store(
            self.database,
            inbound.parse(list(fields.items())),
            settle_seconds=self.settings.settle_seconds,
            default_language=self.settings.default_language,
        )

    def run(self) -> int:
        """Run everything that is due, and what that makes due."""
        ran = 0
        while batch := self.app.worker.poll_once(8):
            ran += batch
        return ran

    def rows(self, sql: str, **parameters: Any) -> list[Row]:
        """The rows of a statement."""
        with self.database.connection() as connection:
            return connection.execute(sql, parameters).fetchall()

    def value(self, sql: str, **parameters: Any) -> Any:
        """The first value of a statement."""
        rows = self.rows(sql, **parameters)
        return rows[0][0] if rows else None

    def execute(self, sql: str, **parameters: Any) -> None:
        """A statement without rows."""
        with self.database.connection() as connection:
            connection.execute(sql, parameters)

    def force(self, sql: str, **parameters: Any) -> None:
        """A statement past the triggers: for states that no legal change gives, and for history."""
        with self.database.transaction() as connection:
            connection.execute("SET LOCAL session_replication_role = replica")
            connection.execute(sql.encode(), parameters)

    def twin(self) -> World:
        """Another host of the same application: the same database, model and line, a worker of its own."""
        other = World(self.database)
        other.line, other.model, other.settings = self.line, self.model, self.settings
        other.app = App(
            self.settings, database=self.database, wake=self.wake, chat=self.model, embedder=self.model, line=self.line
        )
        return other

    def rescue(self) -> None:
        """Another host looks after what was left behind, and runs one job."""
        worker = self.twin().app.worker
        worker.poll_once(1)
        # A machine that stood still just then looks like a database that was away: then it first waits for half a lease.
        eventually(lambda: not self.value(EXPIRED) or (worker.poll_once(1), False)[1])

    def pass_time(self, seconds: float) -> None:
        """Let time pass for what is being sent and looked up: the rows and the line's list are that much older."""
        self.execute(
            "UPDATE messages SET created_at = created_at - %(age)s, send_started_at = send_started_at - %(age)s,"
            " last_lookup_at = last_lookup_at - %(age)s, lookups_failing_since = lookups_failing_since - %(age)s,"
            " in_doubt_since = in_doubt_since - %(age)s",
            age=timedelta(seconds=seconds),
        )
        for message in self.line.accepted:
            message["created"] -= timedelta(seconds=seconds)
        self.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")

    def settle_doubts(self, *, rounds: int = 8, seconds: float = 121.0) -> None:
        """Let time pass, and look again, until nothing is being sent or looked up any more."""
        for _ in range(rounds):
            self.run()
            if not self.value(
                "SELECT count(*) FROM ai_jobs WHERE type IN ('autoreply', 'send_message') AND status = 'pending'"
            ):
                return
            self.pass_time(seconds)
        raise AssertionError("it is still in doubt")

    def sent_to(self, address: str) -> list[str]:
        """The bodies that the line accepted for an address, in order."""
        return [message["body"] for message in self.line.accepted if message["to"] == address]

    def add_handbook(self) -> UUID:
        """A document of one chunk that every question finds."""
        document = uuid4()
        self.execute(
            "INSERT INTO documents (id, title, content, content_sha256, language, source_name, state)"
            " VALUES (%(id)s, 'Personeelshandboek', 'x', 'x', 'nl', %(id)s::text, 'ready')",
            id=document,
        )
        self.execute(
            "INSERT INTO chunks (document_id, ordinal, heading_path, text, search_text, language, content_sha256,"
            " embedding, embedding_model) VALUES (%(id)s, 0, '{Personeelshandboek,Verlof}', 'Je hebt 200 uur verlof.',"
            " 'Verlof Je hebt 200 uur verlof.', 'nl', 'x', %(vector)s::halfvec, 'fake-embedding')",
            id=document,
            vector="[1" + ",0" * (EMBEDDING_DIMENSIONS - 1) + "]",
        )
        return document


def run_all(world: World, *, rounds: int = 10) -> None:
    """Run everything, also what waits for a retry, or for the messages before it."""
    for _ in range(rounds):
        world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
        if not world.run():
            return
    raise AssertionError("the queue does not come to an end")
