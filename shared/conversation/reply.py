"""The send saga: draft, intent, send, confirm; so that a message is accepted by Twilio at most once.

Twilio's create call has no idempotency key. So the intent ("sending") is committed before the request leaves, and whoever
finds it later knows that the message may have arrived. Such a message is held for a person: never a blind second try.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from shared.clients.deadline import TooLate, boot_clock
from shared.clients.twilio import Line
from shared.conversation.held_back import hold_back
from shared.db.pool import Conn, one
from shared.errors import FailureKind, HeldError, classify
from shared.queue.job import Complete, Lease, Snooze, Verdict, Write
from shared.queue.outcome import Stopped

INTENT_SECONDS = 2.0  # at most this long after the intent may the request begin
ONE_AT_A_TIME_SECONDS = 2.0

BY_ID = """
    SELECT m.id, m.conversation_id, m.body, m.status, m.provider_sid, m.send_attempt, c.address
    FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE m.id = %(id)s AND m.from_self
"""
BY_REPLY = """
    SELECT m.id, m.conversation_id, m.body, m.status, m.provider_sid, m.send_attempt, c.address
    FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE m.reply_id = %(id)s ORDER BY m.part
"""
SAVE = """
    INSERT INTO messages (id, conversation_id, from_self, source, purpose, body, status, reply_id, part, parts,
        citations, language, model, prompt_version, sources_hash)
    VALUES (%(id)s, %(conversation_id)s, true, %(source)s, %(purpose)s, %(body)s, 'draft', %(reply_id)s, 1, 1,
        %(citations)s, %(language)s, %(model)s, %(prompt_version)s, %(sources_hash)s)
"""
COVER = """
    UPDATE messages SET answered_by = %(reply_id)s
    WHERE id = ANY (%(ids)s) AND NOT from_self AND answered_by IS NULL
"""
# What the machine has written leaves in automatic mode alone, and only while it covers something: a person who takes the
# conversation over, or answers its messages, comes before it.
INTENT = """
    UPDATE messages m SET status = 'sending', send_attempt = send_attempt + 1, send_started_at = now(),
        error_code = NULL, held_reason = NULL
    FROM conversations c
    WHERE m.id = %(id)s AND c.id = m.conversation_id
        AND (m.status = 'draft' OR m.status = 'failed' AND m.provider_sid IS NULL)
        AND (c.opted_out_at IS NULL OR m.purpose = 'consent')
        AND (m.source <> 'ai' OR c.mode = 'auto' AND EXISTS (SELECT FROM messages q WHERE q.answered_by = m.reply_id))
        AND NOT EXISTS (
            SELECT FROM messages e
            WHERE e.conversation_id = m.conversation_id AND e.from_self AND e.id <> m.id
                AND (e.status = 'sending' OR e.status = 'draft' AND e.seq < m.seq))
    RETURNING m.send_attempt
"""
WHY_NOT = """
    SELECT c.opted_out_at IS NOT NULL AND m.purpose <> 'consent' AS is_opted_out,
        m.source = 'ai' AND (c.mode = 'manual' OR NOT EXISTS (SELECT FROM messages q WHERE q.answered_by = m.reply_id))
            AND (m.status = 'draft' OR m.status = 'failed' AND m.provider_sid IS NULL) AS is_taken_over,
        m.reply_id
    FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE m.id = %(id)s
"""
CANCEL = "UPDATE messages SET status = 'failed', held_reason = 'opted_out' WHERE id = %(id)s AND status IN ('draft', 'failed')"
TAKE_BACK = (
    "UPDATE messages SET status = 'draft' WHERE id = %(id)s AND status = 'sending' AND send_attempt = %(attempt)s"
)
REFUSED = """
    UPDATE messages SET status = 'failed', error_code = %(code)s, held_reason = 'refused'
    WHERE id = %(id)s AND status = 'sending' AND send_attempt = %(attempt)s
"""
CONFIRM = """
    UPDATE messages SET provider_sid = coalesce(provider_sid, %(sid)s),
        status = CASE status WHEN 'sending' THEN 'sent' ELSE status END
    WHERE id = %(id)s AND status NOT IN ('draft', 'received')
"""
# A burial: what may have left is held, what has not is marked as never sent.
GIVE_UP = """
    UPDATE messages SET held_reason = %(reason)s, status = CASE status WHEN 'sending' THEN 'held' ELSE 'failed' END
    WHERE (reply_id = %(reply_id)s OR id = %(message_id)s) AND from_self AND status IN ('sending', 'draft')
