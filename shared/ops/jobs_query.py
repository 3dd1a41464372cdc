"""The jobs page's rows: filtered by what the address holds, the newest first, a page by key."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from psycopg.rows import class_row

from shared.db.pool import Conn
from shared.errors import UserError
from shared.knowledge.people_reasons import BadRow
from shared.knowledge.phone import to_e164
from shared.ops.fields import Fields
from shared.ops.times import start_of

PAGE_SIZE = 50
ATTEMPTS_AT_MOST = 500
STATES: Final = ("pending", "processing", "failed", "done", "closed")

LIST = """
    SELECT j.id, j.seq, j.type, j.status,
        coalesce(p.name, c.profile_name, c.address, d.title, e.name, i.source, v.type || ' → ' || n.name) AS name,
        CASE WHEN c.id IS NOT NULL THEN '/conversations/' || c.id WHEN d.id IS NOT NULL THEN '/documents/' || d.id
            WHEN e.id IS NOT NULL THEN '/people/' || e.id WHEN i.id IS NOT NULL THEN '/people/imports/' || i.id
            WHEN v.id IS NOT NULL THEN '/webhooks/events/' || v.id END AS place,
        j.attempts, j.max_attempts, j.run, j.next_run_at, j.error_class, j.last_error, j.created_at, j.updated_at,
        j.closed_at, j.closed_by, j.closed_reason, j.payload, j.replay_id
    FROM ai_jobs j LEFT JOIN conversations c ON c.id = j.conversation_id LEFT JOIN people p ON p.id = c.person_id
        CROSS JOIN LATERAL (
            SELECT j.payload ->> CASE j.type WHEN 'embed_record' THEN 'id' WHEN 'import_people' THEN 'import_id'
                WHEN 'deliver_event' THEN 'delivery_id' END
        ) AS text (id)
        CROSS JOIN LATERAL (SELECT CASE WHEN pg_input_is_valid(text.id, 'uuid') THEN text.id::uuid END) AS target (id)
        LEFT JOIN documents d ON d.id = target.id AND j.payload ->> 'record' = 'document'
        LEFT JOIN people e ON e.id = target.id AND j.payload ->> 'record' = 'person'
        LEFT JOIN imports i ON i.id = target.id AND j.type = 'import_people'
        LEFT JOIN webhook_deliveries w ON w.id = target.id AND j.type = 'deliver_event'
        LEFT JOIN webhook_events v ON v.id = w.event_id LEFT JOIN webhook_endpoints n ON n.id = w.endpoint_id
    WHERE (%(status)s::text IS NULL OR j.status = %(status)s)
        AND (NOT %(is_open)s OR j.closed_at IS NULL) AND (NOT %(is_closed)s OR j.closed_at IS NOT NULL)
        AND (%(type)s::text IS NULL OR j.type = %(type)s)
        AND (%(address)s::text IS NULL OR c.address = %(address)s)
        AND (%(error_class)s::text IS NULL OR j.error_class = %(error_class)s)
        AND (%(error)s::text IS NULL OR strpos(lower(j.last_error), lower(%(error)s)) > 0)
        AND (%(since)s::timestamptz IS NULL OR j.updated_at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR j.updated_at < %(until)s)
        AND (%(ids)s::uuid[] IS NULL OR j.id = ANY (%(ids)s))
        AND (%(before)s::bigint IS NULL OR j.seq < %(before)s)
    ORDER BY j.seq DESC LIMIT %(limit)s
"""
# The job that answered a message, the one that sends it, and the one that wrote it.
OF_SID = """
    SELECT j.id FROM messages m JOIN ai_jobs j ON j.id IN (m.answered_by, m.reply_id) WHERE m.provider_sid = %(sid)s
    UNION
    SELECT j.id FROM messages m JOIN ai_jobs j ON j.conversation_id = m.conversation_id
    WHERE m.provider_sid = %(sid)s AND j.payload ->> 'message_id' = m.id::text
"""
ATTEMPTS = """
    SELECT run, claim, started, ended, outcome, error_class, http_status, error FROM (
        SELECT * FROM job_attempts WHERE job_id = %(id)s ORDER BY run DESC, claim DESC LIMIT %(limit)s
    ) AS newest ORDER BY run, claim
