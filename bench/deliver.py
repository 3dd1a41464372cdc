"""Deliveries a second beside the bare HTTP client; what a hundred endpoints notice of five that hang; a replay at a rate.

`python -m bench.deliver --quick` does less of each. The worker is a process of its own, with the timer's slots and one for each
wake message, as on the platform; so is the receiver.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from typing import TYPE_CHECKING
from uuid import UUID

from bench.figures import Figure, Goal, Spread, percentile, ratios
from bench.lab import NOBODY, BenchFailed, Lab, environment, wait_until
from bench.receiver import Receiver
from bench.report import alone
from local.host_process import ROOT
from shared.app import App
from shared.clients.guard import Guard
from shared.db.pool import Conn
from shared.secrets import Vault
from shared.settings import load
from shared.webhooks import endpoints
from shared.webhooks.endpoint_settings import EndpointSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

CONCURRENCY = 8
WAKES_IN_HAND = 15  # batchSize and newBatchThreshold of host.json
KEY = b"k" * 32
BODY = b'{"data":{"id":"resp_0123456789"},"id":"evt_0123456789abcdef","type":"response.completed"}'
GOOD, HANGING = 95, 5
HANGS_SECONDS = 5.0

ADD_EVENTS = """
    WITH made AS MATERIALIZED (
        SELECT n, gen_random_uuid() AS event, gen_random_uuid() AS delivery, gen_random_uuid() AS job
        FROM generate_series(1, %(count)s) n
    ), event AS (
        INSERT INTO webhook_events (id, type, subject, occurred_at, data, body)
        SELECT event, 'bench', n::text, now(), '{}', %(body)s FROM made
    ), delivery AS (
        INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state)
        SELECT delivery, event, %(endpoint)s, job, %(state)s FROM made
    )
    INSERT INTO ai_jobs (id, payload, max_attempts, status, attempts, claims)
    SELECT job, jsonb_build_object('type', 'deliver_event', 'delivery_id', delivery), 8,
        CASE %(state)s WHEN 'dead' THEN 'failed' ELSE 'pending' END,
        CASE %(state)s WHEN 'dead' THEN 8 ELSE 0 END, CASE %(state)s WHEN 'dead' THEN 8 ELSE 0 END
    FROM made ORDER BY n
"""
LEFT = "SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing')"
UNDELIVERED = """
    SELECT count(*) FROM webhook_deliveries WHERE state = 'waiting' AND endpoint_id = ANY (%(endpoints)s)
"""
LATENCIES = """
    SELECT extract(epoch FROM delivered_at - created_at)::float8 FROM webhook_deliveries
    WHERE endpoint_id = ANY (%(endpoints)s) AND state = 'delivered'
"""
# By when the attempts began, not by the plan.
ACHIEVED = """
    SELECT count(*), ((count(*) - 1) / extract(epoch FROM max(started) - min(started)))::float8
    FROM webhook_attempts WHERE run = 2 AND outcome = 'delivered'
"""
FORGET = "TRUNCATE webhook_deliveries, webhook_events, webhook_attempts, webhook_receipts, ai_jobs, job_attempts, replays CASCADE"
WELL = "UPDATE webhook_endpoints SET failures_in_row = 0, open_until = NULL, promised_until = '-infinity', pulled_until = NULL"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each: deliveries of a round, events of a round to a hundred endpoints, dead letters, and their rate."""

    rounds: int
    deliveries: int
    events: int
    every_seconds: float
    dead: int
    rate: float
    live: int


