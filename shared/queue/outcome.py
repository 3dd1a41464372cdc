"""From a job function's answer or exception to the row's next state."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

import psycopg

from shared import telemetry
from shared.boundary import Boundary, Checkpoint, pass_by
from shared.db.pool import Conn, Database
from shared.errors import AntwoordError, DatabaseAway, Failure, FailureKind, LeaseLost, classify
from shared.queue import store
from shared.queue.job import Complete, Continue, Job, JobType, Lease, Snooze, Verdict, Waiting, Write, lock, no_writes

MODEL_FAILURES_BEFORE_REST = 5
MODEL_REST_SECONDS = 10.0
CREDENTIAL_REST_SECONDS = 60.0
DATABASE_FAULT_SECONDS = 2.0
# An outcome is fenced, so it may be insisted on beyond the lease: as long as a failover of the database takes, and a good deal
# shorter than a function may run.
OUTAGE_SECONDS = 180.0
THROTTLED_SECONDS_AT_LEAST = 1.0
UNSETTLED_SECONDS = 10.0

# The classes of a model outage: after five in a row the type rests, instead of using up the tries of every job.
OUTAGE = frozenset({"throttled", "unavailable", "timeout", "connect", "dropped"})


type OnBury = Callable[[Job, Failure], Sequence[Write]]


@dataclass(frozen=True, slots=True)
class Returned:
    """A job that is done, which nothing in the database says yet; nor what its note says, unless that is None."""

    job: Job
    duration_ms: int
    note: object = None


class Stopped(AntwoordError):
    """Raised inside a job that a planned stop ends before it has done anything that counts."""


class Outcomes:
    """Runs one job at a time and records what became of it, trying again while the database is away."""

    def __init__(
        self,
        database: Database,
        types: Mapping[str, JobType],
        wake: Callable[[float], None],
        lease_seconds: float,
        stopping: threading.Event,
        checkpoint: Checkpoint = pass_by,
    ) -> None:
        self._database = database
        self._types = types
        self._wake = wake
        self._lease_seconds = lease_seconds
        self._stopping = stopping
        self._checkpoint = checkpoint

    def run(self, job: Job, waiting: Waiting = contextlib.nullcontext, prepared: object = None) -> Returned | None:
        """Run a claimed job and record the verdict. Never raises: one bad job must not take its neighbours with it.

        A job that is done and has nothing to write is given back instead, to be recorded together with others.
        """
        began = time.monotonic()
        try:
            lease = Lease(self._database, job, self._lease_seconds, self._stopping.is_set, waiting, prepared)
            verdict = self._types[job.type].run(job, lease)
        except Stopped:
            self._safely(job, partial(self.give_back, job))
        except LeaseLost:
            telemetry.warning("lease_lost", job_id=job.id, type=job.type, attempt=job.attempts)
        except Exception as error:  # noqa: BLE001 - whatever a job raises is an outcome
            self._checkpoint(Boundary.RETURNED)
            self._safely(job, partial(self._failed, job, classify(error), began))
        else:
            self._checkpoint(Boundary.RETURNED)
            if isinstance(verdict, Complete) and not verdict.writes and verdict.shows_health:
                return Returned(job, _since(began), verdict.note)
            self._safely(job, partial(self._succeeded, job, verdict, began))
        return None

    def recorded(self, returned: Returned, *, has_follow_up: bool) -> None:
        """What is to be done after the commit that recorded it."""
        job = returned.job
        if has_follow_up:
            self._wake(0.0)
        telemetry.event("job_ran", job_id=job.id, type=job.type, attempt=job.attempts, outcome="complete",
                        duration_ms=returned.duration_ms)  # fmt: skip

    def record(self, returned: Returned) -> None:
        """Record one by itself, for as long as a lease: it was locked, is no longer ours, or the database was away."""

        job, together = returned.job, self._types[returned.job.type].together

        def done() -> None:
            if returned.note is not None and together is not None:
                self._database.insist(
                    lambda connection: together.record_alone(connection, job, returned.note),
                    max(self._lease_seconds, OUTAGE_SECONDS),
                )
            has_follow_up = self._insist(lambda connection: store.mark_done(connection, job))
            self.recorded(returned, has_follow_up=has_follow_up)

        self._safely(job, done)

    def give_back(self, job: Job) -> None:
        """Return a job whose worker stops, its attempt uncounted."""
        self._insist(lambda connection: store.give_back(connection, job))
        self._wake(0.0)

    def bury_poisoned(self, job: Job) -> None:
        """Bury a job that took its worker down on its last attempt, unless it has moved on since."""
        failure = Failure(FailureKind.PERMANENT, "poison", f"its worker stopped in the middle {job.attempts} times")
        self._safely(job, lambda: self._bury(job, failure, outcome="crashed", only_if_expired=True))

    def bury_overaged(self, job: Job) -> None:
        """Bury a job that waited longer than its type allows while the type rested."""
        self._safely(job, lambda: self._bury(job, _expired(None), given_back=0))

    def _succeeded(self, job: Job, verdict: Verdict, began: float) -> None:
        match verdict:
            case Complete(writes, shows_health):
                if self._insist(lambda connection: store.mark_done(connection, job, writes, shows_health=shows_health)):
                    self._wake(0.0)
            case Continue(writes):
                self._insist(lambda connection: store.continue_job(connection, job, writes))
                self._wake(0.0)
            case Snooze(seconds, reason):
                self._snooze(job, Failure(FailureKind.TRANSIENT, "waiting", reason), seconds)
            case _:
                assert_never(verdict)
        outcome = type(verdict).__name__.lower()
        telemetry.event("job_ran", job_id=job.id, type=job.type, attempt=job.attempts, outcome=outcome,
                        duration_ms=_since(began))  # fmt: skip

    def _failed(self, job: Job, failure: Failure, began: float) -> None:
        telemetry.warning("attempt_failed", job_id=job.id, type=job.type, attempt=job.attempts,
                          error_class=failure.error_class, http_status=failure.http_status, error=failure.text,
                          duration_ms=_since(began))  # fmt: skip
        rests = self._note(job, failure)
        policy = self._types[job.type].policy
        wait = policy.delay(job.attempts, failure)
        match failure.kind:
            case FailureKind.DATABASE:
                # From half to the whole, so that all that a fault has hit do not come back at one moment.
                self._snooze(job, failure, DATABASE_FAULT_SECONDS * (1 + policy.draw()) / 2)
            case FailureKind.THROTTLED:
                self._snooze(job, failure, max(failure.retry_after or wait, THROTTLED_SECONDS_AT_LEAST))
            case FailureKind.CREDENTIAL:
                self._snooze(job, failure, CREDENTIAL_REST_SECONDS)
            case FailureKind.TRANSIENT if rests:
                self._snooze(job, failure, MODEL_REST_SECONDS)
            case FailureKind.TRANSIENT if job.attempts < job.max_attempts:
                self._insist(lambda connection: store.requeue_with_backoff(connection, job, failure, wait))
                self._wake(wait)
            case _:
                self._bury(job, failure)

    def _note(self, job: Job, failure: Failure) -> bool:
        """Count what says something about the other side; True when the type rests because of it."""
        if failure.kind is FailureKind.CREDENTIAL:
            telemetry.error("credential_refused", type=job.type, http_status=failure.http_status, error=failure.text)
            limit, rest = 1, CREDENTIAL_REST_SECONDS
        elif failure.service == "model" and failure.error_class in OUTAGE:
            limit, rest = MODEL_FAILURES_BEFORE_REST, MODEL_REST_SECONDS
        else:
            return False
        try:
            with self._database.connection() as connection:
                return store.note_failure(connection, job.type, failure.text, limit=limit, rest_seconds=rest)
        except (DatabaseAway, psycopg.Error):
            return False

    def _snooze(self, job: Job, failure: Failure, seconds: float) -> None:
        """Put the job back without using an attempt, or bury it when it would then be older than its type allows."""
        if job.age_seconds + seconds > self._types[job.type].policy.age_limit:
            self._bury(job, _expired(failure), wait=seconds)
            return

        self._insist(lambda connection: store.snooze(connection, job, failure, seconds))
        self._wake(seconds)

    def _bury(
        self,
        job: Job,
        failure: Failure,
        *,
        outcome: str = "failed",
        only_if_expired: bool = False,
        wait: float = UNSETTLED_SECONDS,
        given_back: int = 1,
    ) -> None:
        """Bury a job, unless it is unsettled: then it waits `wait` seconds more, and its attempt (if any) was none.

        One whose burial's writes, or whose own question whether it is unsettled, cannot be had is buried without.
        """
        job_type = self._types[job.type]
        is_decided = failure.kind is FailureKind.AMBIGUOUS  # the job itself has said so

        def bury(on_bury: OnBury, asks: bool, connection: Conn) -> bool:
            lock(connection, job)
            if only_if_expired and not store.is_still_expired(connection, job):
                raise LeaseLost(f"job {job.id} has moved on")
            if asks and not is_decided and job_type.is_unsettled(connection, job):
                crashed = "crashed" if only_if_expired else "snoozed"
                store.postpone(connection, job, failure, crashed, wait, given_back=given_back)
                return False
            store.mark_failed(connection, job, failure, on_bury(job, failure), outcome=outcome)
            return True

        if not self._insist_on_burial(job, [(job_type.on_bury, True), (no_writes, True), (no_writes, False)], bury):
            self._wake(wait)
            return
        self._wake(0.0)  # a follow-up, or a line to the employee, may be due now
        telemetry.error("job_failed", job_id=job.id, type=job.type, attempt=job.attempts,
                        error_class=failure.error_class, http_status=failure.http_status, error=failure.text)  # fmt: skip

    def _insist_on_burial(
        self, job: Job, ways: Sequence[tuple[OnBury, bool]], bury: Callable[[OnBury, bool, Conn], bool]
    ) -> bool:
        """Bury a job in the first of these ways that can be gone: one that cannot be buried would come back for ever."""
        for on_bury, asks in ways[:-1]:
            try:
                return self._insist(partial(bury, on_bury, asks))
            except (LeaseLost, DatabaseAway):
                raise
            except Exception as error:  # noqa: BLE001 - a bad payload, or a mistake in a type's own code
                telemetry.error("burial_without_writes", job_id=job.id, type=job.type, error=classify(error).text)
        return self._insist(partial(bury, *ways[-1]))

    def _insist[T](self, transition: Callable[[Conn], T]) -> T:
        def work(connection: Conn) -> T:
            result = transition(connection)
            self._checkpoint(Boundary.COMPLETING)
            return result

        result = self._database.insist(work, max(self._lease_seconds, OUTAGE_SECONDS))
        self._checkpoint(Boundary.COMPLETED)
        return result

    def _safely(self, job: Job, step: Callable[[], None]) -> None:
        try:
            step()
        except LeaseLost:
            telemetry.warning("lease_lost", job_id=job.id, type=job.type, attempt=job.attempts)
        except Exception as error:  # noqa: BLE001 - the lease ends by itself, and the next worker tries
            telemetry.error("outcome_not_recorded", job_id=job.id, type=job.type, error=classify(error).text)


def _expired(failure: Failure | None) -> Failure:
    last = f"; last: {failure.text}" if failure else ""
    status = failure.http_status if failure else None
    return Failure(FailureKind.PERMANENT, "expired", f"waited longer than its type allows{last}", status)


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
