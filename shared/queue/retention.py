"""Forgetting what is done: finished jobs and their attempts, old ones first, a little at a time.

A failed job is never forgotten: only a person closes one, and it stays for who asks later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

from shared import telemetry
from shared.db.pool import Database, one

BATCH = 500  # rows looked at in one short transaction
BATCHES = 10  # in one round: a minute's work is a few thousand rows, so that nobody notices it

# Walks in the order of the numbers, by ai_jobs_newest: no index has to know when a job ended. What is locked is passed by, and
# met again on the next walk. The walk ends where the jobs are too young to have ended long enough ago.
FORGET = """
    WITH looked_at AS MATERIALIZED (
        SELECT id, seq, status, updated_at, created_at FROM ai_jobs WHERE seq > %(after)s ORDER BY seq LIMIT %(size)s
    ), finished AS MATERIALIZED (
        SELECT j.id FROM ai_jobs j
        WHERE j.id IN (SELECT l.id FROM looked_at l WHERE l.status = 'done')
            AND j.status = 'done' AND j.updated_at < now() - make_interval(days => %(days)s)
        FOR UPDATE SKIP LOCKED
    ), forgotten AS (
        DELETE FROM ai_jobs WHERE id IN (SELECT id FROM finished) RETURNING id
    )
    SELECT (SELECT count(*) FROM forgotten),
        (SELECT max(seq) FROM looked_at
         HAVING count(*) = %(size)s AND max(created_at) < now() - make_interval(days => %(days)s))
"""


@dataclass(slots=True)
class Retention:
    """The chore; it remembers in this process how far it has walked, and begins anew when it came to the end."""

    days: int
    after: int = 0

    def forget_finished(self, database: Database) -> int:
        """Delete some of the finished jobs that are older than `days`, with their attempts; how many."""
        forgotten, self.after = walk(database, FORGET, days=self.days, size=BATCH, after=self.after)
        if forgotten:
            telemetry.event("jobs_forgotten", count=forgotten)
        return forgotten


def walk(database: Database, forget: LiteralString, *, days: int, size: int, after: int) -> tuple[int, int]:
    """One round of short transactions through rows in the order of their numbers, from behind `after`.

    `forget` looks at the next `size` rows, deletes those that are old enough, and gives how many it deleted and the number to go
    on behind, null at the end. Gives how many were deleted in all, and where the next round begins (0: anew).
    """
    forgotten = 0
    for _ in range(BATCHES):
        with database.connection() as connection:
            row = one(connection, forget, {"after": after, "days": days, "size": size})
        assert row is not None
        forgotten += int(row[0])
        after = int(row[1] or 0)
        if not after:
            break
    return forgotten, after
