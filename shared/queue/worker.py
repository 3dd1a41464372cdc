"""Runs jobs: claims what is due, runs it in parallel, records the verdict, and rescues what others left behind."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import psycopg

from shared import backoff, telemetry
from shared.boundary import Boundary, Checkpoint, pass_by
from shared.db.pool import Database
from shared.errors import DatabaseAway, shorten
from shared.queue import store, together
from shared.queue.crew import Crew
from shared.queue.drains import Drains
from shared.queue.heartbeat import Heartbeat
from shared.queue.job import Job, JobType
from shared.queue.outcome import Outcomes, Returned
from shared.queue.patience import Patience
from shared.queue.slots import LENDS_AFTER_SECONDS, LENT_AT_MOST, Slots

RESCUE_EVERY_SECONDS = 1.0
SLOT_WAIT_SECONDS = 1.0
LOOKS_EVERY_SECONDS = 0.02  # while jobs hang; by the process as a whole
LINGER_LOOKS_SECONDS = 0.05  # while nothing runs
LINGER_SECONDS = 3.0  # a drain that finds nothing due waits for what falls due within this time
OVERTIME_SECONDS = 60.0  # for which a drain that has only jobs that hang goes on with others
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

    `wake` is called with seconds whenever a job will be due, after the commit that made it so, and what it sends arrives
    `wakes_early` seconds before; `tick` about once a second while there is work, and may make jobs due (a replay).
    """

    def __init__(
        self,
        database: Database,
        types: Mapping[str, JobType],
        wake: Callable[[float], None],
        limits: Limits,
        checkpoint: Checkpoint = pass_by,
        tick: Callable[[], None] = lambda: None,
        wakes_early: float = 0.0,
    ) -> None:
        self._database = database
        self._types = dict(types)
        self._names = list(types)
        self._limits = limits
        self._checkpoint = checkpoint
        self._tick = tick
        self._wake = wake
        self._wakes_early = wakes_early
        self._slots = Slots(limits.concurrency)
        self._stopping = threading.Event()
        self._running: dict[object, Job] = {}
        self._running_lock = threading.Lock()
        self._drains = Drains[Returned](self._slots)
        self._patience = Patience(limits.lease_seconds, RESCUE_EVERY_SECONDS)
        self._heartbeat = Heartbeat(database, limits.lease_seconds, limits.job_max_seconds, self._patience)
        self._outcomes = Outcomes(database, self._types, wake, limits.lease_seconds, self._stopping, checkpoint)

    @property
    def is_stopping(self) -> bool:
        """Whether a planned stop has begun."""
        return self._stopping.is_set()

    def poll_once(self, concurrency: int) -> int:
        """Claim at most `concurrency` due jobs, run them in parallel, and return how many there were.

        All is recorded and its threads have ended when it returns. Raises DatabaseAway or psycopg.Error when nothing could be
        claimed.
        """
        with self._heartbeat.running():
            self._rescue()
            taken = self._slots.take(concurrency)
            jobs = self._turn((), taken) if taken else ()
            with Crew[Returned](max(len(jobs), 1)) as crew:
                self._hand(crew, jobs)
                self._settle(crew, [])
            return len(jobs)

    def drain(self, concurrency: int, seconds: float) -> int:
        """Keep `concurrency` slots full until nothing is due or falls due soon, or `seconds` are spent.

        Returns how many jobs ran. By then all is recorded and its threads have ended, but for jobs that hang: those are left to
        another drain of the process, so that the wake message that brought them makes room for the next. Never raises for
        the database's faults: it backs off and goes on, and the next drain finds what is left. What has ended while a turn
        was made is recorded by the next one, so that nobody waits for company, and many share a commit.
        """
        ends, ran, failures = time.monotonic() + seconds, 0, 0
        # A wake message's drain has threads too: if it did its one job itself, a few deliveries that hang would keep it from
        # all others (measured: half a second for those behind them).
        with self._heartbeat.running(), self._crew(concurrency + LENT_AT_MOST) as crew:
            returned: list[Returned] = []
            while not self._is_over(crew, ends):
                try:
                    is_idle = not crew.expects and not returned
                    # A caller that finds no slot waits for one, a second at most: so a wake message stays in hand, and the ones
                    # behind it in the queue, whose length is what the platform scales by, until this process can do
                    # something for it.
                    room = concurrency - crew.busy + self._slots.lent_by(crew)
                    taken = self._slots.take(room, wait=SLOT_WAIT_SECONDS if is_idle else 0.0)
                    done, returned = returned, []
                    jobs = self._turn(done, taken, crew) if taken or done else ()
                    failures, more_is_due = 0, len(jobs) == taken
                    ran += len(jobs)
                    self._hand(crew, jobs)
                    # After the claim, so that nobody who has just written waits for it.
                    has_rescued = bool(taken) and self._rescue()
                    if (
                        taken
                        and not crew.busy
                        and not has_rescued
                        and not self._linger(ends, crew)
                        and self._drains.leave(crew)
                    ):
                        break
                    # A moment: by then a slot may have been lent. When nothing more is due, until something is.
                    busy = crew.busy
                    returned += crew.collect(LENDS_AFTER_SECONDS)
                    if busy and crew.busy == busy and not returned and not more_is_due and not has_rescued:
                        if self._drains.have_taken(crew):
                            return ran
                        returned = self._rest(crew)
                except (DatabaseAway, psycopg.Error) as away:
                    failures += 1
                    telemetry.warning("poll_failed", failures=failures, error=shorten(away))
                    self._stopping.wait(min(backoff.reconnect(failures, random.random()), ends - time.monotonic()))
                    returned += crew.collect(RESCUE_EVERY_SECONDS)
            self._drains.leave(crew, at_once=True)
            self._settle(crew, returned)
        return ran

    def stop(self) -> None:
        """A planned stop: take no more jobs; what has not ended in six seconds is given back, its attempt uncounted."""
        if not self._stopping.is_set():
            self._stopping.set()
            threading.Thread(target=self._give_back, name="give-back", daemon=True).start()

    def _turn(
        self, done: Sequence[Returned], taken: int, crew: Crew[Returned] | None = None
    ) -> Sequence[tuple[Job, object]]:
        """Record what is done, and claim a job for each slot that was taken, with what its type has prepared for it.

        Each of them holds its slot until `_run` ends. What could not be recorded together, the crew records one by one.
        """
        jobs: Sequence[Job] = ()
        prepared: Mapping[UUID, object] = {}
        finished: Mapping[UUID, bool] = {}
        if taken:
            self._drains.look()
        try:
            with self._database.connection() as connection:
                noted = [item.job for item in together.record(self._types, connection, done)]
                turn = store.turn(connection, noted, taken, self._names, self._limits.lease_seconds)
                finished, jobs = turn.finished, turn.claimed
                if jobs:
                    self._checkpoint(Boundary.CLAIMED)
                prepared = together.prepare(self._types, connection, jobs)
            self._patience.answered()
        except (DatabaseAway, psycopg.Error):
            self._patience.failed()
            raise
        finally:
            self._slots.release(taken - len(jobs))
            for job in jobs:
                self._heartbeat.hold(job)
            self._after(done, finished, crew)
        return [(job, prepared.get(job.lease_token)) for job in jobs]

    def _after(self, done: Sequence[Returned], finished: Mapping[UUID, bool], crew: Crew[Returned] | None) -> None:
        if finished:
            self._checkpoint(Boundary.COMPLETED)
        for item in done:
            if item.job.lease_token in finished:
                self._heartbeat.release(item.job)
                self._outcomes.recorded(item, has_follow_up=finished[item.job.lease_token])
        if crew is not None and len(finished) < len(done):
            crew.hand(partial(self._record, item) for item in done if item.job.lease_token not in finished)

    def _hand(self, crew: Crew[Returned], jobs: Sequence[tuple[Job, object]]) -> None:
        crew.hand(partial(self._run, job, prepared, crew) for job, prepared in jobs)

    @contextlib.contextmanager
    def _crew(self, size: int) -> Iterator[Crew[Returned]]:
        """A drain's threads. However it ends, all is recorded: others have left their jobs to it, which nobody else knows of."""
        with Crew[Returned](size) as crew:
            try:
                yield crew
            finally:
                self._drains.leave(crew, at_once=True)
                self._settle(crew, [])

    def _settle(self, crew: Crew[Returned], returned: list[Returned]) -> None:
        """Take no more; wait for what runs, and record all of it."""
        while crew.expects or returned:
            returned += crew.collect(0.0 if returned else RESCUE_EVERY_SECONDS)
            done, returned = returned, []
            if done:
                # What this cannot record, the crew insists on.
                with contextlib.suppress(DatabaseAway, psycopg.Error):
                    self._turn(done, 0, crew)

    def _run(self, job: Job, prepared: object, crew: Crew[Returned]) -> Returned | None:
        """Run a job and free its slot. One that is only to be marked as done comes back; its lease is kept until it is."""
        began = time.monotonic()
        with self._running_lock:
            self._running[job.lease_token] = job
        returned: Returned | None = None
        try:
            returned = self._outcomes.run(job, partial(self._waiting, crew), prepared)
        finally:
            if returned is None:
                self._heartbeat.release(job)
            with self._running_lock:
                self._running.pop(job.lease_token, None)
            self._slots.release()
            took = round((time.monotonic() - began) * 1000)
            if took > self._limits.slow_job_threshold_ms:
                telemetry.warning("slow_job", job_id=job.id, type=job.type, attempt=job.attempts, duration_ms=took)
        return returned

    @contextlib.contextmanager
    def _waiting(self, crew: Crew[Returned]) -> Iterator[None]:
        try:
            with self._slots.waiting(crew.collector):
                yield
        finally:
            crew.adopt_context()

    def _record(self, returned: Returned) -> None:
        try:
            self._outcomes.record(returned)
        finally:
            self._heartbeat.release(returned.job)

    def _is_over(self, crew: Crew[Returned], ends: float) -> bool:
        """A drain whose time is up goes on for a while if nothing but jobs that hang would keep it: nobody else may be there."""
        over = time.monotonic() - ends
        if self._stopping.is_set() or over < 0:
            return self._stopping.is_set()
        return over > OVERTIME_SECONDS or not crew.busy or self._slots.lent_by(crew) < crew.busy

    def _linger(self, ends: float, crew: Crew[Returned]) -> bool:
        """Wait for what falls due soon; False when nothing does that another drain does not already wait for.

        No more wait than can run at once, so that the host has hands left for the next wake message; the others' messages come
        again when their jobs are due, since the platform scales by them. Meanwhile one of those that wait looks for what is new.
        """
        with self._drains.lingering() as place:
            with self._database.connection() as connection:
                due = store.next_due(connection, self._names, place)
            if due is None or due > min(LINGER_SECONDS, ends - time.monotonic()):
                return False
            if place >= self._limits.concurrency:
                self._wake(due + self._wakes_early)
                return False
            until = time.monotonic() + max(due, 0.001)
            while (left := until - time.monotonic()) > 0 and not self._stopping.wait(min(left, LINGER_LOOKS_SECONDS)):
                # What has been left to this drain meanwhile may have come back.
                if crew.expects or not self._drains.have_looked(LINGER_LOOKS_SECONDS):
                    break
            return True

    def _rest(self, crew: Crew[Returned]) -> list[Returned]:
        """Wait for what comes back, at most until the next job falls due; nothing more is due now.

        While jobs hang, other drains of the process may be all that the host has hands for, and then no wake message comes in:
        so they look by themselves, one of them each time. A wait that is too young to have been lent counts too: nobody would
        call when it is.
        """
        busy = crew.busy
        while self._slots.waits_of(crew) and not self._stopping.is_set():
            returned = crew.collect(LOOKS_EVERY_SECONDS)
            # As many may be left to it as have come back: then `busy` is what it was.
            if returned or crew.busy != busy or not self._drains.have_looked(LOOKS_EVERY_SECONDS):
                return returned
        with self._database.connection() as connection:
            due = store.next_due(connection, self._names)
        return crew.collect(RESCUE_EVERY_SECONDS if due is None else min(max(due, 0.001), RESCUE_EVERY_SECONDS))

    def _rescue(self) -> bool:
        """Take care of expired leases, at most once a second in this process; whether something may be due by that."""
        try:
            if not self._patience.is_over(self._database):
                return False
            with self._database.connection() as connection:
                rescued = store.rescue(connection)
                poisoned = store.poisoned(connection, self._names)
                overaged = [
                    job
                    for name in store.resting(connection, self._names)
                    for job in store.claim_overaged(
                        connection, name, self._types[name].policy.age_limit, self._limits.lease_seconds
                    )
                ]
        except (DatabaseAway, psycopg.Error):
            self._patience.failed()
            raise
        if rescued:
            telemetry.warning("jobs_rescued", count=rescued)
        for job in poisoned:
            self._outcomes.bury_poisoned(job)
        for job in overaged:
            self._outcomes.bury_overaged(job)
        self._tick()
        return bool(rescued or poisoned or overaged)

    def _give_back(self) -> None:
        deadline = time.monotonic() + GIVE_BACK_AFTER_SECONDS
        while self._running and time.monotonic() < deadline:
            time.sleep(0.05)
        with self._running_lock:
            left = list(self._running.values())
        for job in left:
            with contextlib.suppress(Exception):  # the lease ends by itself; the process is ending
                self._outcomes.give_back(job)
