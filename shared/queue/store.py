"""The queue's SQL: each transition is one fenced statement; zero rows means that the job is no longer ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from shared.db.pool import Conn, one
from shared.errors import Failure, LeaseLost
from shared.queue.job import Job, Write, lock

ENQUEUE = """
    INSERT INTO ai_jobs (payload, conversation_id, next_run_at)
    VALUES (%(payload)s, %(conversation_id)s, now() + make_interval(secs => %(delay)s))
    RETURNING id
"""
# A job's age is counted from the start of its run, or from when its type was resumed: a pause makes nobody too old.
TURN = """
    SELECT finished_token, made_next, (claimed).id, (claimed).type, (claimed).payload, (claimed).conversation_id,
        (claimed).attempts, (claimed).max_attempts, (claimed).claims, (claimed).run, (claimed).lease_token,
        extract(epoch FROM now() - greatest((claimed).run_started_at, (
            SELECT age_from FROM job_types WHERE type = (claimed).type)))::float8 AS age_seconds
    FROM turn_ai_jobs(%(ids)s::uuid[], %(tokens)s::uuid[], %(size)s, %(types)s, make_interval(secs => %(lease)s))
    ORDER BY (claimed).next_run_at, (claimed).seq
"""
# What is overdue and was not claimed is locked by somebody, or waits for a slot, for its type's limit or for a suspect before it.
NEXT_DUE = """
    SELECT extract(epoch FROM next_of_type.next_run_at - now())::float8
    FROM job_types t CROSS JOIN LATERAL (
        SELECT j.next_run_at FROM ai_jobs j
        WHERE j.type = t.type AND j.status = 'pending' AND j.next_run_at > now() - interval '50 milliseconds'
        ORDER BY j.next_run_at LIMIT %(place)s + 1
    ) AS next_of_type
    WHERE t.type = ANY (%(types)s) AND t.resting_until IS NULL AND NOT t.paused
    ORDER BY next_of_type.next_run_at OFFSET %(place)s LIMIT 1
"""
# A row that is locked is passed by: it is in a transaction of its job's own, which must not keep the others from being renewed.
RENEW = """
    WITH held AS MATERIALIZED (
        SELECT j.id FROM unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) AS given (id, token) JOIN ai_jobs j ON j.id = given.id
        WHERE j.lease_token = given.token AND j.status = 'processing'
        FOR NO KEY UPDATE OF j SKIP LOCKED
    )
    UPDATE ai_jobs SET lease_until = now() + make_interval(secs => %(lease)s) WHERE id IN (SELECT id FROM held)
"""
# A job that never asked the model says nothing of its health: the type rests on, and its next probe may go at once.
# A finished job whose `rerun` is set makes the conversation's next one in the same statement: the partial unique index
# allows it, because the finished row has left the index by then.
MARK_DONE = """
    WITH finished AS (
        UPDATE ai_jobs SET status = 'done', lease_token = NULL, lease_until = NULL, last_error = NULL,
            error_class = NULL, updated_at = now()
        WHERE id = %(id)s AND lease_token = %(token)s AND status = 'processing'
        RETURNING id, type, payload, conversation_id, run, claims, claimed_at, rerun
    ), attempt AS (
        INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome)
        SELECT id, run, claims, claimed_at, clock_timestamp(), 'done' FROM finished
    ), recovered AS (
        UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL
        WHERE %(shows_health)s AND failures_in_row > 0 AND type = (SELECT type FROM finished)
    ), next_probe AS (
        UPDATE job_types SET resting_until = now()
        WHERE NOT %(shows_health)s AND failures_in_row > 0 AND type = (SELECT type FROM finished)
            AND resting_until > now() AND resting_until <= now() + interval '10 seconds'  -- as a probe's claim left it
    ), next AS (
        INSERT INTO ai_jobs (payload, conversation_id) SELECT payload, conversation_id FROM finished WHERE rerun
        RETURNING id
    )
    SELECT (SELECT id FROM finished), (SELECT id FROM next)
