"""Jobs as people look at them: filtered lists, one job with its attempts, and the counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from shared.db.pool import Conn
from shared.db.text import storable

LIST_JOBS = """
    SELECT j.id, j.type, j.status, c.address, j.attempts, j.max_attempts, j.run,
        CASE WHEN j.status = 'pending'
            THEN extract(epoch FROM j.next_run_at - clock_timestamp())::float8 END AS next_run_in,  -- now() may precede the wait
        j.error_class, j.last_error, j.created_at, j.updated_at, j.closed_reason, j.replay_id
    FROM ai_jobs j LEFT JOIN conversations c ON c.id = j.conversation_id
    WHERE (%(state)s::text IS NULL OR j.status = %(state)s)
        AND (%(type)s::text IS NULL OR j.type = %(type)s)
        AND (%(phone)s::text IS NULL OR c.address = %(phone)s)
        AND (%(error_class)s::text IS NULL OR j.error_class = %(error_class)s)
        AND (%(sid)s::text IS NULL OR EXISTS (
            SELECT FROM messages m WHERE m.provider_sid = %(sid)s
                AND j.id::text IN (m.answered_by::text, m.reply_id::text)
            UNION ALL
            SELECT FROM messages m WHERE m.provider_sid = %(sid)s AND j.payload ->> 'message_id' = m.id::text))
        AND (%(ids)s::uuid[] IS NULL OR j.id = ANY (%(ids)s))
    ORDER BY j.seq DESC LIMIT %(limit)s
"""
LIST_ATTEMPTS = """
    SELECT job_id, run, claim, started, ended, outcome, error_class, http_status, error
    FROM job_attempts WHERE job_id = ANY (%(ids)s) ORDER BY job_id, run, claim
"""
# The longest claims of the last day. The second condition is the index's, which holds nothing shorter.
SLOW = """
    SELECT a.job_id, j.type, coalesce(p.name, c.profile_name, c.address) AS name,
        extract(epoch FROM a.ended - a.started)::float8 AS seconds, a.started, a.outcome, a.error_class
    FROM job_attempts a JOIN ai_jobs j ON j.id = a.job_id
        LEFT JOIN conversations c ON c.id = j.conversation_id LEFT JOIN people p ON p.id = c.person_id
    WHERE a.ended > now() - interval '24 hours' AND a.ended - a.started >= interval '1 second'
        AND a.ended - a.started > make_interval(secs => %(threshold)s) AND (%(type)s::text IS NULL OR j.type = %(type)s)
    ORDER BY a.ended - a.started DESC LIMIT %(limit)s
"""
JOB_COUNTS = """
    SELECT type, status, count(*)::int,
        max(extract(epoch FROM now() - next_run_at)) FILTER (WHERE status = 'pending' AND next_run_at <= now())::float8
    FROM ai_jobs WHERE closed_at IS NULL GROUP BY type, status ORDER BY type, status
"""
RESTING = """
    SELECT type, extract(epoch FROM resting_until - now())::float8, resting_reason
    FROM job_types WHERE resting_until IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job; `next_run_in` in seconds, for those that wait."""

    id: UUID
    type: str
    status: str
    address: str | None
    attempts: int
    max_attempts: int
    run: int
    next_run_in: float | None
    error_class: str | None
    last_error: str | None
    created_at: datetime
    updated_at: datetime
    closed_reason: str | None
    replay_id: UUID | None  # the replay that restarted its present run

    @property
    def next_try(self) -> int:
        """The number of the try that it waits for, within its run."""
        return self.attempts + 1

    @property
    def is_last_try(self) -> bool:
        """Whether that is the last that it gets."""
        return self.next_try >= self.max_attempts


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt of a job."""

    job_id: UUID
    run: int
    claim: int
    started: datetime
    ended: datetime
    outcome: str
    error_class: str | None
    http_status: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class SlowJob:
    """One claim that took long, of whom it was for."""

    job_id: UUID
    type: str
    name: str | None
    seconds: float
    started: datetime
    outcome: str
    error_class: str | None


def list_jobs(
    connection: Conn,
    *,
    state: str | None = None,
    job_type: str | None = None,
    phone: str | None = None,
    sid: str | None = None,
    error_class: str | None = None,
    ids: Sequence[UUID] | None = None,
    limit: int = 50,
) -> list[JobRow]:
    """The newest jobs that match every filter that is given."""
    texts = {"state": state, "type": job_type, "phone": phone, "sid": sid, "error_class": error_class}
    parameters: dict[str, Any] = {
        **{name: None if text is None else storable(text) for name, text in texts.items()},
        "ids": None if ids is None else list(ids),
        "limit": limit,
    }
    with connection.cursor(row_factory=class_row(JobRow)) as cursor:
        return cursor.execute(LIST_JOBS, parameters).fetchall()


def attempts_of(connection: Conn, job_ids: Sequence[UUID]) -> dict[UUID, list[AttemptRow]]:
    """The attempts of jobs, oldest first."""
    found: dict[UUID, list[AttemptRow]] = {job_id: [] for job_id in job_ids}
    with connection.cursor(row_factory=class_row(AttemptRow)) as cursor:
        for attempt in cursor.execute(LIST_ATTEMPTS, {"ids": list(job_ids)}):
            found[attempt.job_id].append(attempt)
    return found


def slow_jobs(connection: Conn, threshold: float, *, job_type: str | None = None, limit: int = 10) -> list[SlowJob]:
    """The longest claims of the last 24 hours, over `threshold` seconds and over one second."""
    with connection.cursor(row_factory=class_row(SlowJob)) as cursor:
        return cursor.execute(SLOW, {"threshold": threshold, "type": job_type, "limit": limit}).fetchall()


def job_counts(connection: Conn) -> list[tuple[str, str, int, float | None]]:
    """Type, state, how many, and how long the oldest due one has waited (seconds)."""
    return [(str(t), str(s), int(n), oldest) for t, s, n, oldest in connection.execute(JOB_COUNTS)]


def resting_types(connection: Conn) -> list[tuple[str, float, str]]:
    """The types that rest: name, seconds until the next probe, and why."""
    return [(str(t), float(left), str(why)) for t, left, why in connection.execute(RESTING)]
