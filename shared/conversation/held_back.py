"""Holding back what the machine has drafted when a person takes its place.

The message is marked as never sent, and what it covered is open again. In manual mode its text is not lost: it becomes a
suggestion, so that no second answer is paid for.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from shared.conversation import words
from shared.db.pool import Conn, one
from shared.queue.closing import close_row

# An autoreply that waits with a draft that has not left, and with nothing that may have left: that is looked up first. A
# worker that has just claimed it is found out by the intent.
WAITING = """
    SELECT j.id, j.rerun FROM ai_jobs j
    WHERE j.conversation_id = %(conversation_id)s AND j.type = 'autoreply' AND j.status = 'pending' AND EXISTS (
        SELECT FROM messages m
        WHERE m.reply_id = j.id AND m.provider_sid IS NULL
            AND (m.status IN ('draft', 'failed') OR m.status = 'held' AND m.send_started_at IS NULL))
        AND NOT EXISTS (
            SELECT FROM messages m WHERE m.reply_id = j.id AND m.provider_sid IS NULL
                AND (m.status = 'sending' OR m.status = 'held' AND m.send_started_at IS NOT NULL))
    FOR NO KEY UPDATE
"""
# Small lines that wait. A confirmation of STOP or START is due whoever answers, and so is the word that a person was asked.
WAITING_LINES = """
    SELECT j.id, m.id, m.purpose = 'apology'
    FROM ai_jobs j JOIN messages m ON m.id = uuid_or_null(j.payload ->> 'message_id')
    WHERE j.conversation_id = %(conversation_id)s AND j.type = 'send_message' AND j.status = 'pending'
        AND m.source = 'system' AND m.purpose NOT IN ('consent', 'person') AND m.provider_sid IS NULL
        AND (m.status IN ('draft', 'failed') OR m.status = 'held' AND m.send_started_at IS NULL)
    ORDER BY j.seq FOR NO KEY UPDATE OF j
"""
# Once a part of it may be with the employee, the rest stays unsent, but what it answers is not asked again.
HAS_BEGUN = """
    SELECT FROM messages WHERE reply_id = %(reply_id)s AND from_self
        AND (status IN ('sending', 'sent', 'delivered', 'read') OR provider_sid IS NOT NULL
            OR status = 'held' AND send_started_at IS NOT NULL)
"""
# The last part has all citations: the line of sources is in it.
KEEP_AS_SUGGESTION = """
    WITH wanted AS MATERIALIZED (
        SELECT m.conversation_id, m.reply_id, m.citations, m.model, m.prompt_version, m.sources_hash, m.parameters,
            (SELECT string_agg(p.body, '' ORDER BY p.part) FROM messages p WHERE p.reply_id = m.reply_id) AS body,
            coalesce(m.language, 'nl') AS language,
            CASE m.language WHEN 'en' THEN %(notice_en)s ELSE %(notice_nl)s END AS notice,
            (SELECT array_agg(q.id ORDER BY q.seq) FROM messages q WHERE q.answered_by = m.reply_id) AS answers
        FROM messages m JOIN conversations c ON c.id = m.conversation_id
        WHERE m.reply_id = %(reply_id)s AND m.part = m.parts AND m.source = 'ai' AND m.purpose = 'answer'
            AND c.mode = 'manual' AND c.opted_out_at IS NULL
            AND EXISTS (SELECT FROM messages q WHERE q.answered_by = m.reply_id)
    ), older AS (
        UPDATE suggestions s SET state = 'rejected', decided_by = 'newer', decided_at = now()
        FROM wanted WHERE s.conversation_id = wanted.conversation_id AND s.state = 'open'
        RETURNING s.id
    )
    INSERT INTO suggestions (conversation_id, asked_by, job_id, text, language, citations, model, prompt_version,
        sources_hash, parameters, answers)
    SELECT conversation_id, 'manual mode', reply_id,
        CASE WHEN starts_with(body, notice) THEN substr(body, length(notice) + 1) ELSE body END,
        language, citations, model, prompt_version, sources_hash, parameters, answers
    FROM wanted CROSS JOIN (SELECT count(*) FROM older) AS closed
"""
REOPEN = "UPDATE messages SET answered_by = NULL WHERE answered_by = %(reply_id)s AND NOT from_self"
HOLD = """
    UPDATE messages SET status = 'failed', held_reason = 'taken_over'
    WHERE reply_id = %(reply_id)s AND from_self AND provider_sid IS NULL
        AND (status IN ('draft', 'failed') OR status = 'held' AND send_started_at IS NULL)
    RETURNING conversation_id
"""
# Half an answer went out: somebody has to say the rest.
FLAG_HALF = """
    UPDATE conversations SET needs_person_since = coalesce(needs_person_since, now()),
        needs_person_reason = coalesce(needs_person_reason, 'manual')
    WHERE id = %(conversation_id)s
"""
# What is open in manual mode waits for a person.
FLAG_WAITING = """
    UPDATE conversations c SET needs_person_since = coalesce(needs_person_since, now()),
        needs_person_reason = coalesce(needs_person_reason, 'manual')
    WHERE id = %(conversation_id)s AND mode = 'manual' AND EXISTS (
        SELECT FROM messages m WHERE m.conversation_id = c.id AND NOT m.from_self AND m.answered_by IS NULL)
"""


@dataclass(frozen=True, slots=True)
class WaitingLine:
    """A small line whose job waits."""

    job_id: UUID
    message_id: UUID
    is_apology: bool


def hold_back(connection: Conn, reply_id: UUID) -> None:
    """Hold back an unsent reply of the machine, inside a transaction that has locked its conversation and its job."""
    key = {"reply_id": reply_id, "notice_nl": words.notice("nl"), "notice_en": words.notice("en")}
    has_begun = one(connection, HAS_BEGUN, key) is not None
    if not has_begun:
        connection.execute(KEEP_AS_SUGGESTION, key)
        connection.execute(REOPEN, key)
    held = one(connection, HOLD, key)
    if held is not None and has_begun:
        connection.execute(FLAG_HALF, {"conversation_id": held[0]})
    elif held is not None:
        flag_waiting(connection, held[0])


def flag_waiting(connection: Conn, conversation_id: UUID) -> None:
    """Ask for a person if messages wait for one."""
    connection.execute(FLAG_WAITING, {"conversation_id": conversation_id})


def waiting(connection: Conn, conversation_id: UUID) -> tuple[UUID, bool] | None:
    """The conversation's autoreply if it waits with an unsent draft, locked; and whether newer messages have joined it."""
    row = one(connection, WAITING, {"conversation_id": conversation_id})
    return None if row is None else (row[0], bool(row[1]))


def waiting_lines(connection: Conn, conversation_id: UUID) -> list[WaitingLine]:
    """The small lines that wait and that a person takes the place of, their jobs locked."""
    rows = connection.execute(WAITING_LINES, {"conversation_id": conversation_id}).fetchall()
    return [WaitingLine(*row) for row in rows]


def withdraw(connection: Conn, job_id: UUID, reply_id: UUID, *, who: str) -> None:
    """Hold back the draft of a job that waits, as given here, and close the job: nothing of it goes out any more."""
    hold_back(connection, reply_id)
    close_row(connection, job_id, who=who, reason="taken_over", status="pending")
