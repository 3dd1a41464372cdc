"""What a conversation looks like at the moment that an answer is made, read from the rows in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

from psycopg.rows import class_row

from shared.conversation.consent import asks_for_person, change
from shared.conversation.courtesy import asks_nothing, has_words
from shared.db.pool import Conn
from shared.queue.job import Job

# Only the transaction that reads the open messages for a new draft clears `rerun`: a message that comes after this
# reading sets it again, and it then outlives every retry that reuses the draft.
CLEAR_RERUN = "UPDATE ai_jobs SET rerun = false WHERE id = %(id)s AND lease_token = %(token)s"
OPEN = """
    SELECT id, seq, body, media, provider_sid, answered_by, created_at < now() - interval '24 hours' AS is_stale,
        false AS is_buried
    FROM messages WHERE conversation_id = %(id)s AND NOT from_self AND answered_by IS NULL ORDER BY seq
"""
# Covered, but by no answer: a line, a burial, a person who found that none was due.
COVERED_ONLY = """
    SELECT id, seq, body, media, provider_sid, answered_by, false AS is_stale,
        EXISTS (SELECT FROM dead_letters j WHERE j.id = answered_by)
            OR EXISTS (
                SELECT FROM messages r
                WHERE r.reply_id = newest.answered_by AND r.source = 'ai' AND r.status = 'failed') AS is_buried
    FROM (
        SELECT * FROM messages m
        WHERE m.conversation_id = %(id)s AND NOT m.from_self AND m.created_at > now() - interval '24 hours'
            AND m.answered_by IS NOT NULL AND NOT EXISTS (
                SELECT FROM messages r
                WHERE r.reply_id = m.answered_by AND r.purpose IN ('answer', 'message')
                    AND r.status <> 'failed' AND NOT (r.status = 'held' AND r.send_started_at IS NULL))
        ORDER BY m.seq DESC LIMIT 20) AS newest
    ORDER BY seq
"""
# A burial covers what its job has read, and nothing that came in later.
NOTE_PROMPTED = "UPDATE messages SET prompted_by = %(job_id)s WHERE id = ANY (%(ids)s)"
SITUATION = """
    SELECT c.id, c.address, c.mode, c.language, c.opted_out_at IS NOT NULL AS is_opted_out, c.person_id,
        p.language AS person_language,
        -- A conversation may be linked in the same instant in which the number moves to somebody else.
        p.id IS NOT NULL AND (p.left_at IS NULL OR p.left_at > now())
            AND (p.phone = c.address OR c.address NOT LIKE '+%%') AS is_known,
        count(m.id) FILTER (WHERE m.purpose IN ('answer', 'unanswered') AND m.part = 1 AND m.retry_of IS NULL
            AND m.created_at > now() - interval '24 hours')::int AS answers_today,
        coalesce(bool_or(m.purpose = 'decline' AND m.created_at > now() - interval '24 hours'), false) AS declined_today,
        coalesce(bool_or(m.purpose = 'limit' AND m.created_at > now() - interval '24 hours'), false) AS limited_today,
        coalesce(bool_or(m.purpose IN ('answer', 'unanswered') AND m.source = 'ai'
            AND m.created_at > now() - interval '30 days'), false) AS was_told,
        CASE c.mode WHEN 'manual' THEN (
            SELECT count(*)::int FROM ai_jobs j WHERE j.conversation_id = c.id AND j.type = 'autoreply'
                AND j.created_at > now() - interval '24 hours') ELSE 0 END AS drafts_today
    FROM conversations c
    LEFT JOIN people p ON p.id = c.person_id
    LEFT JOIN messages m ON m.conversation_id = c.id AND m.from_self AND m.created_at > now() - interval '30 days'
        AND m.status <> 'failed' AND NOT (m.status = 'held' AND m.send_started_at IS NULL)
    WHERE c.id = %(id)s
    GROUP BY c.id, p.id
"""
# What was not answered is no history: a message that the model's filter refused would have the next prompt refused as well.
HISTORY = """
    SELECT from_self, body FROM (
        SELECT m.seq, m.from_self, m.body FROM messages m
        WHERE m.conversation_id = %(id)s AND m.body <> '' AND m.status NOT IN ('draft', 'failed')
            AND NOT (m.status = 'held' AND m.send_started_at IS NULL)
            AND m.purpose IN ('message', 'answer', 'unanswered') AND NOT (m.id = ANY (%(open)s))
            AND m.created_at > now() - interval '24 hours' AND (%(before)s::bigint IS NULL OR m.seq < %(before)s)
            AND (m.from_self OR EXISTS (
                SELECT FROM messages r WHERE r.reply_id = m.answered_by AND r.status <> 'failed'))
        ORDER BY m.seq DESC LIMIT 6) AS newest
    ORDER BY seq