"""


@dataclass(frozen=True, slots=True)
class Outbound:
    """A message of ours, as the saga sees it."""

    id: UUID
    conversation_id: UUID
    body: str
    status: str
    provider_sid: str | None
    send_attempt: int
    address: str


@dataclass(frozen=True, slots=True)
class Sender:
    """How messages leave: Twilio's line, and where it reports what became of them."""

    line: Line
    public_base_url: str

    def deliver(self, lease: Lease, message: Outbound) -> Verdict:
        """Take one message from wherever the rows say it is to "sent".

        Raises HeldError when it may have been sent and nobody can tell, and what Twilio's client raised when it surely was
        not sent. Whoever calls this has saved the message as a draft before.
        """
        if message.status in ("sending", "held"):
            raise HeldError("held", "a request was under way when its worker stopped: it may have been sent")
        if message.status in ("sent", "delivered", "read") or message.provider_sid:
            return Complete()
        if lease.is_stopping():
            raise Stopped("the worker stops before the message was sent")
        began = boot_clock()
        with lease.transaction() as connection:
            intent = one(connection, INTENT, {"id": message.id})
            if intent is None:
                return self._not_now(connection, message)
        return self._send(lease, message, attempt=int(intent[0]), not_after=began + INTENT_SECONDS)

    def _send(self, lease: Lease, message: Outbound, *, attempt: int, not_after: float) -> Verdict:
        callback = f"{self.public_base_url}/api/twilio/status?message={message.id}&try={attempt}"
        try:
            sid = self.line.send(to=message.address, body=message.body, status_callback=callback, not_after=not_after)
        except TooLate:
            lease.insist(Write(TAKE_BACK, {"id": message.id, "attempt": attempt}))
            return Snooze(1.0, "too long between the intent and the request: nothing was sent")
        except Exception as error:
            failure = classify(error, idempotent=False)
            if failure.kind is FailureKind.AMBIGUOUS:
                with lease.transaction() as connection:
                    now = by_id(connection, message.id)
                if now is not None and now.status in ("sent", "delivered", "read", "failed"):
                    return Complete()  # a callback has told meanwhile
                raise HeldError("held", f"it may have been sent: {failure.text}") from error
            if failure.kind is FailureKind.PERMANENT:
                code = getattr(error, "code", None)
                lease.insist(Write(REFUSED, {"id": message.id, "attempt": attempt, "code": code and str(code)}))
            else:
                lease.insist(Write(TAKE_BACK, {"id": message.id, "attempt": attempt}))
            raise
        return Complete([Write(CONFIRM, {"id": message.id, "sid": sid})])

    @staticmethod
    def _not_now(connection: Conn, message: Outbound) -> Verdict:
        row = one(connection, WHY_NOT, {"id": message.id})
        if row and row[0]:
            return Complete([Write(CANCEL, {"id": message.id})])
        if row and row[1]:  # in the transaction that was refused, so that no second change of mode comes between
            hold_back(connection, row[2])
            return Complete()
        return Snooze(ONE_AT_A_TIME_SECONDS, "an earlier message of the conversation is still on its way")


def by_id(connection: Conn, message_id: UUID) -> Outbound | None:
    """One of our messages."""
    with connection.cursor(row_factory=class_row(Outbound)) as cursor:
        return cursor.execute(BY_ID, {"id": message_id}).fetchone()


def of_reply(connection: Conn, reply_id: UUID) -> Outbound | None:
    """The message of a reply, if it has been drafted."""
    with connection.cursor(row_factory=class_row(Outbound)) as cursor:
        return cursor.execute(BY_REPLY, {"id": reply_id}).fetchone()


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
) -> Write:
    """The write that saves a draft."""
    return Write(
        SAVE,
        {
            "id": message_id,
            "conversation_id": conversation_id,
            "reply_id": reply_id,
            "body": body,
            "source": source,
            "purpose": purpose,
            "language": language,
            "citations": Jsonb(list(citations)),
            "model": model,
            "prompt_version": prompt_version,
            "sources_hash": sources_hash,
        },
    )


def give_up(*, reply_id: UUID | None = None, message_id: UUID | None = None, reason: str) -> Write:
    """The burial's write for a reply or a single message."""
    return Write(GIVE_UP, {"reply_id": reply_id, "message_id": message_id, "reason": reason[:500]})
