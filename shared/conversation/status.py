"""Twilio's status callbacks: what became of a message that we sent. Statuses only move forward.

A callback may come before our own commit, twice, in any order, or for a message that nobody knows. It finds the message by the
id that we put into its URL, else by Twilio's sid, and it records the sid: that is the evidence that Twilio has the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import psycopg

from shared import telemetry
from shared.conversation import attention
from shared.db.pool import Database, one
from shared.queue.job import LOCK_CONVERSATION

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

# For Twilio's sake, who waits: as for the inbound statement.
WAIT_SECONDS = 2.0
STATEMENTS_SECONDS = 2.5

FIND = """
    SELECT conversation_id FROM messages
    WHERE from_self AND (id = %(message)s OR provider_sid = %(sid)s) ORDER BY id = %(message)s DESC LIMIT 1
"""
# A held message that a callback proves to be with Twilio is settled, and so is the job that waited for a person.
SETTLE_JOB = """
    UPDATE ai_jobs j SET status = 'done', updated_at = now()
    FROM messages m
    WHERE (m.id = %(message)s OR m.provider_sid = %(sid)s) AND m.status = 'held' AND j.status = 'failed'
        AND j.closed_at IS NULL AND (j.id = m.reply_id OR j.payload ->> 'message_id' = m.id::text)
        AND j.conversation_id = m.conversation_id
"""
ADVANCE = """
    UPDATE messages SET
        provider_sid = coalesce(provider_sid, %(sid)s),
        held_reason = CASE WHEN status IN ('held', 'sending') THEN NULL ELSE held_reason END,
        error_code = coalesce(error_code, %(error_code)s),
        status = CASE
            WHEN %(status)s = 'failed' AND status IN ('sending', 'held', 'sent') THEN 'failed'
            WHEN %(status)s = 'read' AND status IN ('sending', 'held', 'sent', 'delivered') THEN 'read'
            WHEN %(status)s = 'delivered' AND status IN ('sending', 'held', 'sent') THEN 'delivered'
            WHEN status IN ('sending', 'held') THEN 'sent'
            ELSE status END
    WHERE from_self AND (id = %(message)s OR provider_sid = %(sid)s) AND status NOT IN ('draft', 'received')
    RETURNING id, status
"""


def record(database: Database, form: Mapping[str, str], message_id: UUID | None) -> bool:
    """Apply one callback; False when it changed nothing. Raises DatabaseAway or psycopg.Error: Twilio may try again."""
    try:
        return _record(database, form, message_id)
    except psycopg.errors.UniqueViolation:  # Twilio's sid is on another message of ours: two were sent for one
        telemetry.error("second_sid", message_id=message_id, sid=form.get("MessageSid"))
        return False


def _record(database: Database, form: Mapping[str, str], message_id: UUID | None) -> bool:
    sid = form.get("MessageSid") or form.get("SmsSid") or ""
    said = (form.get("MessageStatus") or form.get("SmsStatus") or "").lower()
    parameters = {
        "message": message_id,
        "sid": sid or None,
        "status": STATUSES.get(said),
        "error_code": form.get("ErrorCode") or None,
    }
    with database.transaction(wait=WAIT_SECONDS, deadline=STATEMENTS_SECONDS) as connection:
        found = one(connection, FIND, parameters)
        if found is None:
            telemetry.event("status_for_unknown_message", sid=sid)
            return False
        parameters["conversation_id"] = found[0]
        connection.execute(LOCK_CONVERSATION, parameters)
        connection.execute(SETTLE_JOB, parameters)
        moved = one(connection, ADVANCE, parameters)
        if moved is not None and parameters["status"] == "failed" and moved[1] == "failed":
            connection.execute(attention.FLAG, {**parameters, "reason": "undelivered"})
    if moved is not None:
        telemetry.event(
            "message_status", message_id=moved[0], sid=sid, status=said, error_code=parameters["error_code"]
        )
    return moved is not None