"""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job, with the name of whom or what it is for, and the path of that one's page."""

    id: UUID
    seq: int
    type: str
    status: str
    name: str | None
    place: str | None
    attempts: int
    max_attempts: int
    run: int
    next_run_at: datetime
    error_class: str | None
    last_error: str | None
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None
    closed_by: str | None
    closed_reason: str | None
    payload: dict[str, Any]
    replay_id: UUID | None  # the replay that restarted its present run

    @property
    def state(self) -> str:
        """One of STATES."""
        return "closed" if self.closed_at else self.status

    @property
    def next_try(self) -> int:
        """The number of the try that it waits for, within its run."""
        return self.attempts + 1

    @property
    def is_last_try(self) -> bool:
        """Whether that is the last that it gets."""
        return self.next_try >= self.max_attempts


@dataclass(frozen=True, slots=True)
class Attempt:
    """One claim of a job, and what became of it."""

    run: int
    claim: int
    started: datetime
    ended: datetime
    outcome: str
    error_class: str | None
    http_status: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Filter:
    """What the address asks for: `error` is a part of the last error's text; days by the pages' clock, `until` included."""

    state: str | None = None
    type: str | None = None
    phone: str | None = None
    sid: str | None = None
    error_class: str | None = None
    error: str | None = None
    since: date | None = None
    until: date | None = None

    @classmethod
    def read(cls, fields: Fields) -> Filter:
        """The filter of a query or a form. Raises UserError for a value that is none: it must not widen a restart."""
        return cls(
            fields.choice("state", STATES),
            fields.text("type"),
            fields.text("phone"),
            fields.text("sid"),
            fields.text("error_class"),
            fields.text("error"),
            fields.day("since"),
            fields.day("until"),
        )

    def query(self) -> dict[str, str]:
        """As parts of an address, and as hidden fields."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: str(value) for name, value in values.items() if value is not None}

    @property
    def address(self) -> str | None:
        """The address that the conversation has: a phone number in E.164, or WhatsApp's own user id as it was typed."""
        if self.phone is None:
            return None
        try:
            return to_e164(self.phone)
        except BadRow:
            return self.phone

    @property
    def period(self) -> tuple[datetime | None, datetime | None]:
        """From the first moment, up to but not including the last."""
        try:
            return (
                start_of(self.since) if self.since else None,
                start_of(self.until + timedelta(days=1)) if self.until else None,
            )
        except OverflowError as wrong:
            raise UserError("A day of the filter is not understood.", name="not_understood") from wrong


def list_jobs(connection: Conn, wanted: Filter, *, before: int | None = None) -> tuple[list[JobRow], int | None]:
    """A page of jobs, and the key of the next page if there is one."""
    ids = None
    if wanted.sid:
        ids = [row[0] for row in connection.execute(OF_SID, {"sid": wanted.sid})]
    rows = _rows(connection, wanted, ids, before, PAGE_SIZE + 1)
    return rows[:PAGE_SIZE], rows[PAGE_SIZE - 1].seq if len(rows) > PAGE_SIZE else None


def find_job(connection: Conn, job_id: UUID) -> JobRow | None:
    """One job."""
    return next(iter(_rows(connection, Filter(), [job_id], None, 1)), None)


def attempts_of(connection: Conn, job_id: UUID) -> list[Attempt]:
    """A job's attempts, oldest first; of more than ATTEMPTS_AT_MOST the newest."""
    with connection.cursor(row_factory=class_row(Attempt)) as cursor:
        return cursor.execute(ATTEMPTS, {"id": job_id, "limit": ATTEMPTS_AT_MOST}).fetchall()


def _rows(
    connection: Conn, wanted: Filter, ids: Collection[UUID] | None, before: int | None, limit: int
) -> list[JobRow]:
    since, until = wanted.period
    parameters = {
        "status": "failed" if wanted.state == "closed" else wanted.state,
        "is_open": wanted.state == "failed",
        "is_closed": wanted.state == "closed",
        "type": wanted.type,
        "address": wanted.address,
        "error_class": wanted.error_class,
        "error": wanted.error,
        "since": since,
        "until": until,
        "ids": None if ids is None else list(ids),
        "before": before,
        "limit": limit,
    }
    with connection.cursor(row_factory=class_row(JobRow)) as cursor:
        return cursor.execute(LIST, parameters).fetchall()
