"""Conversations as people look at them: the list, and one as the employee sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from shared.db.pool import Conn

LIST_CONVERSATIONS = """
    SELECT c.id, c.address, coalesce(p.name, c.profile_name) AS name, c.mode, c.last_inbound_at, c.opted_out_at,
        c.needs_person_since, c.needs_person_reason,
        (SELECT count(*)::int FROM messages m WHERE m.conversation_id = c.id) AS messages
    FROM conversations c LEFT JOIN people p ON p.id = c.person_id
    WHERE (NOT %(needs_person)s OR c.needs_person_since IS NOT NULL)
        AND (%(address)s::text IS NULL OR c.address = %(address)s OR c.id::text = %(address)s)
    ORDER BY c.last_inbound_at DESC NULLS LAST LIMIT %(limit)s
"""
THREAD = """
    SELECT id, from_self, source, purpose, body, status, held_reason, error_code, created_at
    FROM messages WHERE conversation_id = %(id)s ORDER BY seq DESC LIMIT %(limit)s
"""
CONVERSATION_COUNTS = """
    SELECT (SELECT count(*)::int FROM conversations),
        (SELECT count(*)::int FROM conversations WHERE needs_person_since IS NOT NULL),
        count(*) FILTER (WHERE NOT from_self)::int, count(*) FILTER (WHERE source = 'ai')::int,
        count(*) FILTER (WHERE status = 'held')::int
    FROM messages WHERE created_at > now() - interval '24 hours'
"""


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """One conversation of the list."""

    id: UUID
    address: str
    name: str | None
    mode: str
    last_inbound_at: datetime | None
    opted_out_at: datetime | None
    needs_person_since: datetime | None
    needs_person_reason: str | None
    messages: int


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message of a thread."""

    id: UUID
    from_self: bool
    source: str
    purpose: str
    body: str
    status: str
    held_reason: str | None
    error_code: str | None
    created_at: datetime


def list_conversations(
    connection: Conn, *, needs_person: bool = False, address: str | None = None, limit: int = 50
) -> list[ConversationRow]:
    """The conversations with the newest inbound messages; `address` may be an address or an id."""
    with connection.cursor(row_factory=class_row(ConversationRow)) as cursor:
        parameters = {"needs_person": needs_person, "address": address, "limit": limit}
        return cursor.execute(LIST_CONVERSATIONS, parameters).fetchall()


def thread(connection: Conn, conversation_id: UUID, *, limit: int = 100) -> list[MessageRow]:
    """The newest messages of a conversation, oldest first."""
    with connection.cursor(row_factory=class_row(MessageRow)) as cursor:
        return cursor.execute(THREAD, {"id": conversation_id, "limit": limit}).fetchall()[::-1]


def conversation_counts(connection: Conn) -> dict[str, int]:
    """All conversations, those that need a person, and the last day's messages, answers and held messages."""
    row = connection.execute(CONVERSATION_COUNTS).fetchone()
    assert row is not None
    names = ("conversations", "need_a_person", "messages_today", "answers_today", "held_today")
    return dict(zip(names, (int(value) for value in row), strict=True))