FULL = Sizes(rounds=5, deliveries=5000, events=3000, every_seconds=0.01, dead=50_000, rate=200.0, live=400)
QUICK = Sizes(rounds=2, deliveries=1000, events=500, every_seconds=0.01, dead=1000, rate=100.0, live=60)


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about ten minutes."""
    return _measure(note, FULL)


def quick(note: Callable[[str], None]) -> list[Figure]:
    """The same with less of each; about a minute."""
    return _measure(note, QUICK)


def _measure(note: Callable[[str], None], sizes: Sizes) -> list[Figure]:
    with Lab() as lab, Receiver() as receiver:
        url = lab.database("deliver")
        site = _Site(lab.connect(url), url, receiver.url)
        return [*_throughput(note, site, sizes), *_isolation(note, site, sizes), *_replay(note, site, sizes)]


@dataclass(frozen=True, slots=True)
class _Site:
    connection: Conn
    url: str
    receiver: str

    @property
    def environment(self) -> dict[str, str]:
        key = base64.b64encode(KEY).decode()
        changes = {"SECRETS_KEY": key, "OUTBOUND_ALLOW_HOSTS": "127.0.0.1", "AzureWebJobsStorage": ""}
        return environment(self.url, NOBODY, changes)

    def endpoint(self, name: str, path: str, *, timeout: float = 15.0, concurrency: int = 64) -> UUID:
        wanted = EndpointSettings(
            url=f"{self.receiver}/{path}", events=("none",), concurrency=concurrency, timeout_seconds=timeout
        )
        guard = Guard(("127.0.0.1",))
        return endpoints.add(self.connection, name, wanted, guard=guard, vault=Vault([KEY]), who="bench").id

    def add(self, endpoint: UUID, count: int = 1, state: str = "waiting") -> None:
        self.connection.execute(ADD_EVENTS, {"endpoint": endpoint, "count": count, "state": state, "body": BODY})

    def count(self, sql: str, **parameters: object) -> int:
        row = self.connection.execute(sql.encode(), parameters).fetchone()
        assert row is not None
        return int(row[0])

    def latencies(self, of: list[UUID]) -> list[float]:
        return [float(row[0]) for row in self.connection.execute(LATENCIES, {"endpoints": of})]

    @contextmanager
    def working(self) -> Iterator[SimpleQueue[bool]]:
        """A worker's process; what is put into the queue wakes it."""
        processes = get_context("spawn")
        wakes: SimpleQueue[bool] = processes.SimpleQueue()
        worker = processes.Process(target=_work, args=(self.environment, wakes))
        worker.start()
        try:
            yield wakes
        finally:
            for _ in range(WAKES_IN_HAND):
                wakes.put(False)
            worker.join(60)


def _throughput(note: Callable[[str], None], site: _Site, sizes: Sizes) -> list[Figure]:
    """Deliveries beside the same requests by httpx2 alone, with as many threads."""
    endpoint = site.endpoint("fast", "fast")
    app = App(load(site.environment))
    bare, ours = [], []
    try:
        for number in range(sizes.rounds + 1):  # the first is the warm-up
            note(f"deliver: {sizes.deliveries:,} deliveries beside the bare client, round {number} of {sizes.rounds} …")
            bare.append(_bare(f"{site.receiver}/fast", sizes.deliveries))
            site.add(endpoint, sizes.deliveries)
            began = time.monotonic()
            app.worker.drain(CONCURRENCY, 300.0)
            ours.append(sizes.deliveries / (time.monotonic() - began))
            if site.count(LEFT):
                raise BenchFailed("Some deliveries were left.")
            site.connection.execute(FORGET)
    finally:
        app.close()
    name = f"deliveries to a fast receiver, {CONCURRENCY} at once, beside httpx2 alone"
    ratio = ratios(ours[1:], bare[1:])
    return [
        Figure(
            "deliver", name, Spread.of(ours[1:]), "/s", Spread.of(bare[1:]), ratio, Goal(0.5, "ratio", at_least=True)
        )
    ]


