"""Suggested answers: drafted for a person, stored, and sent only when a person says so.

One is open in a conversation at most: a newer one takes its place. Approving one covers the messages that waited for an answer
when it was made, if they still do; once somebody else has answered them all it cannot be approved any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from shared import audit
from shared.conversation import outgoing, thread
from shared.conversation.consent import Language
from shared.conversation.outgoing import Locked
from shared.db.pool import Conn, one
from shared.errors import UserError
from shared.queue.job import Write
from shared.queue.store import enqueue

BY_MANUAL_MODE = "manual mode"  # asked_by, when nobody asked but the conversation is a person's

# A second click, or a second person, waits for the same draft; a message that came since asks for another.
BEING_MADE = """
    SELECT id FROM ai_jobs
    WHERE conversation_id = %(id)s AND type = 'suggest' AND (status = 'pending' OR status = 'processing'
        AND claimed_at > (SELECT last_inbound_at FROM conversations WHERE id = %(id)s))
    ORDER BY seq DESC LIMIT 1
"""
# Nothing is stored once all that it answers is answered, or when it is there already as part of a wider one.
STORE = """
    WITH wanted AS MATERIALIZED (
        SELECT c.id FROM conversations c
        WHERE c.id = %(conversation_id)s AND c.opted_out_at IS NULL AND (c.mode = 'manual' OR NOT %(only_in_manual)s)
            AND (cardinality(%(answers)s::uuid[]) = 0 OR EXISTS (
                SELECT FROM messages m
                WHERE m.id = ANY (%(answers)s::uuid[]) AND m.answered_by IS NOT DISTINCT FROM %(covered_by)s::uuid))
            AND NOT EXISTS (
                SELECT FROM suggestions s WHERE s.conversation_id = c.id AND s.state = 'open'
                    AND s.answers @> %(answers)s::uuid[] AND cardinality(s.answers) > cardinality(%(answers)s::uuid[])
                    AND cardinality(%(answers)s::uuid[]) > 0)
    ), older AS (
        UPDATE suggestions s SET state = 'rejected', decided_by = 'newer', decided_at = now()
        FROM wanted WHERE s.conversation_id = wanted.id AND s.state = 'open'
        RETURNING s.id
    )
    INSERT INTO suggestions (conversation_id, asked_by, job_id, text, language, citations, model, prompt_version,
        sources_hash, parameters, answers)
    SELECT wanted.id, %(asked_by)s, %(job_id)s, %(text)s, %(language)s, %(citations)s, %(model)s, %(prompt_version)s,
        %(sources_hash)s, %(parameters)s, %(answers)s
    FROM wanted CROSS JOIN (SELECT count(*) FROM older) AS closed
"""
WHERE_IT_IS = "SELECT conversation_id FROM suggestions WHERE id = %(id)s"
READ = """
    SELECT s.id, s.conversation_id, s.asked_by, s.job_id, s.text, s.language, s.citations, s.model, s.prompt_version,
        s.sources_hash, s.parameters, s.answers, s.state, s.edited_text, s.message_id, s.decided_by, s.decided_at, s.created_at,
        cardinality(s.answers) > 0 AND NOT EXISTS (
            SELECT FROM messages m WHERE m.id = ANY (s.answers) AND (m.answered_by IS NULL OR EXISTS (
                SELECT FROM dead_letters j WHERE j.id = m.answered_by AND NOT EXISTS (
                    SELECT FROM messages r WHERE r.reply_id = j.id AND (r.status = 'sending'
                        OR r.status = 'held' AND r.send_started_at IS NOT NULL)))
                OR EXISTS (
                    SELECT FROM messages r WHERE r.reply_id = m.answered_by AND r.source = 'ai'
                    HAVING bool_and(r.status = 'failed'))))
            AS is_answered
    FROM suggestions s
    WHERE (%(id)s::uuid IS NULL OR s.id = %(id)s)
        AND (%(conversation_id)s::uuid IS NULL OR s.conversation_id = %(conversation_id)s)
        AND (%(state)s::text IS NULL OR s.state = %(state)s)
    ORDER BY s.created_at DESC, s.id LIMIT %(limit)s
