"""Forgetting events that have arrived everywhere, and receipts that no sender asks for any more: a little at a time.

An event with a delivery that waits, is held or died is kept, however old: only people settle those. What arrived lately, after a
replay or a release, or was closed lately, is kept as long as what came in lately: who asked for it wants to see it.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared import telemetry
from shared.db.pool import Database
from shared.idempotency import ReceiveStore
from shared.queue.retention import walk

BATCH = 200  # events looked at in one short transaction

# Walks in the order of the numbers, as the retention of jobs does (shared/queue/retention.py). What is locked, by a delivery
# that is being made for it too, is passed by and met again on the next walk. Attempts go with their deliveries.
FORGET = """
    WITH looked_at AS MATERIALIZED (
        SELECT id, seq, received_at, held_reason IS NOT NULL AND decision IS NULL AS is_held
        FROM webhook_events WHERE seq > %(after)s ORDER BY seq LIMIT %(size)s
    ), old AS MATERIALIZED (
        SELECT e.id FROM webhook_events e JOIN looked_at l ON l.id = e.id
        WHERE l.received_at < now() - make_interval(days => %(days)s) AND NOT l.is_held
            AND NOT EXISTS (
                SELECT FROM webhook_deliveries d
                LEFT JOIN ai_jobs j ON j.id = d.job_id AND d.state IN ('replayed', 'closed')
                WHERE d.event_id = e.id AND (
                    d.state IN ('waiting', 'dead', 'held')
                    OR greatest(d.delivered_at, j.closed_at) >= now() - make_interval(days => %(days)s)))
        FOR UPDATE OF e SKIP LOCKED
    ), deliveries AS (
        DELETE FROM webhook_deliveries WHERE event_id IN (SELECT id FROM old)
    ), forgotten AS (
        DELETE FROM webhook_events WHERE id IN (SELECT id FROM old) RETURNING id
    )
    SELECT (SELECT count(*) FROM forgotten),
        (SELECT max(seq) FROM looked_at
         HAVING count(*) = %(size)s AND max(received_at) < now() - make_interval(days => %(days)s))
"""


@dataclass(slots=True)
class EventRetention:
    """The chore; it remembers in this process how far it has walked, and begins anew when it came to the end."""

    days: int
    after: int = 0

    def forget(self, database: Database) -> int:
        """Delete some of the events that are older than `days` and arrived, with their deliveries, and old receipts; how many."""
        receipts = ReceiveStore().prune(database)
        events, self.after = walk(database, FORGET, days=self.days, size=BATCH, after=self.after)
        forgotten = receipts + events
        if forgotten:
            telemetry.event("events_forgotten", count=forgotten)
        return forgotten