"""
MARK_FAILED = """
    WITH finished AS (
        UPDATE ai_jobs SET status = 'failed', lease_token = NULL, lease_until = NULL, last_error = %(error)s,
            error_class = %(error_class)s, updated_at = now()
        WHERE id = %(id)s AND lease_token = %(token)s AND status = 'processing'
        RETURNING id, payload, conversation_id, run, claims, claimed_at, rerun
    ), attempt AS (
        INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome, error_class, http_status, error)
        SELECT id, run, claims, claimed_at, clock_timestamp(), %(outcome)s, %(error_class)s, %(http_status)s, %(error)s
        FROM finished
    ), next AS (
        INSERT INTO ai_jobs (payload, conversation_id) SELECT payload, conversation_id FROM finished WHERE rerun
        RETURNING id
    )
    SELECT (SELECT id FROM finished), (SELECT id FROM next)
"""
REQUEUE = """
    WITH requeued AS (
        UPDATE ai_jobs SET status = 'pending', lease_token = NULL, lease_until = NULL,
            next_run_at = now() + make_interval(secs => %(delay)s), attempts = attempts - %(given_back)s,
            last_error = coalesce(%(error)s, last_error), error_class = coalesce(%(error_class)s, error_class),
            updated_at = now()
        WHERE id = %(id)s AND lease_token = %(token)s AND status = 'processing'
        RETURNING id, run, claims, claimed_at
    ), attempt AS (
        INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome, error_class, http_status, error)
        SELECT id, run, claims, claimed_at, clock_timestamp(), %(outcome)s, %(error_class)s, %(http_status)s, %(error)s
        FROM requeued
    )
    SELECT id FROM requeued
"""
RESCUE = """
    WITH expired AS MATERIALIZED (
        SELECT id FROM ai_jobs
        WHERE status = 'processing' AND lease_until < now() AND attempts < max_attempts
        LIMIT 100 FOR UPDATE SKIP LOCKED
    ), rescued AS (
        UPDATE ai_jobs SET status = 'pending', lease_token = NULL, lease_until = NULL, next_run_at = now(),
            has_crashed = true, last_error = 'its worker stopped in the middle', error_class = 'crashed', updated_at = now()
        WHERE id IN (SELECT id FROM expired) AND status = 'processing' AND lease_until < now()
        RETURNING id, run, claims, claimed_at
    ), attempt AS (
        INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome, error_class, error)
        SELECT id, run, claims, claimed_at, clock_timestamp(), 'crashed', 'crashed', 'its worker stopped in the middle'
        FROM rescued
    )
    SELECT id FROM rescued
"""
POISONED = """
    SELECT id, type, payload, conversation_id, attempts, max_attempts, claims, run, lease_token,
        extract(epoch FROM now() - greatest(run_started_at, (
            SELECT age_from FROM job_types t WHERE t.type = ai_jobs.type)))::float8 AS age_seconds
    FROM ai_jobs
    WHERE status = 'processing' AND lease_until < now() AND attempts >= max_attempts AND type = ANY (%(types)s)
    LIMIT 100
"""
RESTING = "SELECT type FROM job_types WHERE resting_until IS NOT NULL AND NOT paused AND type = ANY (%(types)s)"
# While a type rests nothing of it is claimed, yet its age limit holds: those past it are taken, to be buried. What an operator
# has paused stays.
CLAIM_OVERAGED = """
    WITH overaged AS MATERIALIZED (
        SELECT j.id FROM ai_jobs j JOIN job_types t USING (type)
        WHERE t.type = %(type)s AND t.resting_until IS NOT NULL AND NOT t.paused AND j.status = 'pending'
            AND j.next_run_at <= now() AND greatest(j.run_started_at, t.age_from) < now() - make_interval(secs => %(age_limit)s)
        ORDER BY j.next_run_at, j.seq LIMIT 20 FOR UPDATE OF j SKIP LOCKED
    )
    UPDATE ai_jobs SET status = 'processing', claims = claims + 1, lease_token = gen_random_uuid(),
        lease_until = now() + make_interval(secs => %(lease)s), claimed_at = now(), updated_at = now()
    WHERE id IN (SELECT id FROM overaged)
    RETURNING id, type, payload, conversation_id, attempts, max_attempts, claims, run, lease_token,
        extract(epoch FROM now() - greatest(run_started_at, (
            SELECT age_from FROM job_types t WHERE t.type = ai_jobs.type)))::float8 AS age_seconds
"""
STILL_EXPIRED = "SELECT FROM ai_jobs WHERE id = %(id)s AND lease_token = %(token)s AND lease_until < now()"
RECOVERED = """
    UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL
    WHERE failures_in_row > 0 AND type = %(type)s
