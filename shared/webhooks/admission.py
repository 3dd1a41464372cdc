"""May a delivery go now, and what became of it: the two statements of an attempt, each fenced by its job's lease.

What they decide (breaker, concurrency, rate, promised moments) is in the functions of the database, under the endpoint's lock,
since it holds over all instances (migration 0007).
"""

from __future__ import annotations

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
# As if it had not begun: nothing was sent.
WITHDRAW = """
    DELETE FROM webhook_attempts
    WHERE delivery_id = %(delivery)s AND try = %(try)s AND ended IS NULL
        AND EXISTS (SELECT FROM ai_jobs WHERE id = %(job)s AND lease_token = %(token)s AND status = 'processing')
"""

GONE = 410


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
    replay: str | None
    replay_attempt: int | None
    original_timestamp: int | None
    error_class: str | None
    error: str | None
    http_status: int | None


def admit(connection: Conn, job: Job, delivery_id: UUID) -> Admission:
    """Ask for a delivery's moment; with `send` its attempt has begun. Raises LeaseLost."""
    with connection.cursor(binary=True) as cursor:
        row = cursor.execute(ADMIT, _fence(job, delivery_id)).fetchone()
    assert row is not None
    admission = Admission(*row)
    if admission.verdict == "lost":
        raise LeaseLost(f"job {job.id} is no longer this worker's")
    return admission


def settle(connection: Conn, job: Job, delivery_id: UUID, try_: int, answer: Answer, wait: float | None) -> None:
    """Record what came of an attempt; `wait` is the seconds until the next one, if it failed. Raises LeaseLost."""
    failure = answer.failure
    parameters = _fence(job, delivery_id) | {
        "try": try_, "accepted": failure is None, "status": answer.http_status, "took_ms": answer.duration_ms,
        "class": failure.error_class if failure else None, "error": failure.text if failure else None,
        "answer": answer.text or None, "wait": wait,
        "final": failure is not None and failure.kind is FailureKind.PERMANENT, "gone": answer.http_status == GONE,
    }  # fmt: skip
    row = one(connection, SETTLE, parameters)
    if row is None or not row[0]:
        raise LeaseLost(f"job {job.id} is no longer this worker's")


def withdraw(connection: Conn, job: Job, delivery_id: UUID, try_: int) -> None:
    """Take back an attempt of which nothing was sent."""
    connection.execute(WITHDRAW, _fence(job, delivery_id) | {"try": try_})


def _fence(job: Job, delivery_id: UUID) -> dict[str, object]:
    return {"job": job.id, "token": job.lease_token, "delivery": delivery_id}
