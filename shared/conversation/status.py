"""Twilio's status callbacks: what became of a message that we sent.

A callback may come before our own commit, twice, in any order, or for a message that nobody knows. It finds the message by the
id that we put into its URL, else by Twilio's sid, and it records the sid: that is the evidence that Twilio has the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import psycopg

from shared import telemetry
from shared.conversation import receipt
from shared.conversation.receipt import Receipt
from shared.db.pool import Database, one
from shared.db.text import storable
from shared.queue.job import LOCK_CONVERSATION

# For Twilio's sake, who waits: as for the inbound statement.
WAIT_SECONDS = 2.0
STATEMENTS_SECONDS = 2.5

FIND = """
    SELECT id, conversation_id FROM messages
    WHERE from_self AND (id = %(message)s OR provider_sid = %(sid)s) ORDER BY id = %(message)s DESC LIMIT 1
"""


def record(
    database: Database, form: Mapping[str, str], message_id: UUID | None, *, template_sid: str | None = None
) -> bool:
    """Apply one callback; False when it changed nothing. Raises DatabaseAway or psycopg.Error: Twilio may try again.

    `template_sid`: what may carry a text that came after WhatsApp's 24 hours.
    """
    given = {name: storable(value) for name, value in form.items()}
    sid = given.get("MessageSid") or given.get("SmsSid") or None
    said = (given.get("MessageStatus") or given.get("SmsStatus") or "").lower()
    heard = Receipt(sid, said, given.get("ErrorCode") or None, "callback")
    try:
        with database.transaction(wait=WAIT_SECONDS, deadline=STATEMENTS_SECONDS) as connection:
            found = one(connection, FIND, {"message": message_id, "sid": sid})
            if found is None:
                telemetry.event("status_for_unknown_message", sid=sid)
                return False
            connection.execute(LOCK_CONVERSATION, {"conversation_id": found[1]})
            changed = receipt.record(connection, found[0], heard, template_sid=template_sid)
    except psycopg.errors.UniqueViolation:  # in the same instant another message of ours has got this sid
        telemetry.error("sid_of_another_message", message_id=message_id, sid=sid)
        return False
    if changed:
        telemetry.event("message_status", message_id=found[0], sid=sid, status=said, error_code=heard.error_code)
    return changed
