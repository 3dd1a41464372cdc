"""The audit log: who did what to which. A line is written in the transaction of the action that it tells of, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from shared.db.pool import Conn
from shared.db.text import storable

RECORD = """
    INSERT INTO audit_log (who, what, target_type, target_id, details)
    VALUES (%(who)s, %(what)s, %(target_type)s, %(target_id)s, %(details)s)
"""
# `jobs` of the details are the ids that one action on many touched: it shows with each of them.
LIST_ENTRIES = """
    SELECT id, at, who, what, target_type, target_id, details FROM audit_log
    WHERE (%(before_id)s::bigint IS NULL OR id < %(before_id)s)
        AND (%(who)s::text IS NULL OR who = %(who)s)
        AND (%(target)s::text IS NULL OR target_id = %(target)s OR target_type = %(target)s
            OR jsonb_exists(details -> 'jobs', %(target)s))
        AND (%(steps)s OR what <> 'replay_jobs' OR jsonb_exists(details -> 'jobs', %(target)s))
    ORDER BY id DESC LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the audit log."""

    id: int
    at: datetime
    who: str
    what: str
    target_type: str
    target_id: str | None
    details: dict[str, Any]


def record(
    connection: Conn, *, who: str, what: str, target_type: str, target_id: str | UUID | None = None, **details: Any
) -> None:
    """Write a line, in the caller's transaction.

    `details` are ids, counts and reasons, never a message's text; those that are None are left out.
    """
    connection.execute(
        RECORD,
        {
            "who": storable(who),
            "what": what,
            "target_type": target_type,
            "target_id": None if target_id is None else storable(str(target_id)),
            "details": Jsonb(_plain(details)),
        },
    )


def list_entries(
    connection: Conn,
    *,
    limit: int,
    before_id: int | None = None,
    who: str | None = None,
    target: str | None = None,
    steps: bool = True,
) -> list[Entry]:
    """The newest lines first; `before_id` is the last one of the page before.

    `target` is the id of what was acted on, or a type of target ("conversation", "job", "document", …). A replay
    has a line for each of its steps, thousands of them: without `steps` they show only with the jobs that they touched.
    """
    parameters = {"limit": limit, "before_id": before_id, "who": who, "target": target, "steps": steps}
    with connection.cursor(row_factory=class_row(Entry)) as cursor:
        return cursor.execute(LIST_ENTRIES, parameters).fetchall()


def _plain(value: Any) -> Any:
    """The value as JSON has words for it."""
    match value:
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {storable(str(name)): _plain(inner) for name, inner in value.items() if inner is not None}
        case list() | tuple() | set() | frozenset():
            return [_plain(inner) for inner in value]
        case datetime():
            return value.isoformat()
        case _:
            return storable(str(value))
