"""The overview's figures, from SQL: what is cheap is asked each time, what is not is kept for half a minute."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from shared.db.pool import Conn, Database
from shared.queue.types import finished_lately

PEOPLE_SHOWN = 8
KEPT_SECONDS = 30.0

# One statement, each part over a partial index: what waits, runs and has failed; what rests, pauses or is replayed; who waits.
NOW = """
    SELECT 'pending' AS kind, NULL::uuid AS id, type AS name, NULL AS words, count(*)::int AS number,
        min(next_run_at) FILTER (WHERE next_run_at <= now()) AS since
    FROM ai_jobs WHERE status = 'pending' GROUP BY type
    UNION ALL
    SELECT 'processing', NULL, type, NULL, count(*)::int, NULL FROM ai_jobs WHERE status = 'processing' GROUP BY type
    UNION ALL
    SELECT 'failed', NULL, type, NULL, count(*)::int, NULL
    FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL GROUP BY type
    UNION ALL
    SELECT 'failed_today', NULL, type, NULL, count(*)::int, max(updated_at)
    FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL AND updated_at > now() - interval '24 hours' GROUP BY type
    UNION ALL
    SELECT 'resting', NULL, type, resting_reason, 1, resting_until FROM job_types WHERE resting_until IS NOT NULL
    UNION ALL
    SELECT 'paused', NULL, type, NULL, 1, NULL FROM job_types WHERE paused
    UNION ALL
    SELECT 'replay', id, NULL, reason, total, created_at FROM replays WHERE state = 'running'
    UNION ALL
    SELECT 'held_event', NULL, NULL, NULL, count(*)::int, NULL FROM webhook_events
    WHERE held_reason IS NOT NULL AND decision IS NULL
    UNION ALL
    SELECT 'endpoint_resting', id, name, NULL, failures_in_row, open_until FROM webhook_endpoints
    WHERE open_until IS NOT NULL AND disabled_at IS NULL
    UNION ALL
    SELECT 'people', NULL, NULL, NULL, count(*)::int, NULL FROM conversations WHERE needs_person_since IS NOT NULL
    UNION ALL
    (SELECT 'person', c.id, coalesce(p.name, c.profile_name, c.address), c.needs_person_reason, 1, c.needs_person_since
     FROM conversations c LEFT JOIN people p ON p.id = c.person_id
     WHERE c.needs_person_since IS NOT NULL ORDER BY c.needs_person_since LIMIT %(people)s)
"""
HOURS = """
    SELECT h.hour, coalesce(m.asked, 0)::int AS asked, coalesce(m.given, 0)::int AS given
    FROM generate_series(date_trunc('hour', now()) - interval '23 hours', date_trunc('hour', now()), interval '1 hour')
            AS h (hour)
        LEFT JOIN (
            SELECT date_trunc('hour', created_at) AS hour, count(*) FILTER (WHERE NOT from_self) AS asked,
                count(*) FILTER (WHERE source IN ('ai', 'admin') AND part = 1
                    AND status IN ('sent', 'delivered', 'read')) AS given
            FROM messages WHERE created_at >= date_trunc('hour', now()) - interval '23 hours' GROUP BY 1
        ) m USING (hour)
    ORDER BY h.hour
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of NOW: what it means depends on `kind`."""

    kind: str
    id: UUID | None
    name: str | None
    words: str | None
    number: int
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour: messages that came in, and answers that went out."""

    hour: datetime
    asked: int
    given: int


@dataclass(frozen=True, slots=True)
class TypeCounts:
    """One type of job: how many wait, run, have failed and are not closed, and were finished in the last day."""

    type: str
    pending: int
    processing: int
    failed: int
    finished: int


@dataclass(frozen=True, slots=True)
class Lately:
    """What is kept for a while: finished jobs by type, and the last 24 hours."""

    finished: dict[str, int]
    hours: list[Hour]


@dataclass(frozen=True, slots=True)
class Figures:
    """All that the overview shows."""

    rows: list[Row]
    lately: Lately

    def total(self, kind: str) -> int:
        """The sum over all types."""
        return sum(row.number for row in self.rows if row.kind == kind)

    def of(self, kind: str) -> list[Row]:
        """The rows of one kind."""
        return [row for row in self.rows if row.kind == kind]

    @property
    def waiting_since(self) -> datetime | None:
        """When the oldest job that is due became due."""
        return min((row.since for row in self.of("pending") if row.since), default=None)

    @property
    def types(self) -> list[TypeCounts]:
        """The counts by type, of those that have any."""
        found = {(row.kind, row.name): row.number for row in self.rows}
        names = {row.name for row in self.rows if row.kind in ("pending", "processing", "failed") and row.name}
        return [
            TypeCounts(
                name,
                found.get(("pending", name), 0),
                found.get(("processing", name), 0),
                found.get(("failed", name), 0),
                self.lately.finished.get(name, 0),
            )
            for name in sorted(names | set(self.lately.finished))
        ]


class Overview:
    """Reads the figures; what is kept is shared by all who look."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._kept: tuple[float, Lately] | None = None

    def read(self) -> Figures:
        """The figures of this moment."""
        with self._database.connection() as connection:
            with connection.cursor(row_factory=class_row(Row)) as cursor:
                rows = cursor.execute(NOW, {"people": PEOPLE_SHOWN}).fetchall()
            return Figures(rows, self._lately(connection))

    def lately(self) -> Lately:
        """What is kept."""
        with self._database.connection() as connection:
            return self._lately(connection)

    def forget(self) -> None:
        """Read what is kept anew the next time."""
        with self._lock:
            self._kept = None

    def _lately(self, connection: Conn) -> Lately:
        with self._lock:
            if self._kept and time.monotonic() - self._kept[0] < KEPT_SECONDS:
                return self._kept[1]
            finished = finished_lately(connection)
            with connection.cursor(row_factory=class_row(Hour)) as cursor:
                lately = Lately(finished, cursor.execute(HOURS).fetchall())
            self._kept = (time.monotonic(), lately)
            return lately
