"""Messages that are still open after 24 hours: flagged for a person, never swept into a later answer."""

from __future__ import annotations

from shared import telemetry
from shared.db.pool import Conn

FLAG_OVERDUE = """
    UPDATE conversations c SET needs_person_since = now(), needs_person_reason = 'overdue'
    WHERE opted_out_at IS NULL AND needs_person_since IS NULL AND EXISTS (
        SELECT FROM messages m WHERE m.conversation_id = c.id AND NOT m.from_self AND m.answered_by IS NULL
            AND m.created_at < now() - interval '24 hours')
"""


def flag_overdue(connection: Conn) -> None:
    """Flag the conversations that have such a message and that nobody has been asked to look at."""
    flagged = connection.execute(FLAG_OVERDUE).rowcount
    if flagged:
        telemetry.warning("messages_overdue", conversations=flagged)