"""
SENT = """
    UPDATE suggestions SET state = 'sent', edited_text = %(edited_text)s, message_id = %(message_id)s,
        decided_by = %(who)s, decided_at = now()
    WHERE id = %(id)s AND state = 'open'
"""
REJECTED = """
    UPDATE suggestions SET state = 'rejected', decided_by = %(who)s, decided_at = now()
    WHERE id = %(id)s AND state = 'open'
"""
# Also what the machine's answer has not reached: a new try of that one finds nothing left to answer.
COVER_WAITING = """
    UPDATE messages q SET answered_by = %(reply_id)s
    WHERE q.id = ANY (%(ids)s) AND NOT q.from_self AND (q.answered_by IS NULL OR q.answered_by = ANY (%(dead)s) OR EXISTS (
        SELECT FROM messages r WHERE r.reply_id = q.answered_by AND r.source = 'ai' HAVING bool_and(r.status = 'failed')))
"""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested answer. `answers` are the messages that approving it covers; `is_answered`: all of them are answered."""

    id: UUID
    conversation_id: UUID
    asked_by: str
    job_id: UUID
    text: str
    language: Language
    citations: list[dict[str, Any]]
    model: str | None
    prompt_version: str | None
    sources_hash: str | None
    parameters: dict[str, Any] | None
    answers: list[UUID]
    state: Literal["open", "sent", "rejected"]
    edited_text: str | None
    message_id: UUID | None
    decided_by: str | None
    decided_at: datetime | None
    created_at: datetime
    is_answered: bool


def ask(connection: Conn, conversation_id: UUID, *, who: str) -> UUID:
    """Enqueue a job that drafts a suggestion; its id, or that of one which is being made already.

    Raises UserError when nothing could be sent anyway, or nothing was asked in the last 24 hours.
    """
    with connection.transaction():
        outgoing.check_reachable(outgoing.lock(connection, conversation_id))
        being_made = one(connection, BEING_MADE, {"id": conversation_id})
        if being_made is not None:
            return UUID(str(being_made[0]))
        found, _ = thread.look_back(connection, conversation_id)
        if not found.text:
            raise UserError("There is no question to answer: nothing was asked in words lately.", name="nothing_asked")
        payload = {"type": "suggest", "conversation_id": str(conversation_id), "asked_by": who}
        job_id = enqueue(connection, payload, conversation_id=conversation_id)
        audit.record(connection, who=who, what="ask_suggestion", target_type="conversation", target_id=conversation_id,
                     job=job_id)  # fmt: skip
        return job_id


def store(
    *,
    conversation_id: UUID,
    job_id: UUID,
    asked_by: str,
    answers: Sequence[UUID],
    covered_by: UUID | None,
    text: str,
    language: Language,
    citations: Sequence[dict[str, Any]],
    model: str | None,
    prompt_version: str | None,
    sources_hash: str | None,
    parameters: Mapping[str, Any] | None,
) -> Write:
    """The write that stores a job's suggestion, unless all that it answers has been answered while it was made.

    `covered_by` is what covered those messages when they were read: null, or a job that died. What manual mode asked for is
    dropped when that has ended.
    """
    return Write(
        STORE,
        {
            "conversation_id": conversation_id,
            "job_id": job_id,
            "asked_by": asked_by,
            "only_in_manual": asked_by == BY_MANUAL_MODE,
            "answers": list(answers),
            "covered_by": covered_by,
            "text": text,
            "language": language,
            "citations": Jsonb(list(citations)),
            "model": model,
            "prompt_version": prompt_version,
            "sources_hash": sources_hash,
            "parameters": None if parameters is None else Jsonb(dict(parameters)),
        },
    )


