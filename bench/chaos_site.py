"""Where a chaos run takes place: two hosts on one database behind one address, both services as stand-ins, and what breaks."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg
from starlette.responses import JSONResponse, Response

from bench.balancer import Balancer
from bench.chaos_script import answer_to, numbers_in
from bench.chaos_weather import Weather, change, clear_up
from bench.lab import environment, free_port
from local.host_process import HostProcess
from local.postgres import EmbeddedPostgres
from local.standins.azure_openai import OpenAIStandIn
from local.standins.prompt_reader import read_prompt
from local.standins.server import Call, StandIn
from local.standins.twilio import TwilioStandIn
from shared.db.migrate import migrate
from shared.errors import UserError
from shared.settings import EMBEDDING_DIMENSIONS

EMBEDDING_MODEL = "standin-embedding"
FOREIGN = 0.05  # the chance, at each change of the weather, that somebody else who uses the account writes to somebody
FROZEN_SECONDS = (4.5, 6.5)
WEATHER_SECONDS = (0.5, 1.5)  # between two changes

# The sweep does not look at what came before the installation.
INSTALLED_EARLIER = "UPDATE schema_migrations SET applied_at = applied_at - interval '1 day'"
ADD_DOCUMENT = """
    INSERT INTO documents (id, title, content, content_sha256, language, source_name, state)
    VALUES (gen_random_uuid(), 'Handboek', 'x', 'x', 'nl', 'handboek.md', 'ready') RETURNING id
"""
ADD_CHUNK = """
    INSERT INTO chunks (document_id, ordinal, heading_path, text, search_text, language, content_sha256, embedding,
        embedding_model)
    VALUES (%(document)s, 0, '{Handboek,Verlof}', 'Je hebt 200 uur verlof.', 'Verlof Je hebt 200 uur verlof.', 'nl', 'x',
        %(vector)s::halfvec, %(model)s)
"""
SETTINGS = {
    "JOB_LEASE_SECONDS": "4",
    "SETTLE_SECONDS": "0.4",
    "POLL_SCHEDULE": "* * * * * *",
    "RECONCILE_WINDOW_SECONDS": "60",
    "SWEEP_MINUTES": "1",
    "UNKNOWN_SENDERS": "answer",
    "SENDER_DAILY_LIMIT": "10000",
    "RETRIEVAL_FLOOR": "-1",
}


class NumberedModel(OpenAIStandIn):
    """Answers with the numbers of what it is asked. `paid` keeps the numbers of each answer that arrived whole."""

    def __init__(self, weather: Weather) -> None:
        super().__init__(faults=weather)
        self.paid: list[frozenset[int]] = []

    def start(self) -> Self:
        """Serve; no encoder is needed."""
        StandIn.start(self)
        return self

    def answer(self, messages: Any) -> str:
        """An Answerer's, see there."""
        return answer_to(read_prompt(messages).question)

    def _chat(self, call: Call) -> Response:
        self.answerer = self
        response = super()._chat(call)
        if call.fault is None or call.fault.do == "slow":
            self.paid.append(numbers_in(read_prompt(call.json["messages"]).question))
        return response

    def _embed(self, call: Call) -> Response:
        texts = call.json["input"]
        count = 1 if isinstance(texts, str) else len(texts)
        vector = [1.0] + [0.0] * (EMBEDDING_DIMENSIONS - 1)
        data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(count)]
        usage = {"prompt_tokens": count, "total_tokens": count}
        return JSONResponse({"object": "list", "data": data, "model": EMBEDDING_MODEL, "usage": usage})


@dataclass
class Site:
    """A context manager. `deeds` counts what was done to it."""

    postgres: EmbeddedPostgres
    database: str
    folder: Path
    seed: int
    harshness: float = 1.0
    changes: Mapping[str, str] = field(default_factory=dict)
    deeds: Counter[str] = field(default_factory=Counter)
    stopping: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._closing = contextlib.ExitStack()
        with self._closing as closing:
            self.url = self.postgres.create(self.database)
            _fill(self.url)
            self.weather = Weather(self.seed, self.harshness)
            self.model = closing.enter_context(NumberedModel(self.weather))
            self.twilio = TwilioStandIn(faults=self.weather)
            clear_up(self.twilio.conditions)
            ports = [free_port(), free_port()]
            self.balancer = closing.enter_context(Balancer(ports))
            self.twilio.webhook_url = f"{self.balancer.url}/api/twilio/inbound"
            closing.enter_context(self.twilio)
            given = environment(self.url, self.balancer.url, SETTINGS | {
                "AZURE_OPENAI_ENDPOINT": self.model.url, "TWILIO_API_BASE_URL": self.twilio.url,
            } | dict(self.changes))  # fmt: skip
            self.logs = [self.folder / f"host-{number}.log" for number in range(2)]
            self.hosts = [
                HostProcess(given, port=port, arguments=["--queue-standin"], log=closing.enter_context(log.open("ab")))
                for port, log in zip(ports, self.logs, strict=True)
            ]
            for host in self.hosts:
                host.start()
                closing.callback(host.kill)
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._closing.close()

    def kill_one(self, draw: random.Random) -> None:
        """SIGKILL one of the hosts and start it again; the other one goes on meanwhile."""
        host = draw.choice(self.hosts)
        host.kill()
        self.deeds["hosts killed"] += 1
        self._start(host)

    def freeze_one(self, draw: random.Random) -> None:
        """Freeze one of the hosts for longer than its leases last; it wakes up to jobs that the other one has taken over."""
        host = draw.choice(self.hosts)
        host.signal(signal.SIGSTOP)
        self.deeds["hosts frozen"] += 1
        self.stopping.wait(draw.uniform(*FROZEN_SECONDS))
        host.signal(signal.SIGCONT)

    def _start(self, host: HostProcess) -> None:
        for _ in range(3):
            with contextlib.suppress(UserError):
                host.start()
                return
            if self.stopping.is_set():
                return
        host.start()

    def restart_database(self) -> None:
        """Stop and start the database, under both hosts."""
        self.postgres.restart()
        self.deeds["database restarts"] += 1

    def blow(self, addresses: list[str], draw: random.Random) -> None:
        """Change the conditions until the weather is calm."""
        while not self.weather.calm and not self.stopping.wait(draw.uniform(*WEATHER_SECONDS)):
            change(self.twilio.conditions, draw)
            if draw.random() < FOREIGN:
                self.twilio.place(draw.choice(addresses))
                self.deeds["foreign messages"] += 1
        clear_up(self.twilio.conditions)

    def ask_database[T](self, question: Callable[[psycopg.Connection], T]) -> T:
        """Ask over a connection of its own; again while the database is away."""
        ends = time.monotonic() + 30
        while True:
            try:
                with psycopg.connect(self.url, autocommit=True, options="-c statement_timeout=0") as connection:
                    return question(connection)
            except psycopg.OperationalError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.1)


def _fill(url: str) -> None:
    """The newest version, and one document that every question finds."""
    with psycopg.connect(url, autocommit=True) as connection:
        migrate(connection)
        connection.execute(INSTALLED_EARLIER)
        document = connection.execute(ADD_DOCUMENT).fetchone()
        assert document is not None
        vector = "[1" + ",0" * (EMBEDDING_DIMENSIONS - 1) + "]"
        connection.execute(ADD_CHUNK, {"document": document[0], "vector": vector, "model": EMBEDDING_MODEL})