def _bare(url: str, count: int) -> float:
    """Requests a second by the HTTP library alone."""
    import httpx2

    headers = {
        "content-type": "application/json",
        "webhook-id": "evt_1",
        "webhook-timestamp": "1",
        "webhook-signature": "v1,x",
    }
    with httpx2.Client() as client, ThreadPoolExecutor(CONCURRENCY) as pool:

        def post(many: int) -> None:
            for _ in range(many):
                client.post(url, content=BODY, headers=headers).raise_for_status()

        began = time.monotonic()
        for done in [pool.submit(post, count // CONCURRENCY) for _ in range(CONCURRENCY)]:
            done.result()
        return count / (time.monotonic() - began)


def _isolation(note: Callable[[str], None], site: _Site, sizes: Sizes) -> list[Figure]:
    """A hundred endpoints, events at an even pace: what the 95 notice when the other five never answer."""
    good = [site.endpoint(f"good-{n}", f"good-{n}", concurrency=4) for n in range(GOOD)]
    same = [site.endpoint(f"same-{n}", f"same-{n}", concurrency=4) for n in range(HANGING)]
    hanging = [site.endpoint(f"hanging-{n}", f"hang-{n}", concurrency=4, timeout=HANGS_SECONDS) for n in range(HANGING)]
    without: list[float] = []
    beside: list[float] = []
    for number in range(sizes.rounds):
        for others, found in ((same, without), (hanging, beside)):
            note(f"deliver: 100 endpoints, {'5 hang' if others is hanging else 'all well'}, round {number + 1} …")
            with site.working() as wakes:
                _at_pace(site, wakes, [*good, *others], sizes)
                wait_until(
                    lambda: not site.count(UNDELIVERED, endpoints=good), "the deliveries to those that are well", 120
                )
                found.append(percentile(site.latencies(good), 0.95) * 1000)
            site.connection.execute(FORGET)
            site.connection.execute(WELL)
    name = "event to accepted, p95 of 95 endpoints, beside 5 that hang"
    return [
        Figure(
            "deliver", name, Spread.of(beside), "ms", Spread.of(without), ratios(beside, without), Goal(1.2, "ratio")
        )
    ]


def _at_pace(site: _Site, wakes: SimpleQueue[bool], to: list[UUID], sizes: Sizes) -> None:
    site.add(to[0])  # the worker's start is none of what is measured
    wait_until(lambda: not site.count(LEFT), "the worker to begin")
    site.connection.execute(FORGET)
    begins = time.monotonic()
    for number in range(sizes.events):
        time.sleep(max(begins + number * sizes.every_seconds - time.monotonic(), 0.0))
        site.add(to[number % len(to)])
        wakes.put(True)


def _replay(note: Callable[[str], None], site: _Site, sizes: Sizes) -> list[Figure]:
    """Dead deliveries, replayed by the command at a rate, and the latency of new events meanwhile."""
    old, new = site.endpoint("old", "old"), site.endpoint("new", "new")
    alone_, beside = [], []
    with site.working() as wakes:
        note(f"deliver: {sizes.live} new events alone, {sizes.rounds} rounds …")
        alone_ = [_live(site, wakes, new, sizes) for _ in range(sizes.rounds)]
        site.connection.execute(FORGET)
        site.add(old, sizes.dead, "dead")
        site.connection.execute("VACUUM ANALYZE")
        note(f"deliver: {sizes.dead:,} dead deliveries at {sizes.rate:g} a second …")
        command = _start_replay(site, sizes.rate)
        wait_until(
            lambda: site.count("SELECT coalesce(sum(restarted), 0) FROM replays") > sizes.rate, "the replay to begin"
        )
        beside = [_live(site, wakes, new, sizes) for _ in range(sizes.rounds)]
        if command.wait(sizes.dead / sizes.rate * 3 + 30):
            raise BenchFailed("The replaying command failed.")
        wait_until(lambda: not site.count(LEFT), "the last deliveries", 120)
    row = site.connection.execute(ACHIEVED).fetchone()
    assert row is not None
    if row[0] != sizes.dead:
        raise BenchFailed(f"{row[0]} of {sizes.dead} dead deliveries arrived.")
    what = f"a replay of {sizes.dead:,} at {sizes.rate:g}/s"
    single = [percentile(found, 0.95) * 1000 for found in alone_]
    busy = [percentile(found, 0.95) * 1000 for found in beside]
    return [
        Figure("deliver", f"rate achieved, {what}", Spread.of([row[1]]), "/s"),
        Figure("deliver", "how far that is off", Spread.of([abs(1 - row[1] / sizes.rate) * 100]), "%", goal=Goal(2.0)),
        Figure("deliver", f"new event to accepted, p95, beside {what}", Spread.of(busy), "ms", Spread.of(single),
               ratios(busy, single)),
    ]  # fmt: skip


def _live(site: _Site, wakes: SimpleQueue[bool], endpoint: UUID, sizes: Sizes) -> list[float]:
    """New events at an even pace; how long each took to be accepted, in seconds."""
    before = len(site.latencies([endpoint]))
    begins = time.monotonic()
    for number in range(sizes.live):
        time.sleep(max(begins + number * 0.05 - time.monotonic(), 0.0))
        site.add(endpoint)
        wakes.put(True)
    wait_until(lambda: len(site.latencies([endpoint])) == before + sizes.live, "the new events to arrive")
    return site.latencies([endpoint])[before:]


def _start_replay(site: _Site, rate: float) -> subprocess.Popen[bytes]:
    """The command, as a person would give it."""
    command = ["dlq", "replay", "--type", "deliver_event", "--rate", f"{rate:g}", "--reason", "the bench"]
    settings = {"DATABASE_URL": site.url, "AzureWebJobsStorage": "", "AZURE_OPENAI_ENDPOINT": NOBODY}
    return subprocess.Popen(
        [sys.executable, "-m", "cli", *command], cwd=ROOT, env=os.environ | settings,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _work(settings: dict[str, str], wakes: SimpleQueue[bool]) -> None:
    """The worker's process: the timer's slots, and one slot for each wake message."""
    app = App(load(settings))
    ended = threading.Event()

    def timer() -> None:
        while not ended.wait(1.0):
            app.worker.drain(CONCURRENCY, 55.0)

    def slot() -> None:
        while wakes.get():
            app.worker.drain(1, 120.0)

    with ThreadPoolExecutor(WAKES_IN_HAND + 1) as pool:
        slots = [pool.submit(slot) for _ in range(WAKES_IN_HAND)]
        pool.submit(timer)
        for done in slots:
            done.result()
        ended.set()
        app.stop()
    app.close()


def main() -> None:
    """Measure and print."""
    alone(quick if "--quick" in sys.argv[1:] else measure)


if __name__ == "__main__":
    main()
