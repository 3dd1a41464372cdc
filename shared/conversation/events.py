"""The story of our messages, as the saga and people have written it down: what was tried, what was found, what settled it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from shared.db.pool import Conn

OF_MESSAGES = """
    SELECT message_id, at, attempt, what, detail FROM message_events
    WHERE message_id = ANY (%(ids)s) ORDER BY message_id, id
"""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of it; `detail` is a status, a sid, a code or a class of error, by what it is about."""

    message_id: UUID
    at: datetime
    attempt: int
    what: str
    detail: str | None


def of_messages(connection: Conn, message_ids: Collection[UUID]) -> dict[UUID, list[Event]]:
    """The events of messages, oldest first; of one that has none there is no entry."""
    found: dict[UUID, list[Event]] = {}
    with connection.cursor(row_factory=class_row(Event)) as cursor:
        for event in cursor.execute(OF_MESSAGES, {"ids": list(message_ids)}):
            found.setdefault(event.message_id, []).append(event)
    return found
