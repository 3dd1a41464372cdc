"""What a person sends: what stands in its way, and how it goes out, through the same saga as everything else."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from psycopg.rows import class_row

from shared.conversation import held_back, parts
from shared.conversation.text import MESSAGE_UNITS, storable, utf16_units
from shared.db.pool import Conn
from shared.errors import UserError
from shared.queue.closing import close_row
from shared.queue.store import enqueue

TEXT_UNITS_AT_MOST = 10 * MESSAGE_UNITS  # of one answer: more is a document, not a message

LOCK = """
    SELECT id, mode, language, opted_out_at IS NOT NULL AS is_opted_out,
        coalesce(last_inbound_at > now() - interval '24 hours', false) AS is_window_open,
        needs_person_since IS NOT NULL AS needs_person
    FROM conversations WHERE id = %(id)s FOR NO KEY UPDATE
"""
# A person has answered. What came in later still waits for one, in manual mode.
CLEAR_FLAG = """
    UPDATE conversations c SET
        needs_person_since = CASE WHEN c.mode = 'manual' AND waits THEN coalesce(needs_person_since, now()) END,
        needs_person_reason = CASE WHEN c.mode = 'manual' AND waits THEN 'manual' END
    FROM (SELECT EXISTS (
        SELECT FROM messages WHERE conversation_id = %(id)s AND NOT from_self AND answered_by IS NULL) AS waits) AS open
    WHERE c.id = %(id)s
"""
# Dead letters that left nothing with the employee: what their burial covered waits for a restart, or for a person.
UNANSWERED_DEAD = """
    SELECT j.id FROM dead_letters j
    WHERE j.conversation_id = %(id)s AND j.type = 'autoreply'
        AND EXISTS (SELECT FROM messages q WHERE q.answered_by = j.id)
        AND NOT EXISTS (
            SELECT FROM messages r
            WHERE r.reply_id = j.id AND (r.status IN ('sending', 'sent', 'delivered', 'read')
                OR r.provider_sid IS NOT NULL OR r.status = 'held' AND r.send_started_at IS NOT NULL))
    ORDER BY j.seq FOR NO KEY UPDATE
"""
COVERS_NOTHING = """
    SELECT id FROM unnest(%(jobs)s::uuid[]) AS jobs (id)
    WHERE NOT EXISTS (SELECT FROM messages q WHERE q.answered_by = jobs.id)
"""
# New tries of what was not delivered, which wait and whose messages a person answers now.
IDLE_TRIES = """
    SELECT j.id, r.reply_id
    FROM ai_jobs j
        JOIN messages r ON r.id = (j.payload ->> 'message_id')::uuid AND r.source = 'ai' AND r.status = 'draft'
        JOIN messages f ON f.id = r.retry_of
    WHERE j.conversation_id = %(id)s AND j.type = 'send_message' AND j.status = 'pending'
        AND NOT EXISTS (SELECT FROM messages q WHERE q.answered_by = f.reply_id)
    ORDER BY j.seq FOR NO KEY UPDATE OF j
"""


@dataclass(frozen=True, slots=True)
class Locked:
    """A conversation whose row is locked until the transaction ends."""

    id: UUID
    mode: str
    language: str | None
    is_opted_out: bool
    is_window_open: bool
    needs_person: bool


def lock(connection: Conn, conversation_id: UUID) -> Locked:
    """Lock a conversation, before anything else of it. Raises UserError when there is none."""
    with connection.cursor(row_factory=class_row(Locked)) as cursor:
        found = cursor.execute(LOCK, {"id": conversation_id}).fetchone()
    if found is None:
        raise UserError("There is no such conversation.", name="no_conversation")
    return found


def check_reachable(conversation: Locked) -> None:
    """Raise UserError when nothing may be sent: opted out, or more than 24 hours after the last message."""
    if conversation.is_opted_out:
        raise UserError("This employee has opted out: nothing may be sent until they send START.", name="opted_out")
    if not conversation.is_window_open:
        raise UserError(
            "WhatsApp allows a message only within 24 hours of the employee's last one: wait until they write again.",
            name="outside_window",
        )


def sendable(text: str) -> str:
    """The text as it will be sent: trimmed, with plain line ends. Raises UserError when it is empty or too long."""
    said = storable(text).replace("\r\n", "\n").replace("\r", "\n").strip()
    if all(unicodedata.category(character)[0] in "CZ" for character in said):
        raise UserError("There is no text to send.", name="empty")
    if utf16_units(said) > TEXT_UNITS_AT_MOST:
        raise UserError(
            f"The text is {utf16_units(said)} characters long; an answer holds {TEXT_UNITS_AT_MOST}.",
            name="too_long",
        )
    return said


def post(
    connection: Conn,
    conversation: Locked,
    body: str,
    *,
    purpose: str,
    language: str | None = None,
    citations: Sequence[dict[str, Any]] = (),
    model: str | None = None,
    prompt_version: str | None = None,
    sources_hash: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> UUID:
    """Save a person's message and the job that sends it; returns its id, which is its reply's id too."""
    message_id = uuid4()
    drafts = parts.save(
        message_id=message_id, conversation_id=conversation.id, reply_id=message_id, source="admin", purpose=purpose,
        body=body, language=language or conversation.language, citations=citations, model=model,
        prompt_version=prompt_version, sources_hash=sources_hash, parameters=parameters,
    )  # fmt: skip
    for draft in drafts:
        connection.execute(draft.sql, draft.parameters)
    enqueue(connection, {"type": "send_message", "message_id": str(message_id)}, conversation_id=conversation.id)
    return message_id


def clear_flag(connection: Conn, conversation: Locked) -> None:
    """Nobody needs to look any more, unless messages are left that nobody but a person will answer."""
    connection.execute(CLEAR_FLAG, {"id": conversation.id})


def unanswered_dead(connection: Conn, conversation: Locked) -> list[UUID]:
    """The conversation's dead letters that a person's answer may take the place of, locked."""
    return [row[0] for row in connection.execute(UNANSWERED_DEAD, {"id": conversation.id})]


def close_answered(connection: Conn, dead: Sequence[UUID], *, who: str) -> list[UUID]:
    """Close those of the dead letters that nothing is left of, so that no restart answers a second time; which they were."""
    closed = covering_nothing(connection, dead)
    for job_id in closed:
        close_row(connection, job_id, who=who, reason="answered", status="failed")
        connection.execute(held_back.HOLD, {"reply_id": job_id})
    return closed


def withdraw_tries(connection: Conn, conversation: Locked, *, who: str) -> None:
    """Hold back the machine's new tries of what a person has answered instead. One that is claimed finds that out itself."""
    for job_id, reply_id in connection.execute(IDLE_TRIES, {"id": conversation.id}).fetchall():
        held_back.withdraw(connection, job_id, reply_id, who=who)


def covering_nothing(connection: Conn, jobs: Sequence[UUID]) -> list[UUID]:
    """The autoreplies whose messages others answer now."""
    return [row[0] for row in connection.execute(COVERS_NOTHING, {"jobs": list(jobs)})]
