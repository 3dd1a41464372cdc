"""One conversation as its page shows it: its state, a page of its thread with the jobs beside it, and what is being drafted.

A page that refreshes itself asks for the `stamp` alone, one statement, and reads the rest only when that has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from shared.db.pool import Conn, one

FIND = """
    SELECT c.id, c.address, p.name, c.profile_name, p.department, p.id AS person_id,
        coalesce(p.left_at <= now(), false) AS has_left, coalesce(c.language, p.language) AS language, c.mode, c.created_at,
        c.last_inbound_at, c.opted_out_at, c.needs_person_since, c.needs_person_reason,
        c.last_inbound_at + interval '24 hours' AS window_ends_at,
        coalesce(c.last_inbound_at > now() - interval '24 hours', false) AS is_window_open,
        CASE c.mode WHEN 'manual' THEN (
            SELECT a.who FROM audit_log a WHERE a.target_id = c.id::text AND a.what = 'take_over'
            ORDER BY a.id DESC LIMIT 1) END AS taken_over_by
    FROM conversations c LEFT JOIN people p ON p.id = c.person_id
    WHERE c.id = %(id)s
"""
# The job beside a message: the one that wrote it or sends it; for what came in the one that answered it, that has read it
# last, or that will. An answer of a person is in the audit log by its id.
THREAD = """
    WITH page AS MATERIALIZED (
        SELECT id, seq, from_self, source, purpose, body, media, status, held_reason, error_code, citations, answered_by,
            prompted_by, reply_id, part, parts, provider_sid, evidence, template_sid, send_started_at, retry_of,
            conversation_id, created_at
        FROM messages
        WHERE conversation_id = %(id)s AND (%(before)s::bigint IS NULL OR seq < %(before)s)
        ORDER BY seq DESC LIMIT %(limit)s
    )
    SELECT page.id, page.seq, page.from_self, page.source, page.purpose, page.body, page.media, page.status,
        page.held_reason, page.error_code, page.citations, page.created_at,
        NOT page.from_self AND page.answered_by IS NULL AS is_open,
        coalesce(NOT page.from_self AND page.answered_by = page.id, false) AS needs_no_answer,
        job.id AS job_id, job.type AS job_type, job.error_class AS job_error_class, job.next_run_at AS job_next_run_at,
        job.attempts AS job_attempts, CASE WHEN job.closed_at IS NULL THEN job.status ELSE 'closed' END AS job_state,
        written.who AS written_by, page.reply_id, page.part, page.parts, page.evidence, page.template_sid,
        page.retry_of IS NOT NULL AS is_retry, page.provider_sid IS NOT NULL AS is_accepted,
        page.from_self AND page.status = 'held' AND page.send_started_at IS NOT NULL AS is_in_doubt,
        page.from_self AND page.status IN ('held', 'failed') AND EXISTS (
            SELECT FROM ai_jobs d
            WHERE d.conversation_id = page.conversation_id AND d.status = 'failed' AND d.closed_at IS NULL
                AND (d.id = page.reply_id OR d.payload ->> 'message_id' = page.reply_id::text)) AS has_dead_letter,
        page.from_self AND page.status = 'failed' AND EXISTS (
            SELECT FROM messages r WHERE r.retry_of = coalesce(page.retry_of, page.id)
                AND r.status IN ('draft', 'sending', 'held', 'sent', 'delivered', 'read')) AS is_retried
    FROM page
    LEFT JOIN LATERAL (
        SELECT 1 AS rank, j.* FROM ai_jobs j WHERE j.id = page.reply_id
        UNION ALL
        SELECT 2, j.* FROM ai_jobs j
        WHERE page.from_self AND j.type = 'send_message' AND j.payload ->> 'message_id' = page.reply_id::text
        UNION ALL
        SELECT 3, j.* FROM ai_jobs j WHERE j.id = page.answered_by
        UNION ALL
        SELECT 4, j.* FROM ai_jobs j
        WHERE NOT page.from_self AND page.answered_by IS NULL AND j.conversation_id = page.conversation_id
            AND j.type = 'autoreply' AND j.status IN ('pending', 'processing')
        UNION ALL
        SELECT 5, j.* FROM ai_jobs j WHERE j.id = page.prompted_by
        ORDER BY rank LIMIT 1
    ) AS job ON true
    LEFT JOIN LATERAL (
        SELECT a.who FROM audit_log a WHERE page.source = 'admin' AND a.details ->> 'message' = page.reply_id::text LIMIT 1
    ) AS written ON true
    ORDER BY page.seq
"""
# What was last asked for among the newest jobs, or an autoreply that drafts: in manual mode that becomes a suggestion too.
DRAFTING = """
    SELECT j.id, j.type, CASE WHEN j.closed_at IS NULL THEN j.status ELSE 'closed' END AS state, j.error_class,
        j.created_at, j.updated_at, EXISTS (
            SELECT FROM suggestions s WHERE s.conversation_id = j.conversation_id AND s.job_id = j.id) AS has_suggestion
    FROM (SELECT * FROM ai_jobs WHERE conversation_id = %(id)s ORDER BY seq DESC LIMIT 20) AS j
    WHERE j.type = 'suggest' OR j.type = 'autoreply' AND j.status IN ('pending', 'processing')
    ORDER BY j.seq DESC LIMIT 1