"""
NOTE_FAILURE = """
    UPDATE job_types SET failures_in_row = failures_in_row + 1,
        resting_until = CASE WHEN failures_in_row + 1 >= %(limit)s OR resting_until IS NOT NULL
            THEN greatest(resting_until, now() + make_interval(secs => %(rest)s)) END,
        resting_reason = CASE WHEN failures_in_row + 1 >= %(limit)s OR resting_until IS NOT NULL THEN %(reason)s END
    WHERE type = %(type)s
    RETURNING resting_until IS NOT NULL
"""


def enqueue(
    connection: Conn, payload: dict[str, Any], *, conversation_id: UUID | None = None, delay_seconds: float = 0.0
) -> UUID:
    """Add a job, due in `delay_seconds`; returns its id. For an autoreply use the joining insert of inbound.py."""
    row = one(
        connection,
        ENQUEUE,
        {"payload": Jsonb(payload), "conversation_id": conversation_id, "delay": delay_seconds},
    )
    assert row is not None
    return UUID(str(row[0]))


def enqueue_write(payload: dict[str, Any], *, conversation_id: UUID | None, delay_seconds: float = 0.0) -> Write:
    """The same as a write of a verdict."""
    return Write(ENQUEUE, {"payload": Jsonb(payload), "conversation_id": conversation_id, "delay": delay_seconds})


@dataclass(frozen=True, slots=True)
class Turn:
    """What became of a turn: what is recorded (lease token → whether it made a follow-up), and what is claimed."""

    finished: Mapping[UUID, bool]
    claimed: Sequence[Job]


def turn(connection: Conn, done: Sequence[Job], size: int, types: Sequence[str], lease_seconds: float) -> Turn:
    """Complete the jobs that are done and have nothing to write, and take at most `size` due ones of these types.

    One statement and one commit. A job that is no longer this worker's, or is locked, is missing in `finished`. The claimed are
    the oldest due first, each with a fresh lease.
    """
    with connection.cursor(binary=True) as cursor:
        rows = cursor.execute(
            TURN,
            {
                "ids": [str(job.id) for job in done],  # an array of UUIDs costs ten times as much to write
                "tokens": [str(job.lease_token) for job in done],
                "size": size,
                "types": list(types),
                "lease": lease_seconds,
            },
        ).fetchall()
    return Turn(
        {row[0]: row[1] for row in rows if row[0] is not None}, [Job(*row[2:]) for row in rows if row[2] is not None]
    )


def claim(connection: Conn, size: int, types: Sequence[str], lease_seconds: float) -> Sequence[Job]:
    """Take at most `size` due jobs of these types, oldest due first, each with a fresh lease."""
    return turn(connection, (), size, types, lease_seconds).claimed


def next_due(connection: Conn, types: Sequence[str], place: int = 0) -> float | None:
    """Seconds until the next pending job of these types falls due, or the one that is `place` behind it; None when none will."""
    row = one(connection, NEXT_DUE, {"types": list(types), "place": place})
    return None if row is None or row[0] is None else float(row[0])


def renew(connection: Conn, held: Mapping[UUID, UUID], lease_seconds: float) -> int:
    """Extend the leases of the jobs that are still held (job id → token); returns how many were."""
    return connection.execute(
        RENEW, {"ids": list(held), "tokens": list(held.values()), "lease": lease_seconds}
    ).rowcount


def mark_done(connection: Conn, job: Job, writes: Sequence[Write] = (), *, shows_health: bool = True) -> bool:
    """Complete a job together with its writes, in the caller's transaction; True when it made a follow-up.

    `shows_health` ends the type's rest. Raises LeaseLost, which rolls the transaction back, when the job is no longer this
    worker's.
    """
    if writes:
        lock(connection, job)
    for write in writes:
        connection.execute(write.sql, write.parameters)
    return _finished(
        one(connection, MARK_DONE, {"id": job.id, "token": job.lease_token, "shows_health": shows_health}), job
    )


def mark_failed(
    connection: Conn, job: Job, failure: Failure, writes: Sequence[Write] = (), *, outcome: str = "failed"
) -> bool:
    """Bury a job together with its burial's writes; True when it made a follow-up. Raises LeaseLost."""
    lock(connection, job)
    for write in writes:
        connection.execute(write.sql, write.parameters)
    return _finished(one(connection, MARK_FAILED, _described(job, failure) | {"outcome": outcome}), job)


