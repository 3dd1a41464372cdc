"""A queue for tests: one worker whose single type runs whatever the test says, and a look at the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from shared.boundary import Checkpoint, pass_by
from shared.db.pool import Database
from shared.errors import Failure
from shared.queue import store
from shared.queue.job import Complete, Job, JobType, Lease, Verdict, Write
from shared.queue.policy import Policy
from shared.queue.worker import Limits, Worker

TYPE = "embed_record"  # no conversation, no unique index: the plain kind
LEASE_SECONDS = 30.0  # no machine stands still for as long; what is to be over is made so by `expire`

AFRESH: Sequence[Any] = (
    "TRUNCATE message_events, ai_jobs, job_attempts, conversations, messages, suggestions CASCADE",
    "UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL",
    "UPDATE job_types SET paused = false, max_running = NULL, age_from = NULL",
)


class QueueBench:
    """The rows of a file's database, emptied, and a worker on them."""

    def __init__(
        self,
        database: Database,
        *,
        checkpoint: Checkpoint = pass_by,
        lease_seconds: float = LEASE_SECONDS,
        **limits: Any,
    ) -> None:
        self.database = database
        self.delays: list[float] = []
        self.work: Callable[[Job, Lease], Verdict] = lambda job, lease: Complete()
        self.buried: list[Failure] = []
        policy = Policy(age_limit=3600)
        self.type = JobType(TYPE, lambda job, lease: self.work(job, lease), policy, self.on_bury)
        bounds = Limits(lease_seconds=lease_seconds, **limits)
        self.worker = Worker(database, {TYPE: self.type}, self.delays.append, bounds, checkpoint)
        for sql in AFRESH:
            self.execute(sql)

    def on_bury(self, job: Job, failure: Failure) -> list[Write]:
        """The burial of the type: remembered, nothing written."""
        self.buried.append(failure)
        return []

    def add(self, count: int = 1, *, type: str = TYPE, due: str = "0 s", **payload: Any) -> list[UUID]:
        """Jobs that are due at once, or after an interval (negative: since then)."""
        rows = self.rows(
            "INSERT INTO ai_jobs (payload, next_run_at)"
            " SELECT %(payload)s::jsonb || jsonb_build_object('n', n), now() + %(due)s::interval"
            " FROM generate_series(1, %(count)s) n RETURNING id",
            payload=psycopg.types.json.Jsonb({"type": type} | payload),
            due=due,
            count=count,
        )
        return [row[0] for row in rows]

    def conversation(self, address: str) -> UUID:
        """A conversation for jobs of one."""
        made = self.rows("INSERT INTO conversations (address) VALUES (%(address)s) RETURNING id", address=address)
        return UUID(str(made[0][0]))

    def rows(self, sql: Any, **parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        with self.database.connection() as connection:
            return connection.execute(sql, parameters).fetchall()

    def execute(self, sql: Any, **parameters: Any) -> None:
        """A statement without rows."""
        with self.database.connection() as connection:
            connection.execute(sql, parameters)

    def row(self, job: UUID) -> dict[str, Any]:
        """One job's row, `wait` being the seconds for which its last writer has put it off."""
        with self.database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            found = cursor.execute(
                "SELECT *, extract(epoch FROM next_run_at - updated_at)::float8 AS wait FROM ai_jobs WHERE id = %s",
                [job],
            ).fetchone()
        assert found is not None
        return found

    def states(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return dict(self.rows("SELECT status, count(*) FROM ai_jobs GROUP BY status"))

    def outcomes(self, job: UUID) -> list[str]:
        """The outcomes of a job's attempts, in order."""
        found = self.rows("SELECT outcome FROM job_attempts WHERE job_id = %(job)s ORDER BY run, claim", job=job)
        return [row[0] for row in found]

    def claim(self, size: int = 1, *types: str) -> Sequence[Job]:
        """Take jobs, of the plain type or of those given."""
        with self.database.connection() as connection:
            return store.claim(connection, size, types or [TYPE], LEASE_SECONDS)

    def finish(self, *jobs: Job) -> list[UUID]:
        """Record jobs as done, together; which of them were."""
        with self.database.connection() as connection:
            finished = store.turn(connection, jobs, 0, [TYPE], LEASE_SECONDS).finished
        return [job.id for job in jobs if job.lease_token in finished]

    def expire(self) -> None:
        """All leases are over."""
        self.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'processing'")

    def rescue(self) -> int:
        """Put back what a dead worker left behind."""
        with self.database.connection() as connection:
            return store.rescue(connection)
