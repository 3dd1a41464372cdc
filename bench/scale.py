"""Latency as load grows: whole hosts on one database, a model with a limit of tokens a minute, and WhatsApp's limits.

One process is one instance, with the shipped settings, a timer, and wake messages from a queue that is polled. Messages come at
random moments (Poisson), each from a number of its own, and are timed until Twilio has accepted the answer. Times are real, and
so are all rates but one: WhatsApp's 80 a second are more than one machine brings about, so that the line of a slowed sender
stands for it. A model call thinks for about 1.5 s (lognormal) and counts 3,200 tokens, whatever its prompt; the handbook is one
page.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.figures import Figure, Goal, Spread, percentile
from bench.lab import Lab, is_idle, wait_until
from bench.limits import TOKENS_OF_AN_ANSWER, ModelLimits, WhatsApp
from bench.report import alone
from local.demo.load import waiting
from local.host_process import HostProcess
from local.standins.azure_openai import OpenAIStandIn
from local.standins.encoder import ENCODER
from local.standins.storage_queue import QueueStandIn
from local.standins.twilio import TwilioStandIn
from local.standins.twilio_messages import Message
from shared.conversation.language import detect
from shared.db.pool import Conn
from shared.knowledge.ingest import add_document
from shared.knowledge.upload import read_upload

HANDBOOK = "# Handboek\n\n## Verlof\n\nJe hebt 200 vakantie-uren per jaar bij een volledig dienstverband.\n"
QUESTION = "Hoeveel vakantie-uren heb ik per jaar?"
ROOM = 0.8  # up to this share of what there is room for, the goal of `answered` holds
SETTLED_P50, SETTLED_P95 = 4.0, 7.0
LATE_SECONDS = 300.0  # after the last message, for what has piled up
SLOWED_SENDER = 4.0  # messages a second, a twentieth of WhatsApp's

KEPT = """
    SELECT pg_total_relation_size('conversations') + pg_total_relation_size('messages')
        + pg_total_relation_size('message_events')
"""


@dataclass(frozen=True, slots=True)
class Setup:
    """Instances, the model's limit (None: none), and the rates to try: messages a second, for `seconds` each.

    `room` is the rate that it has room for, or None where that is what is asked. A `minute` of the model's limit may be shorter,
    with as much less in it.
    """

    instances: int
    tokens_a_minute: float | None
    rates: Sequence[float]
    seconds: float
    room: float | None = None
    minute: float = 60.0

    @property
    def what(self) -> str:
        """In a figure's name."""
        limit = (
            "no limit of the model" if self.tokens_a_minute is None else f"{self.tokens_a_minute:,.0f} tokens a minute"
        )
        return f"{self.instances} instance{'s' if self.instances > 1 else ''}, {limit}"


def limited(tokens_a_minute: float, shares: Sequence[float], seconds: float, minute: float = 60.0) -> Setup:
    """One instance, at these shares of what the model lets through: whole answers in each minute."""
    room = int(tokens_a_minute * minute / 60 / TOKENS_OF_AN_ANSWER) / minute
    return Setup(1, tokens_a_minute, [share * room for share in shares], seconds, room, minute)


LONG = (
    Setup(1, None, (1.0, 2.0, 3.0, 4.0, 5.0), 30.0),
    Setup(2, None, (4.0, 6.0, 8.0), 30.0),
    limited(240_000.0, (0.5, 0.8, 1.0, 1.25), 90.0),
)
QUICK = (Setup(1, None, (2.0,), 2.0), limited(128_000.0, (4.0,), 3.0, minute=3.0))


@dataclass(frozen=True, slots=True)
class Ran:
    """One rate: seconds from each message to its accepted answer, to its leaving by a slowed sender, and model calls refused."""

    rate: float
    accepted: Sequence[float]
    left: Sequence[float]
    refused: int
    late: float  # seconds from the last message to the last answer


