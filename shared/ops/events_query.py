"""What an event's page knows beside the event: who had what sent again, released or rejected, and which endpoints rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from shared.db.pool import Conn
from shared.webhooks.events import EventDetail

ASKED = """
    SELECT at, who, what, target_id, details ->> 'reason' AS reason, details ->> 'to' AS to_name,
        uuid_or_null(details ->> 'sent_as') AS made, NULL::uuid AS replay_id
    FROM audit_log
    WHERE target_id = ANY (%(targets)s)
        AND what IN ('resend_delivery', 'restart_job', 'release_event', 'reject_event', 'close_job', 'cancel_job')
    UNION ALL
    SELECT r.created_at, r.who, 'replay', coalesce(d.replay_of, d.id)::text, r.reason,
        NULL, CASE WHEN d.replay_of IS NOT NULL THEN d.id END, r.id
    FROM webhook_deliveries d LEFT JOIN ai_jobs j ON j.id = d.job_id JOIN replays r ON r.id IN (d.replay_id, j.replay_id)
    WHERE d.event_id = %(event)s
    ORDER BY at
"""
RESTING = """
    SELECT id FROM webhook_endpoints WHERE id = ANY (%(ids)s) AND open_until IS NOT NULL AND disabled_at IS NULL
"""
EVENT_OF = "SELECT event_id FROM webhook_deliveries WHERE id = %(id)s"
TYPES = """
    WITH RECURSIVE known AS (
        (SELECT type FROM webhook_events ORDER BY type LIMIT 1)
        UNION ALL
        SELECT (SELECT e.type FROM webhook_events e WHERE e.type > known.type ORDER BY e.type LIMIT 1)
        FROM known WHERE known.type IS NOT NULL
    )
    SELECT type FROM known WHERE type IS NOT NULL LIMIT %(limit)s
"""
SOURCE_NAMES = "SELECT name FROM webhook_sources ORDER BY name"


@dataclass(frozen=True, slots=True)
class Asked:
    """Something that a person had done. `made`: the delivery that it made, of those that were sent anew."""

    at: datetime
    who: str
    what: str
    target_id: str
    reason: str | None
    to_name: str | None
    made: UUID | None
    replay_id: UUID | None


def asked_for(connection: Conn, detail: EventDetail) -> list[Asked]:
    """What people had done with an event, its deliveries and their jobs, oldest first."""
    targets = {detail.event.id}
    for delivery in detail.deliveries:
        targets |= {found for found in (delivery.id, delivery.job_id, delivery.replay_of) if found}
    parameters: dict[str, Any] = {"targets": [str(target) for target in targets], "event": detail.event.id}
    with connection.cursor(row_factory=class_row(Asked)) as cursor:
        found = cursor.execute(ASKED, parameters).fetchall()
    names = {delivery.id: delivery.endpoint for delivery in detail.deliveries}
    return [replace(one, to_name=one.to_name or (names.get(one.made) if one.made else None)) for one in found]


def resting(connection: Conn, endpoint_ids: Sequence[UUID]) -> set[UUID]:
    """Those of these endpoints whose breaker is open."""
    return {row[0] for row in connection.execute(RESTING, {"ids": list(endpoint_ids)})}


def event_of(connection: Conn, delivery_id: UUID) -> UUID | None:
    """The event of a delivery."""
    row = connection.execute(EVENT_OF, {"id": delivery_id}).fetchone()
    return row[0] if row else None


def known_types(connection: Conn, *, limit: int) -> list[str]:
    """Types of events that there are, by name."""
    return [str(name) for (name,) in connection.execute(TYPES, {"limit": limit})]


def source_names(connection: Conn) -> list[str]:
    """All sources' names."""
    return [str(name) for (name,) in connection.execute(SOURCE_NAMES)]
