"""The dead letters: which of them a filter means, how many, and how they are shown."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from shared.db.pool import Conn
from shared.db.text import storable

LIST = """
    SELECT j.id, j.type, c.address, j.run, j.attempts, j.max_attempts, j.error_class, j.last_error, j.updated_at AS died_at,
        j.replay_id
    FROM dead_letters_matching(%(filter)s, now()) j LEFT JOIN conversations c ON c.id = j.conversation_id
    ORDER BY j.seq DESC LIMIT %(limit)s
"""
# Of a conversation's autoreplies without a draft one runs and the others join it.
COUNT = """
    SELECT type, error_class, count(*)::int, count(*) FILTER (WHERE may_have_left)::int,
        count(*) FILTER (WHERE is_paused AND NOT may_have_left)::int,
        count(*) FILTER (WHERE place > 1 AND NOT may_have_left AND NOT drafted AND NOT is_paused)::int
    FROM (
        SELECT j.type, j.error_class,
            EXISTS (SELECT FROM messages m
                WHERE m.reply_id = CASE j.type WHEN 'send_message' THEN uuid_or_null(j.payload ->> 'message_id') ELSE j.id END
                    AND m.status IN ('sending', 'held') AND m.send_started_at IS NOT NULL) AS may_have_left,
            EXISTS (SELECT FROM messages m WHERE m.reply_id = j.id) AS drafted,
            NOT EXISTS (SELECT FROM job_types t WHERE t.type = j.type AND NOT t.paused) AS is_paused,
            CASE j.type WHEN 'autoreply' THEN row_number() OVER (PARTITION BY j.conversation_id, j.type ORDER BY j.seq) END
                AS place
        FROM dead_letters_matching(%(filter)s, now()) j
    ) found
    GROUP BY type, error_class ORDER BY count(*) DESC, type, error_class
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Dead letters that match everything that is given.

    `error` is a part of the last error's text, in any case; `endpoint` names where a delivery was to go; it died at
    `since` or later and before `until`, and `older_than` seconds ago.
    """

    job_type: str | None = None
    error_class: str | None = None
    error: str | None = None
    phone: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    older_than: float | None = None
    endpoint: str | None = None

    def as_json(self) -> dict[str, Any]:
        """What is given, under the names that the command has for it."""
        found: dict[str, Any] = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if value is not None:
                plain = value if isinstance(value, float | int) else _text(value)
                found[{"job_type": "type", "error_class": "class"}.get(item.name, item.name)] = plain
        return found

    def as_jsonb(self) -> Jsonb:
        """The same as a parameter of a statement."""
        return Jsonb(self.as_json())


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that failed for good and is not closed. `run` over 1 tells that it was restarted before."""

    id: UUID
    type: str
    address: str | None
    run: int
    attempts: int
    max_attempts: int
    error_class: str | None
    last_error: str | None
    died_at: datetime
    replay_id: UUID | None


@dataclass(frozen=True, slots=True)
class Count:
    """How many of one type and class of error.

    `left_out` may have arrived, or are being sent; `left_paused` would not run, as the type is paused or unknown; `joining`
    will be taken along by their conversation's oldest.
    """

    type: str
    error_class: str | None
    count: int
    left_out: int
    left_paused: int
    joining: int


def list_dead(connection: Conn, wanted: Filter, *, limit: int = 50) -> list[DeadLetter]:
    """The newest first."""
    with connection.cursor(row_factory=class_row(DeadLetter)) as cursor:
        return cursor.execute(LIST, {"filter": wanted.as_jsonb(), "limit": limit}).fetchall()


def count_dead(connection: Conn, wanted: Filter) -> list[Count]:
    """How many match, by type and class of error, the most frequent first."""
    rows = connection.execute(COUNT, {"filter": wanted.as_jsonb()}).fetchall()
    return [Count(*row) for row in rows]


def _text(value: str | datetime) -> str:
    return value.isoformat() if isinstance(value, datetime) else storable(value)