def requeue_with_backoff(connection: Conn, job: Job, failure: Failure, delay_seconds: float) -> None:
    """Put a failed job back, its attempt used, due in `delay_seconds`. Raises LeaseLost."""
    _requeue(connection, job, failure, "retry", delay_seconds, given_back=0)


def snooze(connection: Conn, job: Job, failure: Failure, delay_seconds: float) -> None:
    """Put a job back without using an attempt, due in `delay_seconds`. Raises LeaseLost."""
    _requeue(connection, job, failure, "snoozed", delay_seconds, given_back=1)


def postpone(
    connection: Conn, job: Job, failure: Failure, outcome: str, delay_seconds: float, *, given_back: int
) -> None:
    """Put a job back that must not be buried yet; `given_back` is 1 if its claim had counted an attempt. Raises LeaseLost."""
    _requeue(connection, job, failure, outcome, delay_seconds, given_back=given_back)


def give_back(connection: Conn, job: Job) -> None:
    """A planned stop: the job is due at once and its attempt was none. Raises LeaseLost."""
    _requeue(connection, job, None, "returned", 0.0, given_back=1)


def continue_job(connection: Conn, job: Job, writes: Sequence[Write]) -> None:
    """Commit a step's writes and put the job back, due at once, no attempt used. Raises LeaseLost."""
    lock(connection, job)
    for write in writes:
        connection.execute(write.sql, write.parameters)
    _requeue(connection, job, None, "continued", 0.0, given_back=1)


def rescue(connection: Conn) -> int:
    """Put back the jobs whose worker stopped in the middle and that have attempts left; returns how many."""
    return len(connection.execute(RESCUE).fetchall())


def poisoned(connection: Conn, types: Sequence[str]) -> list[Job]:
    """The jobs whose lease ended and whose attempts are used up: to be buried one by one."""
    with connection.cursor(row_factory=class_row(Job)) as cursor:
        return cursor.execute(POISONED, {"types": list(types)}).fetchall()


def claim_overaged(connection: Conn, job_type: str, age_limit: float, lease_seconds: float) -> list[Job]:
    """Take jobs of a resting type that are older than its age limit (seconds): to be buried."""
    with connection.cursor(row_factory=class_row(Job)) as cursor:
        parameters = {"type": job_type, "age_limit": age_limit, "lease": lease_seconds}
        return cursor.execute(CLAIM_OVERAGED, parameters).fetchall()


def resting(connection: Conn, types: Sequence[str]) -> list[str]:
    """Which of these types rest."""
    return [str(name) for (name,) in connection.execute(RESTING, {"types": list(types)})]


def is_still_expired(connection: Conn, job: Job) -> bool:
    """Whether nobody has renewed, rescued or finished the job since it was looked at; asked under its lock."""
    return one(connection, STILL_EXPIRED, {"id": job.id, "token": job.lease_token}) is not None


def note_failure(connection: Conn, job_type: str, reason: str, *, limit: int, rest_seconds: float) -> bool:
    """Count one more failure in a row of a type; True when the type rests now."""
    row = one(connection, NOTE_FAILURE, {"type": job_type, "reason": reason, "limit": limit, "rest": rest_seconds})
    return bool(row and row[0])


def note_answer(connection: Conn, job_type: str) -> None:
    """The model has answered a job of this type: it rests no longer, whatever becomes of the job."""
    connection.execute(RECOVERED, {"type": job_type})


def _requeue(
    connection: Conn, job: Job, failure: Failure | None, outcome: str, delay: float, *, given_back: int
) -> None:
    parameters = _described(job, failure) | {"outcome": outcome, "delay": delay, "given_back": given_back}
    if one(connection, REQUEUE, parameters) is None:
        raise LeaseLost(f"job {job.id} is no longer this worker's")


def _described(job: Job, failure: Failure | None) -> dict[str, Any]:
    return {
        "id": job.id,
        "token": job.lease_token,
        "error": failure.text if failure else None,
        "error_class": failure.error_class if failure else None,
        "http_status": failure.http_status if failure else None,
    }


def _finished(row: Sequence[Any] | None, job: Job) -> bool:
    if row is None or row[0] is None:
        raise LeaseLost(f"job {job.id} is no longer this worker's")
    return row[1] is not None
