"""Two workers with many short drains that leave each other what hangs: nothing is lost or kept."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from shared.db.pool import Conn, Database
from shared.errors import TransientError
from shared.queue import store
from shared.queue.job import Complete, Continue, Job, JobType, Lease, Snooze, Verdict
from shared.queue.policy import Policy
from shared.queue.worker import Limits, Worker
from tests.fakes.eventually import eventually

TYPE = "embed_record"
SECONDS = 1.5
DRAINS = 4
CONCURRENCY = 3
ALL_DUE = "UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending' RETURNING id"
STATES = "SELECT status, count(*) FROM ai_jobs GROUP BY 1"
ATTEMPTS_MISSING = """
    SELECT count(*) FROM ai_jobs j WHERE claims <> (SELECT count(*) FROM job_attempts a WHERE a.job_id = j.id)
"""


class Halves:
    """Makes ready, and records, every second job together."""

    def prepare(self, connection: Conn, jobs: Sequence[Job]) -> Mapping[UUID, object]:
        return {job.lease_token: "ready" for job in jobs[::2]}

    def record(self, connection: Conn, noted: Sequence[tuple[Job, Any]]) -> Collection[UUID]:
        return {job.lease_token for job, _ in noted[::2]}

    def record_alone(self, connection: Conn, job: Job, note: Any) -> None: ...


def run(job: Job, lease: Lease) -> Verdict:
    """Hangs for a moment, sometimes two, or not at all; fails, goes on or waits the first time, if it says so."""
    draw = random.Random(f"{job.payload['n']} {job.claims}")
    for _ in range(draw.choice([0, 1, 1, 1, 2])):
        with lease.waiting():
            time.sleep(draw.choice([0.002, 0.03, 0.06]))
    match job.payload["n"] % 8 if job.claims == 1 else None:
        case 0:
            raise TransientError("dropped", "the network", wait=0.0)
        case 1:
            return Continue()
        case 2:
            return Snooze(0.1, "a moment")
        case _:
            return Complete(note="kept" if job.payload["n"] % 2 else None)


def value(database: Database, sql: Any) -> Any:
    with database.connection() as connection:
        return connection.execute(sql).fetchall()


def test_nothing_is_lost_or_kept_however_drains_come_and_go(database: Database) -> None:
    types = {TYPE: JobType(TYPE, run, Policy(), together=Halves())}
    limits = Limits(CONCURRENCY, lease_seconds=30.0)
    workers = [Worker(database, types, lambda _: None, limits) for _ in range(2)]
    ends = time.monotonic() + SECONDS

    def drain(worker: Worker, seed: int) -> None:
        draw = random.Random(seed)
        while time.monotonic() < ends:
            worker.drain(1, draw.choice([0.05, 0.5]))

    with ThreadPoolExecutor(2 * DRAINS) as pool:
        drains = [pool.submit(drain, worker, seed) for worker in workers for seed in range(DRAINS)]
        number, draw = 0, random.Random(1)
        with database.dedicated() as feeding:
            while time.monotonic() < ends:
                for _ in range(draw.choice([1, 1, 4])):
                    number += 1
                    store.enqueue(feeding, {"type": TYPE, "n": number})
                time.sleep(0.01)
        for done in drains:
            done.result(60)
    # Every drain has ended: whatever was begun is recorded, and every slot is back.
    assert "processing" not in dict(value(database, STATES))
    assert value(database, ATTEMPTS_MISSING) == [(0,)]
    for worker in workers:
        assert not worker._heartbeat._held
        assert worker._drains._stays is None
        assert worker._slots.take(99) == CONCURRENCY
        worker._slots.release(CONCURRENCY)

    def is_all_done() -> bool:
        value(database, ALL_DUE)
        workers[0].drain(8, 10)
        return dict(value(database, STATES)) == ({"done": number} if number else {})

    eventually(is_all_done)
    eventually(lambda: not any(thread.name.startswith("job_") for thread in threading.enumerate()))
