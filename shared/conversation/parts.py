"""The messages of a reply: one, or several parts that are sent in their order, each a row and a saga of its own.

What is sent by a `send_message` job is a reply of its own, whose id is that of its first message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from shared.conversation.text import split
from shared.db.pool import Conn
from shared.queue.job import Write

OF_REPLY = """
    SELECT m.id, m.conversation_id, m.reply_id, m.part, m.body, m.status, m.held_reason, m.provider_sid, m.send_attempt,
        m.send_started_at IS NOT NULL AS has_started, m.template_sid, c.address
    FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE m.reply_id = %(reply_id)s ORDER BY m.part
"""
SAVE = """
    INSERT INTO messages (id, conversation_id, from_self, source, purpose, body, status, reply_id, part, parts,
        citations, language, model, prompt_version, sources_hash, parameters)
    VALUES (%(id)s, %(conversation_id)s, true, %(source)s, %(purpose)s, %(body)s, 'draft', %(reply_id)s, %(part)s, %(parts)s,
        %(citations)s, %(language)s, %(model)s, %(prompt_version)s, %(sources_hash)s, %(parameters)s)
"""
# A burial. What may have left is held; what has not is marked as never sent, or held where a restart could send it later:
# outside WhatsApp's 24 hours, and behind a part that has not gone out.
GIVE_UP = """
    WITH wanted AS MATERIALIZED (
        SELECT m.id, m.status, m.status = 'draft' AND EXISTS (
            SELECT FROM messages e
            WHERE e.reply_id = m.reply_id AND e.part < m.part AND e.status NOT IN ('sent', 'delivered', 'read')) AS is_behind
        FROM messages m
        WHERE m.reply_id = %(reply_id)s AND m.from_self
            AND (m.status IN ('sending', 'draft') OR m.status = 'held' AND m.send_started_at IS NOT NULL)
    ), given_up AS (
        UPDATE messages m SET
            held_reason = CASE WHEN w.is_behind THEN 'earlier_part' ELSE %(reason)s END,
            status = CASE WHEN w.status = 'draft' AND NOT w.is_behind AND NOT %(is_kept)s THEN 'failed' ELSE 'held' END,
            when_absent = NULL, lookups_empty = 0, last_lookup_at = NULL, lookups_failing_since = NULL
        FROM wanted w WHERE m.id = w.id
        RETURNING m.id, m.send_attempt, m.status
    )
    INSERT INTO message_events (message_id, attempt, what, detail)
    SELECT id, send_attempt, CASE status WHEN 'held' THEN 'held' ELSE 'not_sent' END, %(word)s FROM given_up
"""


@dataclass(frozen=True, slots=True)
class Outbound:
    """A message of ours, as the saga sees it; `has_started`: of its last attempt nobody has said that it did not leave."""

    id: UUID
    conversation_id: UUID
    reply_id: UUID
    part: int
    body: str
    status: str
    held_reason: str | None
    provider_sid: str | None
    send_attempt: int
    has_started: bool
    template_sid: str | None
    address: str

    @property
    def is_accepted(self) -> bool:
        """Twilio has it, whatever became of it afterwards."""
        return self.status in ("sent", "delivered", "read") or self.provider_sid is not None

    @property
    def is_in_doubt(self) -> bool:
        """It may have left, and nobody knows."""
        return not self.is_accepted and self.status in ("sending", "held") and self.has_started


def of_reply(connection: Conn, reply_id: UUID) -> list[Outbound]:
    """The messages of a reply, in order; none if it has not been drafted."""
    with connection.cursor(row_factory=class_row(Outbound)) as cursor:
        return cursor.execute(OF_REPLY, {"reply_id": reply_id}).fetchall()


def save(
    *,
    message_id: UUID,
    conversation_id: UUID,
    reply_id: UUID,
    body: str,
    source: str,
    purpose: str,
    language: str | None,
    citations: Sequence[dict[str, Any]] = (),
    model: str | None = None,
    prompt_version: str | None = None,
    sources_hash: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> list[Write]:
    """The writes that save a reply as drafts, in as many parts as it needs; the first one is `message_id`.

    Each part keeps the citations that stand in it; the line of sources is in the last one.
    """
    bodies = split(body)
    common = {
        "conversation_id": conversation_id,
        "reply_id": reply_id,
        "source": source,
        "purpose": purpose,
        "language": language,
        "model": model,
        "prompt_version": prompt_version,
        "sources_hash": sources_hash,
        "parameters": None if parameters is None else Jsonb(dict(parameters)),
        "parts": len(bodies),
    }
    return [
        Write(SAVE, common | {
            "id": message_id if number == 1 else uuid4(), "part": number, "body": part,
            "citations": Jsonb([c for c in citations if len(bodies) == 1 or f"[{c['number']}]" in part]),
        })
        for number, part in enumerate(bodies, start=1)
    ]  # fmt: skip


def give_up(reply_id: UUID, *, reason: str, word: str) -> Write:
    """The burial's write for a reply: `reason` is what people read on the message, `word` what its story keeps."""
    is_kept = word == "outside_window"
    return Write(GIVE_UP, {"reply_id": reply_id, "reason": reason[:500], "word": word, "is_kept": is_kept})
