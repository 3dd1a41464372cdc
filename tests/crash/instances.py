"""Two instances at work on one database, in this process, while a test takes the database away from them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

import psycopg

from shared.db.pool import Database
from shared.queue import store
from shared.queue.job import Complete, Job, JobType, Lease, Verdict, Write
from shared.queue.worker import Limits, Worker
from tests.fakes.eventually import eventually

TYPE = "embed_record"
JOBS = 80
LEASE = 2.0  # seconds; who comes back first leaves the others half of it to renew theirs
JOB = 0.05
MAKE_EFFECTS = """
    CREATE TABLE effects (job uuid NOT NULL, part text NOT NULL, weight text NOT NULL DEFAULT '', PRIMARY KEY (job, part))
"""


class Instances:
    """Two instances, and jobs that write in the middle and at their end."""

    def __init__(self, url: str, *, lease_seconds: float = LEASE) -> None:
        self.url = url
        self.ran: list[UUID] = []
        self.pools = [Database(url, 3) for _ in range(2)]
        types = {TYPE: JobType(TYPE, self.work)}
        self.workers = [Worker(pool, types, lambda _: None, Limits(4, lease_seconds)) for pool in self.pools]
        with self.administrator() as connection:
            connection.execute("TRUNCATE ai_jobs, job_attempts, message_events, effects CASCADE")

    @contextmanager
    def administrator(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self.url, autocommit=True, options="-c statement_timeout=0") as found:
            found.execute("SET default_transaction_read_only = off")
            found.execute("SET deadlock_timeout = '250ms'")  # the others notice most deadlocks first
            yield found

    def work(self, job: Job, lease: Lease) -> Verdict:
        with lease.transaction() as connection:
            connection.execute(
                "INSERT INTO effects (job, part) VALUES (%(job)s, 'middle') ON CONFLICT DO NOTHING", {"job": job.id}
            )
        self.ran.append(job.id)
        time.sleep(JOB)  # the job's own work
        return Complete([Write("INSERT INTO effects (job, part) VALUES (%(job)s, 'end')", {"job": job.id})])

    def run(self, strike: Callable[[], object], jobs: int = JOBS) -> None:
        """Run jobs; when a few have run, strike; then wait until all is done, by the same two drains."""
        with self.administrator() as connection:
            added = [store.enqueue(connection, {"type": TYPE, "n": n}) for n in range(jobs)]
        stop = threading.Event()

        def drains(worker: Worker) -> None:
            while not stop.is_set():  # the timer
                worker.drain(4, 20)
                stop.wait(0.1)

        with ThreadPoolExecutor(2) as hosts:
            working = [hosts.submit(drains, worker) for worker in self.workers]
            try:
                eventually(lambda: len(self.ran) > jobs // 8)
                strike()
                eventually(lambda: self.left() == 0, what="the end of all jobs")
            finally:
                stop.set()
            for worked in working:
                worked.result(30)
        with self.administrator() as connection:
            done = connection.execute("SELECT id, status, attempts, error_class FROM ai_jobs ORDER BY seq").fetchall()
            effects = Counter(connection.execute("SELECT job, part FROM effects").fetchall())
            outcomes = Counter(connection.execute("SELECT outcome, error_class FROM job_attempts").fetchall())
        assert done == [(job, "done", 1, None) for job in added]
        assert set(effects) == {(job, part) for job in added for part in ("middle", "end")}
        assert outcomes.pop(("done", None)) == jobs
        assert set(outcomes) <= {("snoozed", "database"), ("returned", None), ("crashed", "crashed")}, outcomes

    def left(self) -> int:
        try:
            with self.administrator() as connection:
                row = connection.execute("SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing')")
                return int((row.fetchone() or (0,))[0])
        except psycopg.Error:
            return -1

    def close(self) -> None:
        for pool in self.pools:
            pool.close()