"""


@dataclass(frozen=True, slots=True)
class OpenMessage:
    """An inbound message that no answer covers yet; `is_stale` after 24 hours, `is_buried` with a job or an answer that died."""

    id: UUID
    seq: int
    body: str
    media: list[dict[str, Any]]
    provider_sid: str | None
    answered_by: UUID | None
    is_stale: bool
    is_buried: bool


@dataclass(frozen=True, slots=True)
class Situation:
    """The conversation's side of the decision what to answer."""

    id: UUID
    address: str
    mode: str
    language: str | None
    is_opted_out: bool
    person_id: UUID | None
    person_language: str | None
    is_known: bool
    answers_today: int
    declined_today: bool
    limited_today: bool
    was_told: bool
    drafts_today: int  # counted in manual mode alone, where nothing that was sent can be counted


@dataclass(frozen=True, slots=True)
class Thread:
    """The situation, the open messages, oldest first, and up to six earlier ones as (from_self, text)."""

    situation: Situation
    open: list[OpenMessage]
    history: list[tuple[bool, str]]

    @property
    def ai_reply_already_exists(self) -> bool:
        """The guard: every inbound message of the conversation is covered by a reply."""
        return not self.open

    @property
    def fresh(self) -> list[OpenMessage]:
        """The open messages that are questions: younger than 24 hours."""
        return [message for message in self.open if not message.is_stale]

    @property
    def has_unseen(self) -> bool:
        """Whether something came along with them that nobody looks at: a photo, a file."""
        return any(message.media for message in self.fresh)

    @property
    def text(self) -> str:
        """What the employee asks: the fresh messages, a line each."""
        return "\n".join(message.body for message in self.fresh if message.body.strip())


def read(connection: Conn, job: Job, conversation_id: UUID) -> Thread:
    """Read the thread for a new draft, inside the job's fenced transaction."""
    connection.execute(CLEAR_RERUN, {"id": job.id, "token": job.lease_token})
    found = look(connection, conversation_id)
    connection.execute(NOTE_PROMPTED, {"job_id": job.id, "ids": [message.id for message in found.fresh]})
    return found


def look(connection: Conn, conversation_id: UUID) -> Thread:
    """Read the thread as it stands, and note nothing."""
    return _thread(connection, conversation_id, _messages(connection, OPEN, conversation_id), before=None)


def look_back(connection: Conn, conversation_id: UUID) -> tuple[Thread, list[UUID]]:
    """The thread for somebody who asks what could be answered, and which of its messages an answer would cover.

    When no open message asks anything, it is as it stood at the last question that was covered without an answer: the
    documents did not say, or the answer died.
    """
    found = look(connection, conversation_id)
    if any(_is_question(message) for message in found.fresh):
        return found, [message.id for message in found.fresh]
    asked = [message for message in _messages(connection, COVERED_ONLY, conversation_id) if _is_question(message)]
    last = [message for message in asked if message.answered_by == asked[-1].answered_by]
    found = _thread(connection, conversation_id, last, before=last[0].seq if last else None)
    return found, [message.id for message in last if message.is_buried]


def _is_question(message: OpenMessage) -> bool:
    said = message.body
    is_none = asks_nothing(said) or asks_for_person(said) or change(said) != (None, None)
    return has_words(said) and not is_none


def _messages(connection: Conn, sql: LiteralString, conversation_id: UUID) -> list[OpenMessage]:
    with connection.cursor(row_factory=class_row(OpenMessage)) as cursor:
        return cursor.execute(sql, {"id": conversation_id}).fetchall()


def _thread(connection: Conn, conversation_id: UUID, messages: list[OpenMessage], *, before: int | None) -> Thread:
    with connection.cursor(row_factory=class_row(Situation)) as cursor:
        situation = cursor.execute(SITUATION, {"id": conversation_id}).fetchone()
    assert situation is not None, "a job's conversation is a foreign key"
    parameters = {"id": conversation_id, "open": [message.id for message in messages], "before": before}
    history = connection.execute(HISTORY, parameters).fetchall()
    return Thread(situation, messages, [(bool(row[0]), str(row[1])) for row in history])
