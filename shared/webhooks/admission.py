"""May a delivery go now, and what became of it: the two statements of an attempt, or of many, fenced by the jobs' leases.

What they decide (breaker, concurrency, rate, promised moments) is in the functions of the database, under the endpoint's lock,
since it holds over all instances (migration 0007).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from shared.db.pool import Conn, one
from shared.errors import FailureKind, LeaseLost
from shared.queue.job import Job
from shared.webhooks.sending import Answer

ADMIT = "SELECT * FROM admit_delivery(%(job)s, %(token)s, %(delivery)s)"
SETTLE = """
    SELECT settle_attempt(%(job)s, %(token)s, %(delivery)s, %(try)s, %(accepted)s, %(status)s, %(took_ms)s, %(class)s, %(error)s,
        %(answer)s, %(wait)s, %(final)s, %(gone)s)
"""
ADMIT_TOGETHER = """
    SELECT token, 'send', NULL::float8, NULL::text, 1, endpoint, url, secret, previous_secret, signature_header, headers,
        timeout_seconds, schedule, NULL::float8, event, body
    FROM admit_deliveries(%(jobs)s::uuid[], %(tokens)s::uuid[], %(deliveries)s::uuid[])
"""
SETTLE_TOGETHER = """
    SELECT * FROM settle_accepted(%(jobs)s::uuid[], %(tokens)s::uuid[], %(deliveries)s::uuid[], %(tries)s::int[],
        %(statuses)s::int[], %(took_ms)s::float8[], %(answers)s::text[])
"""
# As if it had not begun: nothing was sent.
WITHDRAW = """
    DELETE FROM webhook_attempts
    WHERE delivery_id = %(delivery)s AND try = %(try)s AND ended IS NULL
        AND EXISTS (SELECT FROM ai_jobs WHERE id = %(job)s AND lease_token = %(token)s AND status = 'processing')
"""

GONE = 410

type Change = Literal["nothing", "opened", "closed", "disabled"]  # the breaker, or the endpoint itself


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer of admit_delivery(), which says what each verdict means; of `send` all that an attempt needs, still sealed."""

    verdict: Literal["send", "wait", "done", "dead", "disabled", "lost", "missing"]
    wait_seconds: float | None
    reason: str | None
    try_: int | None
    endpoint: UUID
    url: str
    secret: bytes
    previous_secret: bytes | None
    signature_header: str
    headers: bytes | None
    timeout_seconds: float
    schedule: Literal["table", "decorrelated"]
    last_wait: float | None
    event: UUID
    body: bytes | None  # None: an event of our own that nobody has tried to deliver yet
    replay: str | None = None
    replay_attempt: int | None = None
    original_timestamp: int | None = None
    error_class: str | None = None
    error: str | None = None
    http_status: int | None = None


def admit(connection: Conn, job: Job, delivery_id: UUID) -> Admission:
    """Ask for a delivery's moment; with `send` its attempt has begun. Raises LeaseLost."""
    with connection.cursor(binary=True) as cursor:
        row = cursor.execute(ADMIT, _fence(job, delivery_id)).fetchone()
    assert row is not None
    admission = Admission(*row)
    if admission.verdict == "lost":
        raise LeaseLost(f"job {job.id} is no longer this worker's")
    return admission


def admit_together(connection: Conn, asking: Sequence[tuple[Job, UUID]]) -> Mapping[UUID, Admission]:
    """Begin the attempts of those (job, delivery) that may go at once, by lease token; the others have to `admit`."""
    with connection.cursor(binary=True) as cursor:
        rows = cursor.execute(ADMIT_TOGETHER, _fences(asking)).fetchall()
    return {row[0]: Admission(*row[1:]) for row in rows}


def settle_together(
    connection: Conn, accepted: Sequence[tuple[Job, UUID]], tries: Sequence[int], answers: Sequence[Answer]
) -> Collection[UUID]:
    """Record the attempts that were accepted; the lease tokens of those that are. The others have to `settle`."""
    parameters = _fences(accepted) | {
        "tries": list(tries), "statuses": [answer.http_status for answer in answers],
        "took_ms": [answer.duration_ms for answer in answers], "answers": [answer.text or None for answer in answers],
    }  # fmt: skip
    with connection.cursor(binary=True) as cursor:
        return {token for (token,) in cursor.execute(SETTLE_TOGETHER, parameters)}


def settle(connection: Conn, job: Job, delivery_id: UUID, try_: int, answer: Answer, wait: float | None) -> Change:
    """Record what came of an attempt, and say what that changed of its endpoint; `wait` is the seconds until the next one, if it
    failed. Raises LeaseLost."""
    failure = answer.failure
    parameters = _fence(job, delivery_id) | {
        "try": try_, "accepted": failure is None, "status": answer.http_status, "took_ms": answer.duration_ms,
        "class": failure.error_class if failure else None, "error": failure.text if failure else None,
        "answer": answer.text or None, "wait": wait,
        "final": failure is not None and failure.kind is FailureKind.PERMANENT, "gone": answer.http_status == GONE,
    }  # fmt: skip
    row = one(connection, SETTLE, parameters)
    if row is None or row[0] is None:
        raise LeaseLost(f"job {job.id} is no longer this worker's")
    change: Change = row[0]
    return change


def withdraw(connection: Conn, job: Job, delivery_id: UUID, try_: int) -> None:
    """Take back an attempt of which nothing was sent."""
    connection.execute(WITHDRAW, _fence(job, delivery_id) | {"try": try_})


def _fences(of: Sequence[tuple[Job, UUID]]) -> dict[str, object]:
    """As text: an array of UUIDs costs ten times as much to write."""
    return {
        "jobs": [str(job.id) for job, _ in of],
        "tokens": [str(job.lease_token) for job, _ in of],
        "deliveries": [str(delivery) for _, delivery in of],
    }


def _fence(job: Job, delivery_id: UUID) -> dict[str, object]:
    return {"job": job.id, "token": job.lease_token, "delivery": delivery_id}