"""
# `xmin` changes with every change of a row, whatever it is. The id as a parameter, so that the plan is this conversation's.
STAMP = """
    SELECT hashtextextended(concat_ws(' ', c.xmin, p.xmin, c.last_inbound_at > now() - interval '24 hours',
        (SELECT string_agg(concat_ws(':', m.seq, m.xmin), ' ' ORDER BY m.seq) FROM (
            SELECT seq, xmin FROM messages WHERE conversation_id = %(id)s ORDER BY seq DESC LIMIT %(limit)s) AS m),
        (SELECT string_agg(concat_ws(':', j.seq, j.xmin), ' ' ORDER BY j.seq) FROM (
            SELECT seq, xmin FROM ai_jobs WHERE conversation_id = %(id)s ORDER BY seq DESC LIMIT %(limit)s) AS j),
        (SELECT string_agg(concat_ws(':', s.id, s.xmin), ' ' ORDER BY s.id) FROM (
            SELECT id, xmin FROM suggestions WHERE conversation_id = %(id)s
            ORDER BY created_at DESC LIMIT 3) AS s)), 0)::text
    FROM conversations c LEFT JOIN people p ON p.id = c.person_id
    WHERE c.id = %(id)s
"""
# Up to what a page had shown, or a moment ago: a second click, or a browser that sends its form again.
SENT_ALREADY = """
    SELECT id FROM messages
    WHERE conversation_id = %(id)s AND source = 'admin' AND body = %(body)s AND status <> 'failed'
        AND (seq > %(seen_seq)s OR created_at > now() - interval '10 seconds')
    ORDER BY seq DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Its state. `name` is the known person's; `window_ends_at`: until then WhatsApp allows an answer."""

    id: UUID
    address: str
    name: str | None
    profile_name: str | None
    department: str | None
    person_id: UUID | None
    has_left: bool
    language: str | None
    mode: str
    created_at: datetime
    last_inbound_at: datetime | None
    opted_out_at: datetime | None
    needs_person_since: datetime | None
    needs_person_reason: str | None
    window_ends_at: datetime | None
    is_window_open: bool
    taken_over_by: str | None

    @property
    def shown_name(self) -> str:
        """What to call the employee."""
        return self.name or self.profile_name or self.address

    @property
    def obstacle(self) -> str | None:
        """Why nothing may be sent, if so: the name that the error has which an action would raise."""
        if self.opted_out_at:
            return "opted_out"
        return None if self.is_window_open else "outside_window"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the thread, with the job beside it and, of a person's answer, who wrote it.

    Of ours: `is_accepted` Twilio has it; `is_in_doubt` it is held and may have left; `has_dead_letter` its job has died;
    `is_retried` it was not delivered, and another one repeats it; `is_retry` it is such a one.
    """

    id: UUID
    seq: int
    from_self: bool
    source: str
    purpose: str
    body: str
    media: list[dict[str, Any]]
    status: str
    held_reason: str | None
    error_code: str | None
    citations: list[dict[str, Any]]
    created_at: datetime
    is_open: bool
    needs_no_answer: bool
    job_id: UUID | None
    job_type: str | None
    job_error_class: str | None
    job_next_run_at: datetime | None
    job_attempts: int | None
    job_state: str | None
    written_by: str | None
    reply_id: UUID | None
    part: int | None
    parts: int | None
    evidence: str | None
    template_sid: str | None
    is_retry: bool
    is_accepted: bool
    is_in_doubt: bool
    has_dead_letter: bool
    is_retried: bool


@dataclass(frozen=True, slots=True)
class Drafting:
    """The job that makes a suggestion, or has tried to."""

    id: UUID
    type: str
    state: str
    error_class: str | None
    created_at: datetime
    updated_at: datetime
    has_suggestion: bool


def find(connection: Conn, conversation_id: UUID) -> Conversation | None:
    """A conversation's state."""
    with connection.cursor(row_factory=class_row(Conversation)) as cursor:
        return cursor.execute(FIND, {"id": conversation_id}).fetchone()


def thread(connection: Conn, conversation_id: UUID, *, before: int | None, limit: int) -> list[Message]:
    """A page of the thread, oldest first: the newest messages, or those before a seq."""
    parameters = {"id": conversation_id, "before": before, "limit": limit}
    with connection.cursor(row_factory=class_row(Message)) as cursor:
        return cursor.execute(THREAD, parameters).fetchall()


def drafting(connection: Conn, conversation_id: UUID) -> Drafting | None:
    """The newest of the jobs that draft for a person."""
    with connection.cursor(row_factory=class_row(Drafting)) as cursor:
        return cursor.execute(DRAFTING, {"id": conversation_id}).fetchone()


def stamp(connection: Conn, conversation_id: UUID, *, limit: int) -> str | None:
    """A text that is another one when anything of the conversation's newest `limit` messages has changed; None: no such one."""
    row = one(connection, STAMP, {"id": conversation_id, "limit": limit})
    return None if row is None else str(row[0])


def sent_already(connection: Conn, conversation_id: UUID, body: str, *, seen_seq: int) -> bool:
    """Whether a person's answer is there already, sent by the same click. Ask under the conversation's lock."""
    return one(connection, SENT_ALREADY, {"id": conversation_id, "body": body, "seen_seq": seen_seq}) is not None
