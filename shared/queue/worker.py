"""Runs jobs: claims what is due, runs it in parallel, records the verdict, and rescues what others left behind."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import psycopg

from shared import backoff, telemetry
from shared.db.pool import Database
from shared.errors import DatabaseAway
from shared.queue import store
from shared.queue.heartbeat import Heartbeat
from shared.queue.job import Job, JobType
from shared.queue.outcome import Outcomes

RESCUE_EVERY_SECONDS = 1.0
SLOT_WAIT_SECONDS = 1.0
LINGER_SECONDS = 3.0  # a drain that finds nothing due waits for what falls due within this time
GIVE_BACK_AFTER_SECONDS = 6.0  # of a planned stop: what has not ended by then is given back


@dataclass(frozen=True, slots=True)
class Limits:
    """How much runs at once in this process, and for how long (seconds; the threshold in milliseconds)."""

    concurrency: int = 8
    lease_seconds: float = 30.0
    job_max_seconds: float = 60.0
    slow_job_threshold_ms: int = 8000


class Worker:
    """The one worker of a process; timer and wake slots share its semaphore.

    `wake` is called with seconds whenever a job will be due, after the commit that made it so.
    """

    def __init__(
        self, database: Database, types: Mapping[str, JobType], wake: Callable[[float], None], limits: Limits
    ) -> None:
        self._database = database
        self._types = dict(types)
        self._limits = limits
        self._slots = threading.BoundedSemaphore(limits.concurrency)
        self._heartbeat = Heartbeat(database, limits.lease_seconds, limits.job_max_seconds)
        self._stopping = threading.Event()
        self._running: dict[object, Job] = {}
        self._running_lock = threading.Lock()
        self._rescued_at = 0.0
        self._outcomes = Outcomes(database, self._types, wake, limits.lease_seconds, self._stopping)

    @property
    def is_stopping(self) -> bool:
        """Whether a planned stop has begun."""
        return self._stopping.is_set()

    def poll_once(self, concurrency: int) -> int:
        """Claim at most `concurrency` due jobs, run them in parallel, and return how many there were.

        All its threads have ended when it returns. Raises DatabaseAway or psycopg.Error when nothing could be claimed.
        """
        with self._heartbeat.running():
            taken = self._take(concurrency, patient=False)
            jobs = self._claim(taken) if taken else []
            if len(jobs) == 1:
                self._run(jobs[0])
            elif jobs:
                with ThreadPoolExecutor(len(jobs), "job") as pool:
                    list(pool.map(self._run, jobs))
            return len(jobs)

    def drain(self, concurrency: int, seconds: float) -> int:
        """Keep `concurrency` slots full until nothing is due or falls due soon, or `seconds` are spent.

        Returns how many jobs ran; all its threads have ended by then. Never raises for the database's faults: it backs off
        and goes on, and the next drain finds what is left.
        """
        ends, ran, failures = time.monotonic() + seconds, 0, 0
        with self._heartbeat.running(), ThreadPoolExecutor(concurrency, "job") as pool:
            running: set[Future[None]] = set()
            while not self._stopping.is_set() and time.monotonic() < ends:
                try:
                    taken = self._take(concurrency - len(running), patient=not running)
                    jobs = self._claim(taken) if taken else []
                    failures = 0
                    ran += len(jobs)
                    running |= {pool.submit(self._run, job) for job in jobs}
                    if taken and not running and not self._linger(ends):
                        break
                except (DatabaseAway, psycopg.Error) as away:
                    failures += 1
                    telemetry.warning("poll_failed", error_class=type(away).__name__, failures=failures)
                    self._stopping.wait(min(backoff.reconnect(failures, random.random()), ends - time.monotonic()))
                if running:
                    _done, running = wait(running, timeout=RESCUE_EVERY_SECONDS, return_when=FIRST_COMPLETED)
            wait(running)
        return ran

    def stop(self) -> None:
        """A planned stop: take no more jobs; what has not ended in six seconds is given back, its attempt uncounted."""
        if not self._stopping.is_set():
            self._stopping.set()
            threading.Thread(target=self._give_back, name="give-back", daemon=True).start()

    def _take(self, size: int, *, patient: bool) -> int:
        """Take free slots of this process, at most `size`; how many there were.

        A patient caller that finds none waits for one, a second at most: so a wake message stays in hand, and the ones behind
        it in the queue, whose length is what the platform scales by, until this process can do something for it.
        """
        taken = 0
        while taken < size and self._slots.acquire(blocking=False):
            taken += 1
        if not taken and patient and self._slots.acquire(timeout=SLOT_WAIT_SECONDS):
            taken = 1
        return taken

    def _claim(self, taken: int) -> list[Job]:
        """Claim a job for each slot that was taken; each of them holds its slot until `_run` ends."""
        jobs: list[Job] = []
        try:
            self._rescue()
            with self._database.connection() as connection:
                jobs = store.claim(connection, taken, list(self._types), self._limits.lease_seconds)
        finally:
            for _ in range(taken - len(jobs)):
                self._slots.release()
        for job in jobs:
            self._heartbeat.hold(job)
        return jobs

    def _run(self, job: Job) -> None:
        began = time.monotonic()
        with self._running_lock:
            self._running[job.lease_token] = job
        try:
            self._outcomes.run(job)
        finally:
            self._heartbeat.release(job)
            with self._running_lock:
                self._running.pop(job.lease_token, None)
            self._slots.release()
            took = round((time.monotonic() - began) * 1000)
            if took > self._limits.slow_job_threshold_ms:
                telemetry.warning("slow_job", job_id=job.id, type=job.type, attempt=job.attempts, duration_ms=took)

    def _linger(self, ends: float) -> bool:
        """Wait for what falls due soon; False when nothing does."""
        with self._database.connection() as connection:
            due = store.next_due(connection, list(self._types))
        if due is None or due > min(LINGER_SECONDS, ends - time.monotonic()):
            return False
        # An overdue job that was not claimed is locked by somebody or waits for a free slot: not ours to spin for.
        if due < -0.05:
            return False
        self._stopping.wait(max(due, 0.001))
        return True

    def _rescue(self) -> None:
        """Take care of expired leases, at most once a second in this process."""
        now = time.monotonic()
        if now - self._rescued_at < min(RESCUE_EVERY_SECONDS, self._limits.lease_seconds / 2):
            return
        self._rescued_at = now
        with self._database.connection() as connection:
            rescued = store.rescue(connection)
            poisoned = store.poisoned(connection, list(self._types))
            overaged = [
                job
                for job_type in self._types.values()
                for job in store.claim_overaged(
                    connection, job_type.name, job_type.policy.age_limit, self._limits.lease_seconds
                )
            ]
        if rescued:
            telemetry.warning("jobs_rescued", count=rescued)
        for job in poisoned:
            self._outcomes.bury_poisoned(job)
        for job in overaged:
            self._outcomes.bury_overaged(job)

    def _give_back(self) -> None:
        deadline = time.monotonic() + GIVE_BACK_AFTER_SECONDS
        while self._running and time.monotonic() < deadline:
            time.sleep(0.05)
        with self._running_lock:
            left = list(self._running.values())
        for job in left:
            with contextlib.suppress(Exception):  # the lease ends by itself; the process is ending
                self._outcomes.give_back(job)
