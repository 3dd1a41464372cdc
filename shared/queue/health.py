"""`GET /api/health`: whether this instance can do its work, in one small object."""

from __future__ import annotations

import functools
from typing import Any

import psycopg

from shared.db.migrate import available, version
from shared.db.pool import Database, one
from shared.errors import DatabaseAway

VERSION = "0.1.0"

OLDEST_DUE = """
    SELECT coalesce(max(extract(epoch FROM now() - next_run_at)), 0)::float8
    FROM ai_jobs WHERE status = 'pending' AND next_run_at <= now()
"""


def check(database: Database) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the object; 503 with one sentence when the database is away or not migrated.

    A newer database is well: old code runs on it while a deploy rolls, and after it was rolled back.
    """
    try:
        with database.connection(wait=2.0, deadline=3.0) as connection:
            applied, known = version(connection), _known()
            if applied < known:
                return 503, _down(f"The database is at migration {applied}, this code needs {known}: run migrate.")
            row = one(connection, OLDEST_DUE)
    except (DatabaseAway, psycopg.Error):
        return 503, _down("The database does not answer.")
    oldest = round(float(row[0]), 3) if row else 0.0
    return 200, {"status": "ok", "version": VERSION, "migration": applied, "oldest_due_seconds": oldest}


@functools.cache
def _known() -> int:
    """The newest migration of this code; the files are read once in a process."""
    return len(available())


def _down(sentence: str) -> dict[str, Any]:
    return {"status": "down", "version": VERSION, "reason": sentence}