def approve(connection: Conn, suggestion_id: UUID, *, who: str, text: str | None = None) -> UUID:
    """Send a suggestion, or the edited `text` in its place; returns the message's id.

    It covers what it answers as far as that is still open. Raises UserError when it has been decided on, when others have
    answered meanwhile, or when the text cannot be sent.
    """
    with connection.transaction():
        conversation, found = _locked(connection, suggestion_id)
        outgoing.check_reachable(conversation)
        if found.is_answered:
            raise UserError("These messages have been answered meanwhile.", name="answered_meanwhile")
        body = outgoing.sendable(found.text if text is None else text)
        dead = outgoing.unanswered_dead(connection, conversation)
        is_edited = body != outgoing.sendable(found.text)
        message_id = outgoing.post(
            connection, conversation, body, purpose="answer", language=found.language,
            citations=[citation for citation in found.citations if f"[{citation['number']}]" in body],
            model=found.model, prompt_version=found.prompt_version, sources_hash=found.sources_hash,
            parameters=found.parameters,
        )  # fmt: skip
        connection.execute(COVER_WAITING, {"reply_id": message_id, "ids": found.answers, "dead": dead})
        closed = outgoing.close_answered(connection, dead, who=who)
        outgoing.withdraw_tries(connection, conversation, who=who)
        connection.execute(
            SENT,
            {"id": suggestion_id, "who": who, "message_id": message_id, "edited_text": body if is_edited else None},
        )
        outgoing.clear_flag(connection, conversation)
        audit.record(connection, who=who, what="approve_suggestion", target_type="conversation",
                     target_id=conversation.id, suggestion=suggestion_id, message=message_id, edited=is_edited,
                     closed=closed or None)  # fmt: skip
        return message_id


def reject(connection: Conn, suggestion_id: UUID, *, who: str) -> None:
    """Put a suggestion aside. Raises UserError when it has been decided on."""
    with connection.transaction():
        conversation, _ = _locked(connection, suggestion_id)
        connection.execute(REJECTED, {"id": suggestion_id, "who": who})
        audit.record(connection, who=who, what="reject_suggestion", target_type="conversation",
                     target_id=conversation.id, suggestion=suggestion_id)  # fmt: skip


def of_conversation(connection: Conn, conversation_id: UUID, *, limit: int = 20) -> list[Suggestion]:
    """The newest suggestions of a conversation, the newest first; the open one, if there is one, is among them."""
    return _read(connection, conversation_id=conversation_id, limit=limit)


def put_aside(connection: Conn, conversation_id: UUID, *, who: str, only_answered: bool) -> None:
    """Put the open suggestion aside: in any case, or only when all that it answers is answered by now."""
    for found in _read(connection, conversation_id=conversation_id, state="open"):
        if found.is_answered or not only_answered:
            connection.execute(REJECTED, {"id": found.id, "who": who})


def _locked(connection: Conn, suggestion_id: UUID) -> tuple[Locked, Suggestion]:
    """An open suggestion, read under the lock of its conversation."""
    where = one(connection, WHERE_IT_IS, {"id": suggestion_id})
    if where is None:
        raise UserError("There is no such suggestion.", name="no_suggestion")
    conversation = outgoing.lock(connection, where[0])
    (found,) = _read(connection, suggestion_id=suggestion_id)
    if found.state != "open":
        raise UserError("Somebody has decided on this suggestion already.", name="suggestion_decided")
    return conversation, found


def _read(
    connection: Conn,
    *,
    suggestion_id: UUID | None = None,
    conversation_id: UUID | None = None,
    state: str | None = None,
    limit: int = 1,
) -> list[Suggestion]:
    parameters = {"id": suggestion_id, "conversation_id": conversation_id, "state": state, "limit": limit}
    with connection.cursor(row_factory=class_row(Suggestion)) as cursor:
        return cursor.execute(READ, parameters).fetchall()
