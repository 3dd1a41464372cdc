"""What a job is, and what a job function may answer.

A job function returns `Complete`, `Continue` or `Snooze`, or raises; nothing else ends a job. What it wants written goes into
the verdict as `Write`s, executed in the same transaction that records the verdict, or into `Lease.transaction`, which
first makes sure that the job is still this worker's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString, Protocol
from uuid import UUID

from shared.db.pool import Conn, Database, one
from shared.errors import Failure, LeaseLost
from shared.queue.policy import Policy

LOCK_CONVERSATION = "SELECT FROM conversations WHERE id = %(conversation_id)s FOR NO KEY UPDATE"
LOCK_JOB = """
    SELECT FROM ai_jobs WHERE id = %(id)s AND lease_token = %(token)s AND status = 'processing' FOR NO KEY UPDATE
"""

type Waiting = Callable[[], contextlib.AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Job:
    """One claimed row of ai_jobs. `age_seconds` is counted from the start of its run, at the claim."""

    id: UUID
    type: str
    payload: dict[str, Any]
    conversation_id: UUID | None
    attempts: int
    max_attempts: int
    claims: int
    run: int
    lease_token: UUID
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Write:
    """One statement of a verdict's transaction."""

    sql: LiteralString
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Complete:
    """The job is done. `shows_health` is False when the model has not been asked on the way: that ends no rest of the type.

    `note` is what the type's `together` is to record first; a verdict with a note has no writes.
    """

    writes: Sequence[Write] = ()
    shows_health: bool = True
    note: object = None

    def __post_init__(self) -> None:
        if self.note is not None and (self.writes or not self.shows_health):
            raise ValueError("a verdict with a note has nothing else to record")


@dataclass(frozen=True, slots=True)
class Continue:
    """A step is done: commit its writes; the job is due again at once and no attempt is used."""

    writes: Sequence[Write] = ()


@dataclass(frozen=True, slots=True)
class Snooze:
    """Not now: due again in `seconds`, no attempt used, at most until the type's age limit."""

    seconds: float
    reason: str


type Verdict = Complete | Continue | Snooze


class Lease:
    """A worker's hold on one job: every write that the job makes goes through `transaction`."""

    def __init__(
        self,
        database: Database,
        job: Job,
        seconds: float,
        is_stopping: Callable[[], bool] = lambda: False,
        waiting: Waiting = contextlib.nullcontext,
        prepared: object = None,
    ) -> None:
        self.job = job
        self.prepared = prepared  # what the type's `together` made ready for this job, if it did
        self._seconds = seconds
        self.is_stopping = is_stopping
        self.waiting = waiting  # `with lease.waiting():` around a wait for the network lends the job's slot meanwhile
        self._database = database

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Conn]:
        """A transaction in the lock order conversation, job. Raises LeaseLost when the job is no longer ours."""
        with self._database.transaction() as connection:
            lock(connection, self.job)
            yield connection

    def insist(self, write: Write) -> None:
        """Commit one statement, trying again for the length of the lease while the database is away."""

        def work(connection: Conn) -> None:
            lock(connection, self.job)
            connection.execute(write.sql, write.parameters)

        self._database.insist(work, self._seconds)


def lock(connection: Conn, job: Job) -> None:
    """Take the locks of a job's transaction in the order that everybody keeps: conversation, then job."""
    if job.conversation_id is not None:
        connection.execute(LOCK_CONVERSATION, {"conversation_id": job.conversation_id})
    if one(connection, LOCK_JOB, {"id": job.id, "token": job.lease_token}) is None:
        raise LeaseLost(f"job {job.id} is no longer this worker's")


def no_writes(job: Job, failure: Failure) -> Sequence[Write]:
    """The burial of a type that leaves nothing behind."""
    del job, failure
    return ()


def always_settled(connection: Conn, job: Job) -> bool:
    """The answer of a type that leaves nobody in doubt."""
    del connection, job
    return False


class Together(Protocol):
    """What a type does in one statement for several of its jobs. Whatever this leaves out, or fails at, is done job by job."""

    def prepare(self, connection: Conn, jobs: Sequence[Job]) -> Mapping[UUID, object]:
        """What has been made ready for jobs that were just claimed, by lease token: `Lease.prepared`."""

    def record(self, connection: Conn, noted: Sequence[tuple[Job, Any]]) -> Collection[UUID]:
        """Record the notes of jobs that are done (`Complete.note`); the lease tokens of those that are recorded."""

    def record_alone(self, connection: Conn, job: Job, note: Any) -> None:
        """The same for one job, whatever stands in its way. Raises LeaseLost."""


@dataclass(frozen=True, slots=True)
class JobType:
    """A row of the one explicit table of job types.

    `is_unsettled` is asked before a burial, in its transaction, under the locks of conversation and job: a job that may have
    changed the world and still finds out whether it did is not buried, whatever its attempts and its age.
    """

    name: str
    run: Callable[[Job, Lease], Verdict]
    policy: Policy = field(default_factory=Policy)
    on_bury: Callable[[Job, Failure], Sequence[Write]] = no_writes
    is_unsettled: Callable[[Conn, Job], bool] = always_settled
    together: Together | None = None