class OneAnswer:
    """The same to everybody, cited; how long it takes is the limits' business."""

    def answer(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The text."""
        del messages
        return "Je hebt 200 vakantie-uren per jaar. [1]"


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about twelve minutes."""
    return simulate(note, LONG)


def simulate(note: Callable[[str], None], setups: Sequence[Setup]) -> list[Figure]:
    """Each setup with hosts and a database of its own."""
    figures: list[Figure] = []
    with Lab() as lab:
        note("scale: starting …")
        _handbook(lab)
        for number, setup in enumerate(setups):
            with Site(lab, f"site_{number}", setup) as site:
                for rate in setup.rates:
                    note(f"scale: {setup.what}, {rate:.2g} messages a second for {setup.seconds:g} s …")
                    figures += _figures(setup, site.run(rate))
                figures.append(site.growth())
    return figures


def arrivals(rate: float, seconds: float, draw: random.Random) -> list[float]:
    """Random moments from 0 to `seconds`, `rate` a second on average (a Poisson process); at least one."""
    moments: list[float] = []
    moment = draw.expovariate(rate)
    while moment < seconds or not moments:
        moments.append(min(moment, seconds))
        moment += draw.expovariate(rate)
    return moments


class Site:
    """The hosts of one setup and what is around them; a context manager."""

    def __init__(self, lab: Lab, name: str, setup: Setup) -> None:
        self._setup = setup
        self._limits = ModelLimits(setup.tokens_a_minute, minute=setup.minute)
        self._model = OpenAIStandIn(answerer=OneAnswer(), faults=self._limits)
        self._twilio, self._queue = TwilioStandIn(), QueueStandIn()
        self._lab, self._name = lab, name
        self._hosts: list[HostProcess] = []
        self._draw = random.Random(name)
        self._asked = 0

    def __enter__(self) -> Site:
        url = self._lab.database(self._name, template="handbook")
        self._connection = self._lab.connect(url)
        for standin in (self._model, self._twilio, self._queue):
            standin.start()
        changes = {
            "UNKNOWN_SENDERS": "answer",
            "AZURE_OPENAI_ENDPOINT": self._model.url,
            "TWILIO_API_BASE_URL": self._twilio.url,
            "AzureWebJobsStorage": self._queue.connection_string,
        }
        self._hosts = [self._lab.host(url, changes=changes) for _ in range(self._setup.instances)]
        self._twilio.webhook_url = f"{self._hosts[0].url}/api/twilio/inbound"
        self._ask([0.0])  # warm: clients are made, the prompt's files are read
        self._kept, self._kept_at = _one(self._connection, KEPT), self._asked
        return self

    def __exit__(self, *_: object) -> None:
        for host in self._hosts:
            host.kill()
        for standin in (self._queue, self._twilio, self._model):
            standin.stop()

    def run(self, rate: float) -> Ran:
        """One rate, until all are answered."""
        self._limits.refused = 0
        asked, accepted = self._ask(arrivals(rate, self._setup.seconds, self._draw))
        in_order = sorted((moment, to) for to, moment in accepted.items())
        leaves = WhatsApp(a_second=SLOWED_SENDER).leaves(in_order)
        left = [moment - asked[to] for moment, (_, to) in zip(leaves, in_order, strict=True)]
        late = max(accepted.values()) - max(asked.values())
        return Ran(rate, [accepted[to] - asked[to] for to in asked], left, self._limits.refused, late)

    def growth(self) -> Figure:
        """What one answered message leaves in the database for good, with its indexes."""
        grown = (_one(self._connection, KEPT) - self._kept) / (self._asked - self._kept_at) / 1024
        return Figure("scale", f"database grows by, {self._setup.what}", Spread.of([grown]), "KiB a message")

    def _ask(self, moments: Sequence[float]) -> tuple[dict[str, float], dict[str, float]]:
        """Ask at these moments, each from a new number; by number, when it was asked and when its answer was accepted."""
        numbers = [f"whatsapp:+{31_600_000_000 + self._asked + index}" for index in range(len(moments))]
        self._asked += len(moments)
        wanted, complete = set(numbers), threading.Event()
        asked: dict[str, float] = {}
        accepted: dict[str, float] = {}

        def hear(what: str, message: Message) -> None:
            if what == "created" and message.direction != "inbound" and message.to in wanted:
                accepted.setdefault(message.to, message.created)
                if len(accepted) == len(wanted):
                    complete.set()

        self._twilio.messages.listeners.append(hear)
        begins = time.monotonic()
        for number, moment in zip(numbers, moments, strict=True):
            time.sleep(max(begins + moment - time.monotonic(), 0.0))
            asked[number] = time.time()
            self._twilio.receive(number, QUESTION, wait=False)
        wait_until(complete.is_set, f"{len(moments)} answers ({self._setup.what})", LATE_SECONDS)
        self._twilio.messages.listeners.remove(hear)
        wait_until(lambda: is_idle(self._connection), "the jobs to be done")
        return asked, accepted


def _handbook(lab: Lab) -> None:
    """A database with one page, embedded, as the others' template."""
    template = lab.database("handbook")
    page = lab.folder / "handboek.md"
    page.write_text(HANDBOOK, "utf-8")
    with OpenAIStandIn(answerer=OneAnswer()) as model, lab.connect(template) as connection:
        add_document(connection, read_upload(Path(page).name, page.read_bytes(), None, "handbook", detect=detect))
        changes = {"AZURE_OPENAI_ENDPOINT": model.url, "POLL_SCHEDULE": "* * * * * *"}
        host = lab.host(template, "--no-wake", changes=changes)
        wait_until(lambda: waiting(connection) == 0 and is_idle(connection), "the page to be embedded", 60.0)
        host.kill()
    ENCODER.encode([QUESTION])  # kept by the encoder: from now on an embedding takes no time


def _figures(setup: Setup, ran: Ran) -> list[Figure]:
    """Latencies at one rate; their goals hold while there is room."""
    share = "" if setup.room is None else f" ({ran.rate / setup.room:.0%} of what the model lets through)"
    where = f"{ran.rate:.2g} a second{share}, {setup.what}"
    has_room = setup.room is not None and ran.rate <= ROOM * setup.room + 1e-9
    figures = [
        Figure("scale", f"{name}, {where}", Spread.of([percentile(ran.accepted, at)]), "s",
               goal=Goal(limit) if has_room else None)
        for name, at, limit in (("p50", 0.5, SETTLED_P50), ("p95", 0.95, SETTLED_P95))
    ]  # fmt: skip
    if setup.tokens_a_minute is None:
        figures.append(
            Figure("scale", f"p95 by a sender of {SLOWED_SENDER:g} a second, {where}",
                   Spread.of([percentile(ran.left, 0.95)]), "s")
        )  # fmt: skip
    else:
        refused = ran.refused / len(ran.accepted)
        figures += [
            Figure("scale", f"model calls refused, {where}", Spread.of([refused]), "an answer"),
            Figure("scale", f"last answer after the last message, {where}", Spread.of([ran.late]), "s"),
        ]
    return figures


def _one(connection: Conn, sql: Any) -> float:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return float(row[0])


def main() -> None:
    """Measure and print; `--quick` for a form of less than half a minute."""
    parser = argparse.ArgumentParser(description="Latency as load grows.")
    parser.add_argument("--quick", action="store_true", help="two short loads only")
    parser.add_argument("--seconds", type=float, help="of each load")
    given = parser.parse_args()
    setups = [replace(setup, seconds=given.seconds or setup.seconds) for setup in (QUICK if given.quick else LONG)]
    alone(lambda note: simulate(note, setups))


if __name__ == "__main__":
    main()
