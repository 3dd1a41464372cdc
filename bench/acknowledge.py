"""Acknowledging a webhook, against a bare single-row insert through the same host, the same pool and the same cluster; and an
AI vendor's event, whose two transactions are measured against a WhatsApp message.

The job types rest meanwhile: jobs are stored and wakes are sent, but no job competes for the processor. The medians are of
requests that come one at a time, in batches that take turns; the tail is that of 200 a second, whatever the answers.
"""

from __future__ import annotations

import base64
import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench.figures import Figure, Goal, Spread, percentile, ratios
from bench.lab import REST, Lab
from bench.load import Sender, post, vendor_event, webhook
from bench.report import alone
from local.host_process import ROOT
from local.standins.storage_queue import QueueStandIn
from shared.secrets import Vault
from shared.settings import KEY_BYTES
from shared.webhooks import sources
from shared.webhooks.sources import NewSource

ROUNDS, WARM_UP, BATCH = 7, 2, 20
APART_SECONDS = 0.02  # enough for what a wake causes in the host after the answer
RATE, RATE_SECONDS, RATE_ROUNDS = 200, 2, 5
TEXT = "Hoeveel vakantie-uren heb ik als ik fulltime werk?"
CREATE_BARE = "CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL)"
SOURCE = "bench"
ADD_ENDPOINT = """
    INSERT INTO webhook_endpoints (name, url, secret, created_by) VALUES ('bench', 'https://localhost/', '\\x00', 'bench')
"""
BASELINE_APP = ROOT / "bench" / "baseline_app"


@dataclass(slots=True)
class Case:
    """One host under one kind of load; `request` makes the next request. Milliseconds of each round."""

    what: str
    url: str
    request: Callable[[], bytes]
    apart: list[float] = field(default_factory=list)
    together: list[float] = field(default_factory=list)
    tails: list[float] = field(default_factory=list)


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; nearly two minutes."""
    with Lab() as lab, Sender() as sender, QueueStandIn() as storage:
        database = lab.database("antwoord")
        connection = lab.connect(database)
        connection.execute(CREATE_BARE)
        connection.execute(REST)
        cases = _cases(lab, database, storage)
        note(f"acknowledge: {ROUNDS} rounds one at a time …")
        _take_turns(sender, cases, WARM_UP, keep=False)
        connection.execute("ANALYZE")  # Postgres does it by itself within a minute of the first messages
        _take_turns(sender, cases, ROUNDS)
        note(f"acknowledge: {RATE_ROUNDS} rounds of {RATE} a second for {RATE_SECONDS} s …")
        for _ in range(RATE_ROUNDS):
            for case in cases:
                requests = [case.request() for _ in range(RATE * RATE_SECONDS)]
                case.tails.append(percentile(sender.at_rate(case.url, requests, RATE), 0.99) * 1000)
                time.sleep(0.3)
    return list(_figures(*cases[:-1])) + list(_event_figures(cases[1], cases[-1]))


def _cases(lab: Lab, database: str, storage: QueueStandIn) -> list[Case]:
    """The baseline, then ours, and last an event of an AI vendor's."""
    bare = lab.host(database, "--no-timer", "--no-wake", app=BASELINE_APP).url
    key = base64.b64encode(os.urandom(KEY_BYTES)).decode("ascii")
    plain = lab.host(database, "--no-timer", "--no-wake", changes={"SECRETS_KEY": key}).url
    secret = _source(lab, database, key)
    changes = {"BENCH_QUEUE_TRIGGER": "off", "AzureWebJobsStorage": storage.connection_string}
    sending = lab.host(database, "--no-timer", app=lab.variant(), changes=changes).url
    together = lab.host(database, "--no-timer", "--queue-standin").url
    numbers = itertools.count(31_600_000_000)
    form = webhook(bare, "+31600000000", TEXT).partition(b"\r\n\r\n")[2]

    def different(host: str) -> Callable[[], bytes]:
        return lambda: webhook(host, f"+{next(numbers)}", TEXT)

    return [
        Case("bare insert", bare, lambda: post(bare, "/api/bare", form)),
        Case("no wake", plain, different(plain)),
        Case("wake sent to another process", sending, different(sending)),
        Case("the same, one hot conversation", sending, lambda: webhook(sending, "+31611111111", TEXT)),
        Case("wake queue in this process", together, different(together)),
        Case("AI vendor's event", plain, lambda: vendor_event(plain, SOURCE, secret)),
    ]


def _source(lab: Lab, database: str, key: str) -> str:
    """A source and one endpoint that wants its events; the source's secret."""
    connection = lab.connect(database)
    connection.execute(ADD_ENDPOINT)
    wanted = NewSource(name=SOURCE, scheme="standard")
    return sources.add(connection, wanted, vault=Vault([base64.b64decode(key)]), who="bench").secret


def _take_turns(sender: Sender, cases: list[Case], rounds: int, *, keep: bool = True) -> None:
    for number in range(rounds):
        turn = number % len(cases)
        # Back to back only without wakes: in one process the work for one wake would fall into the next request.
        for pause, taking_part in ((APART_SECONDS, cases), (0.0, cases[:2])):
            for case in taking_part[turn:] + taking_part[:turn]:
                took = sender.one_by_one(case.url, [case.request() for _ in range(BATCH)], pause)
                if keep:
                    (case.apart if pause else case.together).append(percentile(took, 0.5) * 1000)
                time.sleep(0.1)  # what a batch left behind shall not be counted to the next


def _figures(bare: Case, *cases: Case) -> Iterator[Figure]:
    def figure(what: str, took: list[float], baseline: list[float], goal: Goal | None) -> Figure:
        return Figure(
            "acknowledge", what, Spread.of(took), "ms", Spread.of(baseline), ratios(took, baseline), goal
        )  # fmt: skip

    for case in cases:
        yield figure(f"p50 one at a time, {case.what}", case.apart, bare.apart, Goal(1.3, "ratio"))
    for case in cases:
        if case.together:
            yield figure(f"p50 back to back, {case.what}", case.together, bare.together, Goal(1.3, "ratio"))
    for case in cases:
        yield figure(f"p99 at {RATE} a second, {case.what}", case.tails, bare.tails, Goal(25.0))


def _event_figures(message: Case, event: Case) -> Iterator[Figure]:
    """One delivery and job are made for the event, as one job is for the message."""
    yield Figure(
        "acknowledge", "p50 one at a time, AI vendor's event against a WhatsApp message", Spread.of(event.apart), "ms",
        Spread.of(message.apart), ratios(event.apart, message.apart), Goal(1.5, "ratio"),
    )  # fmt: skip
    yield Figure(
        "acknowledge", f"p99 at {RATE} a second, AI vendor's event", Spread.of(event.tails), "ms",
        Spread.of(message.tails), ratios(event.tails, message.tails), Goal(25.0),
    )  # fmt: skip


def main() -> None:
    """Measure and print."""
    alone(measure)


if __name__ == "__main__":
    main()
