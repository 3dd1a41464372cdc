"""Evidence that Twilio has a message, from whichever side it comes: what it settles, and that statuses only move forward.

It may come before our own commit, twice, in any order, and for a message that was given up. It always wins: what Twilio has
is not sent again, and a dead letter that waited for it is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from psycopg.rows import class_row

from shared import telemetry
from shared.conversation import attention, undelivered
from shared.db.pool import Conn, one

# Twilio's words (https://www.twilio.com/docs/messaging/api/message-resource#message-status-values) → ours. What is not
# here (queued, accepted, scheduled, sending) only tells that Twilio has it.
STATUSES = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "failed": "failed",
    "undelivered": "failed",
    "canceled": "failed",
}
_ORDER = ("sent", "delivered", "read")

READ = """
    SELECT id, conversation_id, reply_id, status, provider_sid, second_sid, error_code, send_attempt
    FROM messages WHERE id = %(id)s AND from_self FOR NO KEY UPDATE
"""
SID_ELSEWHERE = """
    SELECT FROM messages WHERE provider_sid = %(sid)s AND id <> %(id)s
    UNION ALL SELECT FROM messages WHERE second_sid = %(sid)s AND id <> %(id)s
"""
SECOND_SID = "UPDATE messages SET second_sid = %(sid)s WHERE id = %(id)s AND second_sid IS NULL"
ADVANCE = """
    UPDATE messages SET provider_sid = coalesce(provider_sid, %(sid)s), status = %(status)s,
        held_reason = CASE WHEN %(is_news)s THEN NULL ELSE held_reason END, error_code = coalesce(error_code, %(error_code)s),
        evidence = coalesce(evidence, %(evidence)s), when_absent = NULL, lookups_failing_since = NULL
    WHERE id = %(id)s AND status = %(was)s
"""
NOTE = """
    INSERT INTO message_events (message_id, attempt, what, detail) VALUES (%(id)s, %(attempt)s, %(what)s, %(detail)s)
"""
# The job that waited for a person is done, once all of its reply is with Twilio.
SETTLE_JOB = """
    UPDATE ai_jobs j SET status = 'done', updated_at = now()
    WHERE j.conversation_id = %(conversation_id)s AND j.status = 'failed' AND j.closed_at IS NULL
        AND (j.id = %(reply_id)s OR j.payload ->> 'message_id' IN (
            SELECT m.id::text FROM messages m WHERE m.reply_id = %(reply_id)s))
        AND NOT EXISTS (
            SELECT FROM messages m WHERE m.reply_id = %(reply_id)s AND m.from_self AND m.provider_sid IS NULL
                AND m.status NOT IN ('sent', 'delivered', 'read') AND m.held_reason IS DISTINCT FROM 'in_template')
    RETURNING j.id
"""
UNFLAG = """
    UPDATE conversations c SET needs_person_since = NULL, needs_person_reason = NULL
    WHERE id = %(conversation_id)s AND needs_person_reason = 'held'
        AND NOT EXISTS (SELECT FROM messages m WHERE m.conversation_id = c.id AND m.status = 'held')
"""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What Twilio says about a message: its sid, its status in Twilio's words, and how we have come to know."""

    sid: str | None
    said: str
    error_code: str | None
    evidence: Literal["callback", "list", "answer"]


@dataclass(frozen=True, slots=True)
class _Known:
    id: UUID
    conversation_id: UUID
    reply_id: UUID
    status: str
    provider_sid: str | None
    second_sid: str | None
    error_code: str | None
    send_attempt: int


def advanced(status: str, *, is_accepted: bool, said: str | None) -> str:
    """The status after Twilio said `said` (one of ours, or None: only that it has the message).

    `is_accepted`: that was known before; a failure of which only we had said so is none any more.
    """
    if not is_accepted and status not in _ORDER:
        return said or "sent"
    if status == "failed" or said is None:
        return status
    if said == "failed":
        return "failed" if status == "sent" else status
    return max(status, said, key=_ORDER.index)


def record(connection: Conn, message_id: UUID, receipt: Receipt, *, template_sid: str | None = None) -> bool:
    """Apply what Twilio says, in a transaction that has locked the conversation; False when it changes nothing.

    `template_sid`: what may carry a text that came too late.
    """
    with connection.cursor(row_factory=class_row(_Known)) as cursor:
        known = cursor.execute(READ, {"id": message_id}).fetchone()
    if known is None or (known.status == "draft" and known.send_attempt == 0):
        return False  # nobody has tried to send it: this is about something else
    if receipt.sid and one(connection, SID_ELSEWHERE, {"sid": receipt.sid, "id": known.id}) is not None:
        telemetry.error("sid_of_another_message", message_id=known.id, sid=receipt.sid)
        return False
    if receipt.sid and known.provider_sid and known.provider_sid != receipt.sid:
        return _second(connection, known, receipt.sid)
    return _advance(connection, known, receipt, template_sid)


def _advance(connection: Conn, known: _Known, receipt: Receipt, template_sid: str | None) -> bool:
    is_accepted = known.provider_sid is not None
    status = advanced(known.status, is_accepted=is_accepted, said=STATUSES.get(receipt.said))
    is_new_sid = receipt.sid is not None and not is_accepted
    is_new_code = receipt.error_code is not None and known.error_code is None
    if status == known.status and not is_new_sid and not is_new_code:
        return False
    is_news = not is_accepted or status != known.status
    key: dict[str, Any] = {
        "id": known.id, "conversation_id": known.conversation_id, "reply_id": known.reply_id, "sid": receipt.sid,
        "status": status, "was": known.status, "is_news": is_news, "error_code": receipt.error_code,
        "evidence": receipt.evidence, "attempt": known.send_attempt,
    }  # fmt: skip
    connection.execute(ADVANCE, key)
    what = {"callback": "callback", "list": "lookup_found", "answer": "accepted"}[receipt.evidence]
    detail = " ".join(filter(None, (receipt.said, receipt.error_code, receipt.sid if is_new_sid else None)))
    connection.execute(NOTE, key | {"what": what, "detail": detail[:200]})
    if not is_accepted and one(connection, SETTLE_JOB, key) is not None:
        connection.execute(UNFLAG, key)
    if status == "failed" and (known.status != "failed" or not is_accepted):
        undelivered.follow_up(connection, known.id, receipt.error_code, template_sid=template_sid)
    return True


def _second(connection: Conn, known: _Known, sid: str) -> bool:
    """Twilio has it twice. Nothing can call one back: whoever looks has to know."""
    if connection.execute(SECOND_SID, {"id": known.id, "sid": sid}).rowcount == 0:
        return False
    telemetry.error("second_sid", message_id=known.id, sid=sid)
    connection.execute(NOTE, {"id": known.id, "attempt": known.send_attempt, "what": "second_sid", "detail": sid})
    connection.execute(attention.FLAG, {"conversation_id": known.conversation_id, "reason": "sent_twice"})
    return True
