"""Conversations as people look at them: the list, and one as the employee sees it."""

from __future__ import annotations

import re
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
# First those that wait for a person, the longest waiting at the top; then the others, the newest message at the top. `place`
# counts microseconds, for the others downwards from zero, so that (calm, place, id) is one ascending order, and a key.
# A scan of all of them: 2 ms for 2,000, and an index on the newest message would cost the webhook a write for each message.
PAGE = """
    WITH page AS MATERIALIZED (
        SELECT * FROM (
            SELECT c.id, c.address, p.name, coalesce(p.left_at <= now(), false) AS has_left, c.profile_name, c.mode,
                c.last_inbound_at,
                c.opted_out_at IS NOT NULL AS is_opted_out, c.needs_person_since, c.needs_person_reason,
                c.needs_person_since IS NULL AS calm,
                CASE WHEN c.needs_person_since IS NULL
                    THEN -(extract(epoch FROM coalesce(c.last_inbound_at, c.created_at)) * 1000000)::bigint
                    ELSE (extract(epoch FROM c.needs_person_since) * 1000000)::bigint END AS place
            FROM conversations c LEFT JOIN people p ON p.id = c.person_id
            WHERE (NOT %(needs_person)s OR c.needs_person_since IS NOT NULL)
                AND (%(mode)s::text IS NULL OR c.mode = %(mode)s)
                AND (%(text)s::text IS NULL OR strpos(lower(c.address), lower(%(text)s)) > 0
                    OR strpos(lower(p.name), lower(%(text)s)) > 0
                    OR strpos(lower(c.profile_name), lower(%(text)s)) > 0 OR c.id::text = lower(%(text)s)
                    OR strpos(c.address, %(digits)s) > 0)
        ) AS placed
        WHERE %(calm)s::boolean IS NULL OR (calm, place, id) > (%(calm)s, %(place)s::bigint, %(id)s::uuid)
        ORDER BY calm, place, id LIMIT %(limit)s
    )
    SELECT page.*, last.text AS last_text, last.source AS last_source, last.has_media AS last_has_media
    FROM page LEFT JOIN LATERAL (
        SELECT left(m.body, 300) AS text, m.source, m.media <> '[]' AS has_media FROM messages m
        WHERE m.conversation_id = page.id AND m.status NOT IN ('draft', 'failed') ORDER BY m.seq DESC LIMIT 1
    ) AS last ON true
    ORDER BY calm, place, id
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


@dataclass(frozen=True, slots=True)
class Key:
    """Where a page of the list ends: the next one begins behind it."""

    calm: bool
    place: int
    id: UUID

    def __str__(self) -> str:
        return f"{int(self.calm)}.{abs(self.place)}.{self.id}"

    @staticmethod
    def read(text: str | None) -> Key | None:
        """The key that a text names; None when it names none."""
        found = re.fullmatch(r"([01])\.([0-9]{1,18})\.([0-9a-f-]{36})", text or "")
        try:
            return found and Key(found[1] == "1", int(found[2]) * (-1 if found[1] == "1" else 1), UUID(found[3]))
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Listed:
    """One conversation of a page of the list. `name` is the known person's, `profile_name` what WhatsApp says."""

    id: UUID
    address: str
    name: str | None
    has_left: bool | None
    profile_name: str | None
    mode: str
    last_inbound_at: datetime | None
    is_opted_out: bool
    needs_person_since: datetime | None
    needs_person_reason: str | None
    calm: bool
    place: int
    last_text: str | None
    last_source: str | None
    last_has_media: bool | None

    @property
    def key(self) -> Key:
        """Its place in the list."""
        return Key(self.calm, self.place, self.id)


def page(
    connection: Conn,
    *,
    text: str | None = None,
    needs_person: bool = False,
    mode: str | None = None,
    after: Key | None = None,
    limit: int = 50,
) -> list[Listed]:
    """A page of the list, those that wait for a person first. `text` is a part of a name or an address, or an id."""
    parameters = {
        "text": text,
        "digits": text and _digits(text),
        "needs_person": needs_person,
        "mode": mode,
        "calm": after and after.calm,
        "place": after and after.place,
        "id": after and after.id,
        "limit": limit,
    }
    with connection.cursor(row_factory=class_row(Listed)) as cursor:
        return cursor.execute(PAGE, parameters).fetchall()


def _digits(text: str) -> str | None:
    """What a phone number that somebody writes in their own way has in common with E.164: 06 12… and +31 (0)6 12…."""
    if not re.fullmatch(r"[\d\s()+./-]+", text):
        return None
    digits = re.sub(r"\D", "", text.replace("(0)", "")).lstrip("0")
    return digits if len(digits) >= 3 else None


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
