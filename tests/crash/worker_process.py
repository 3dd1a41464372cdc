"""A worker in a process of its own, for tests that kill or freeze it: `python -m tests.crash.worker_process URL TYPE …`.

It drains jobs of one type. A job's payload says what it does: `dies` (SIGKILL in the middle), `takes` (seconds), `waits` (until a
line comes in on stdin), `ends` (its verdict). It kills itself at a boundary if it is given one.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time

from shared.boundary import Boundary
from shared.db.pool import Database
from shared.errors import LeaseLost, PermanentError, TransientError
from shared.queue.job import Complete, Continue, Job, JobType, Lease, Snooze, Verdict, Write
from shared.queue.worker import Limits, Worker

LEASE_SECONDS = 20.0  # none ends by itself on a busy machine: the tests end them
NOTE = "INSERT INTO audit_log (who, what, target_type, target_id) VALUES ('worker', %(what)s, 'job', %(id)s)"

_woken = threading.Event()


def note(job: Job, what: str) -> Write:
    """A write that a test can count."""
    return Write(NOTE, {"what": what, "id": job.id})


def run(job: Job, lease: Lease) -> Verdict:
    """What the payload says."""
    time.sleep(job.payload.get("takes", 0.0))
    if job.payload.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    if job.payload.get("waits"):
        sys.stdout.write(f"in {job.id}\n")
        sys.stdout.flush()
        _woken.wait()
    match job.payload.get("ends"):
        case "written":
            return Complete([note(job, "written")])
        case "continued":
            return Continue([note(job, "continued")])
        case "snoozed":
            return Snooze(1.0, "not yet")
        case "retried":
            raise TransientError("flaky", "not now")
        case "buried":
            raise PermanentError("broken", "never")
        case "in a transaction":
            with lease.transaction() as connection:
                connection.execute(NOTE, {"what": "in a transaction", "id": job.id})
        case "insisting":
            lease.insist(note(job, "insisting"))
        case "in a transaction, unmoved":
            try:
                lease.insist(note(job, "unmoved"))
            except LeaseLost:
                return Complete([note(job, "unmoved")])
    return Complete()


def main() -> None:
    """Drain until killed."""
    url, name, *boundary = sys.argv[1:]
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)

    def checkpoint(passed: Boundary) -> None:
        if passed in boundary:
            os.kill(os.getpid(), signal.SIGKILL)

    def listen() -> None:
        sys.stdin.readline()
        _woken.set()

    threading.Thread(target=listen, daemon=True).start()
    types = {name: JobType(name, run, on_bury=lambda job, failure: [note(job, "buried")])}
    worker = Worker(Database(url, 6), types, lambda _: None, Limits(lease_seconds=LEASE_SECONDS), checkpoint)
    while True:
        worker.drain(8, 5)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
