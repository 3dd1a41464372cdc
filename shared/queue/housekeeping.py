"""The timer's small periodic work: what would otherwise stay unseen. At most once a minute in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psycopg

from shared import telemetry
from shared.db.pool import Conn, Database, one
from shared.errors import DatabaseAway, classify

EVERY_SECONDS = 60.0

UNKNOWN_TYPES = """
    SELECT coalesce(string_agg(DISTINCT type, ', '), ''), count(*) FROM ai_jobs
    WHERE status = 'pending' AND NOT (type = ANY (%(types)s)) AND created_at < now() - interval '1 hour'
"""


class Housekeeping:
    """Runs its chores when they are due."""

    def __init__(self, database: Database, chores: Sequence[Callable[[Conn], object]]) -> None:
        self._database = database
        self._chores = chores
        self._ran_at: float | None = None

    def run_if_due(self) -> None:
        """Do the chores, at most once a minute; the database's faults are logged, not raised."""
        now = time.monotonic()
        if self._ran_at is not None and now - self._ran_at < EVERY_SECONDS:
            return
        self._ran_at = now
        try:
            with self._database.connection() as connection:
                for chore in self._chores:
                    self._do(chore, connection)
        except (DatabaseAway, psycopg.Error) as away:
            telemetry.warning("housekeeping_failed", error_class=type(away).__name__)

    @staticmethod
    def _do(chore: Callable[[Conn], object], connection: Conn) -> None:
        """One chore that fails must not keep the others, nor the jobs, from being done."""
        try:
            chore(connection)
        except psycopg.OperationalError:
            raise
        except Exception as error:  # noqa: BLE001
            telemetry.error("chore_failed", error=classify(error).text)


def alert_unknown_types(connection: Conn, known: Sequence[str]) -> None:
    """Log an error for jobs that wait for an hour because this version does not know their type."""
    row = one(connection, UNKNOWN_TYPES, {"types": list(known)})
    if row and row[1]:
        telemetry.error("jobs_of_unknown_type", types=row[0], count=row[1])
