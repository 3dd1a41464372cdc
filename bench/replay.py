"""50,000 dead letters that do nothing, replayed by the command at a set rate; and what live jobs notice of it.

The worker is a process of its own, woken for each live job as a storage queue would; the command is another.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue

from bench.figures import Figure, Goal, Spread, ratios
from bench.lab import NOBODY, BenchFailed, Lab, wait_until
from bench.report import alone
from local.host_process import ROOT
from shared.db.pool import Conn, Database
from shared.queue.job import Complete, Job, JobType, Lease, Verdict
from shared.queue.worker import Limits, Worker

DEAD, RATE = 50_000, 500.0
LIVE, EVERY_SECONDS, ROUNDS = 400, 0.05, 3
CONCURRENCY, CONNECTIONS = 8, 4

ADD_TYPES = "INSERT INTO job_types (type, weight) VALUES ('dead', 1), ('live', 4)"
ADD_DEAD = """
    INSERT INTO ai_jobs (payload, status, attempts, claims) SELECT jsonb_build_object('type', 'dead', 'n', n), 'failed', 3, 3
    FROM generate_series(1, %(count)s) n
"""
ADD_LIVE = "INSERT INTO ai_jobs (payload) VALUES (jsonb_build_object('type', 'live', 'n', %(n)s::int))"
LEFT = "SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing')"
PICKED_UP = """
    SELECT extract(epoch FROM claimed_at - created_at)::float8 FROM ai_jobs WHERE type = 'live' AND claimed_at IS NOT NULL
    ORDER BY seq
"""
FORGET_LIVE = "DELETE FROM ai_jobs WHERE type = 'live'"
# By the claims, not by the plan: what the workers have seen.
ACHIEVED = """
    SELECT count(*), (count(*) - 1) / extract(epoch FROM max(claimed_at) - min(claimed_at))::float8
    FROM ai_jobs WHERE type = 'dead' AND run = 2 AND status = 'done'
"""
RESTARTED = "SELECT coalesce(sum(restarted), 0)::int FROM replays"


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about three minutes."""
    with Lab() as lab:
        url = lab.database("replay")
        connection = lab.connect(url)
        connection.execute(ADD_TYPES)
        connection.execute(ADD_DEAD, {"count": DEAD})
        connection.execute("VACUUM ANALYZE ai_jobs")
        processes = get_context("spawn")
        wakes: SimpleQueue[bool] = processes.SimpleQueue()
        worker = processes.Process(target=_work, args=(url, wakes))
        worker.start()
        try:
            note(f"replay: {LIVE:,} live jobs alone, {ROUNDS} rounds …")
            _live(connection, wakes, LIVE // 4)  # the warm-up
            alone_ = [_live(connection, wakes, LIVE) for _ in range(ROUNDS)]
            note(f"replay: {DEAD:,} dead letters, {RATE:g} a second …")
            command = _start_replay(url)
            wait_until(lambda: _number(connection, RESTARTED) > 2 * RATE, "the replay to begin")
            beside = [_live(connection, wakes, LIVE) for _ in range(ROUNDS)]
            if command.wait(DEAD / RATE * 3):
                raise BenchFailed("The replaying command failed.")
            wait_until(lambda: _number(connection, LEFT) == 0, "the last jobs to be done")
        finally:
            for _ in range(CONCURRENCY):
                wakes.put(False)
            worker.join(30)
        count, achieved = connection.execute(ACHIEVED).fetchall()[0]
    if count != DEAD:
        raise BenchFailed(f"{count} of {DEAD} dead letters ran.")
    off = abs(1 - achieved / RATE) * 100
    what = f"a replay of {DEAD:,} at {RATE:g}/s"
    return [
        Figure("replay", f"rate achieved, {what}", Spread.of([achieved]), "/s"),
        Figure("replay", "how far that is off", Spread.of([off]), "%", goal=Goal(2.0)),
        *(_pickup(share, alone_, beside, what) for share in (0.5, 0.95)),
    ]


def _pickup(share: float, alone_: list[list[float]], beside: list[list[float]], what: str) -> Figure:
    """The time from a live job's insert to its claim, beside the replay and without it."""
    single = [Spread.pooled([round_], share).middle * 1000 for round_ in alone_]
    busy = [Spread.pooled([round_], share).middle * 1000 for round_ in beside]
    name = f"pickup of live jobs, p{share * 100:.0f}, beside {what}"
    return Figure("replay", name, Spread.of(busy), "ms", Spread.of(single), ratios(busy, single))


def _live(connection: Conn, wakes: SimpleQueue[bool], count: int) -> list[float]:
    """Add live jobs at an even pace; how long each waited for its claim, in seconds."""
    connection.execute(FORGET_LIVE)
    begins = time.monotonic()
    for number in range(count):
        time.sleep(max(begins + number * EVERY_SECONDS - time.monotonic(), 0.0))
        connection.execute(ADD_LIVE, {"n": number})
        wakes.put(True)
    wait_until(lambda: len(connection.execute(PICKED_UP).fetchall()) == count, "the live jobs to be claimed")
    return [float(row[0]) for row in connection.execute(PICKED_UP)]


def _start_replay(url: str) -> subprocess.Popen[bytes]:
    """The command, as a person would give it."""
    command = ["dlq", "replay", "--type", "dead", "--rate", f"{RATE:g}", "--reason", "the bench"]
    environment = os.environ | {"DATABASE_URL": url, "AzureWebJobsStorage": "", "AZURE_OPENAI_ENDPOINT": NOBODY}
    return subprocess.Popen(
        [sys.executable, "-m", "cli", *command], cwd=ROOT, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _number(connection: Conn, sql: bytes | str) -> int:
    row = connection.execute(sql.encode() if isinstance(sql, str) else sql).fetchone()
    assert row is not None
    return int(row[0])


def _work(url: str, wakes: SimpleQueue[bool]) -> None:
    """The worker's process: the timer's slots, and one slot for each wake message."""
    database = Database(url, CONNECTIONS)
    types = {name: JobType(name, _nothing) for name in ("dead", "live")}
    worker = Worker(database, types, lambda _: None, Limits(CONCURRENCY))
    ended = threading.Event()

    def timer() -> None:
        while not ended.wait(1.0):
            worker.drain(CONCURRENCY, 55.0)

    def slot() -> None:
        while wakes.get():
            worker.drain(1, 120.0)

    with ThreadPoolExecutor(CONCURRENCY + 1) as pool:
        slots = [pool.submit(slot) for _ in range(CONCURRENCY)]
        pool.submit(timer)
        for done in slots:
            done.result()
        ended.set()
        worker.stop()
    database.close()


def _nothing(job: Job, lease: Lease) -> Verdict:
    del job, lease
    return Complete()


def main() -> None:
    """Measure and print."""
    alone(measure)


if __name__ == "__main__":
    main()
