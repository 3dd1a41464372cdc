"""Acknowledging a webhook, against a bare single-row insert through the same host, the same pool and the same cluster.

The job types rest meanwhile: jobs are stored and wakes are sent, but no job competes for the processor. One after another over
a kept connection the ratio of the medians is measured, in batches that take turns; at 200 a second the tail is.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench.figures import Figure, Goal, Spread, percentile, ratios
from bench.lab import REST, Lab
from bench.load import Connection, OpenLoop, one_by_one, post, webhook
from bench.report import alone
from local.host_process import ROOT

ROUNDS, WARM_UP, BATCH = 15, 3, 60
RATE, RATE_SECONDS, RATE_ROUNDS = 200, 10, 2
TEXT = "Hoeveel vakantie-uren heb ik als ik fulltime werk?"
CREATE_BARE = "CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL)"
BASELINE_APP = ROOT / "bench" / "baseline_app"


@dataclass(slots=True)
class Case:
    """One host under one kind of load; `request` makes the next one."""

    what: str
    url: str
    request: Callable[[], bytes]
    medians: list[float] = field(default_factory=list)
    tails: list[float] = field(default_factory=list)
    slowest: list[float] = field(default_factory=list)


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about a minute and a half."""
    with Lab() as lab, OpenLoop() as loop:
        bare, *cases = _cases(lab)
        note(f"acknowledge: {ROUNDS} rounds one after another …")
        _take_turns([bare, *cases])
        note(f"acknowledge: {RATE} a second for {RATE_SECONDS} s, {RATE_ROUNDS} rounds …")
        for _ in range(RATE_ROUNDS):
            for case in (bare, *cases):
                requests = [case.request() for _ in range(RATE * RATE_SECONDS)]
                took = [seconds * 1000 for seconds in loop.run(case.url, requests, RATE)]
                case.tails.append(percentile(took, 0.99))
                case.slowest.append(max(took))
                time.sleep(0.5)
        return list(_figures(bare, cases))


def _cases(lab: Lab) -> list[Case]:
    url = lab.database("antwoord")
    connection = lab.connect(url)
    connection.execute(CREATE_BARE)
    connection.execute(REST)
    baseline = lab.host(url, "--no-timer", "--no-wake", app=BASELINE_APP).url
    plain = lab.host(url, "--no-timer", "--no-wake").url
    waking = lab.host(url, "--no-timer", "--queue-standin").url
    numbers = itertools.count(31_600_000_000)
    form = webhook(baseline, "+31600000000", TEXT).partition(b"\r\n\r\n")[2]

    def different(host: str) -> Callable[[], bytes]:
        return lambda: webhook(host, f"+{next(numbers)}", TEXT)

    return [
        Case("bare insert", baseline, lambda: post(baseline, "/api/bare", form)),
        Case("no wake", plain, different(plain)),
        Case("wake in one process", waking, different(waking)),
        Case("no wake, one hot conversation", plain, lambda: webhook(plain, "+31611111111", TEXT)),
        Case("wake, one hot conversation", waking, lambda: webhook(waking, "+31622222222", TEXT)),
    ]


def _take_turns(cases: list[Case]) -> None:
    connections = [Connection(case.url) for case in cases]
    for number in range(WARM_UP + ROUNDS):
        order = list(zip(cases, connections, strict=True))
        for case, connection in order[number % len(order) :] + order[: number % len(order)]:
            took = one_by_one(connection, [case.request() for _ in range(BATCH)])
            if number >= WARM_UP:
                case.medians.append(percentile(took, 0.5) * 1000)
            time.sleep(0.02)  # what a batch left behind (wakes) shall not be counted to the next
    for connection in connections:
        connection.__exit__(None, None, None)


def _figures(bare: Case, cases: list[Case]) -> Iterator[Figure]:
    for case in cases:
        yield Figure(
            "acknowledge", f"p50, {case.what}", Spread.of(case.medians), "ms", Spread.of(bare.medians),
            ratios(case.medians, bare.medians), Goal(1.3, "ratio"),
        )  # fmt: skip
    for case in cases:
        yield Figure(
            "acknowledge", f"p99 at {RATE} a second, {case.what}", Spread.of(case.tails), "ms",
            Spread.of(bare.tails), ratios(case.tails, bare.tails), Goal(25.0),
        )  # fmt: skip


def main() -> None:
    """Measure and print."""
    alone(measure)


if __name__ == "__main__":
    main()
