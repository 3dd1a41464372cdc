"""Ours: the real Worker, woken in its own process as the wake queue's slots wake it."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from bench.peers.asked import SETTLE_SECONDS, WARM_UP, Asked, Progress, gap, tell
from shared.db.pool import Database
from shared.queue import store
from shared.queue.job import Complete, Job, JobType, Lease, Verdict
from shared.queue.worker import Limits, Worker

NAME = "bench"
CONNECTIONS = 4  # as DB_POOL_MAX is by default
WAKE_SECONDS = 120.0


def enqueue(database: Database) -> None:
    """One job, committed by itself."""
    with database.connection() as connection:
        store.enqueue(connection, {"type": NAME})


def work(asked: Asked, database: Database) -> None:
    """Drain as the timer does, again and again."""
    progress = Progress(asked.count)
    settings: dict[str, Any] = asked.settings or {}
    concurrency = settings.get("concurrency", Limits().concurrency)

    def run(job: Job, lease: Lease) -> Verdict:
        del job, lease
        progress.ran()
        if asked.job_seconds:
            time.sleep(asked.job_seconds)
        return Complete()

    worker = Worker(database, {NAME: JobType(NAME, run)}, lambda _: None, Limits(concurrency))
    while True:
        worker.drain(concurrency, WAKE_SECONDS)
        time.sleep(0.01)


def pickup(asked: Asked, database: Database) -> list[float]:
    """Seconds from each call to its job's beginning; a wake is one slot, as a message of the wake queue is."""
    began, took = 0.0, []
    picked_up = threading.Event()
    wakes: queue.SimpleQueue[float] = queue.SimpleQueue()

    def run(job: Job, lease: Lease) -> Verdict:
        del job, lease
        took.append(time.perf_counter() - began)
        picked_up.set()
        return Complete()

    def slot() -> None:
        while True:
            wakes.get()
            worker.drain(1, WAKE_SECONDS)

    worker = Worker(database, {NAME: JobType(NAME, run)}, wakes.put, Limits())
    for _ in range(Limits().concurrency):
        threading.Thread(target=slot, daemon=True).start()
    time.sleep(SETTLE_SECONDS)
    for _ in range(WARM_UP + asked.count):
        picked_up.clear()
        began = time.perf_counter()
        enqueue(database)
        wakes.put(0.0)
        picked_up.wait()
        time.sleep(gap())
    return took[WARM_UP:]


def main() -> None:
    """Do what the command line asks; the tables are there already."""
    asked = Asked.from_arguments()
    database = Database(asked.url, CONNECTIONS)
    match asked.what:
        case "enqueue":
            enqueue(database)
            began = time.perf_counter()
            for _ in range(asked.count):
                enqueue(database)
            tell(seconds=time.perf_counter() - began)
        case "work":
            work(asked, database)
        case "pickup":
            tell(seconds=pickup(asked, database))
    database.close()


if __name__ == "__main__":
    main()
