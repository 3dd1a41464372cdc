"""Events as people see them: what came in or was told, the way of each to its endpoints, and a person's decision on a held one.

An event is held when its generated text failed the check: its deliveries have no job until somebody releases it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.rows import class_row

from shared import audit
from shared.db.pool import Conn, one
from shared.db.text import storable
from shared.errors import UserError
from shared.queue.closing import stated
from shared.webhooks.normalise import PUBLIC_PREFIX, public_id

type Show = Literal["held", "dead", "waiting"]
type State = Literal["waiting", "delivered", "dead", "held", "rejected", "replayed", "closed"]

# The open deliveries are found by a partial index, so what needs a person is found among a million that arrived.
LIST = """
    WITH wanted AS MATERIALIZED (
        SELECT e.id, e.seq, e.source_id, e.source_event_id, e.type, e.subject, e.occurred_at, e.received_at, e.held_reason,
            e.decision
        FROM webhook_events e LEFT JOIN webhook_sources s ON s.id = e.source_id
        WHERE (%(id)s::uuid IS NULL OR e.id = %(id)s)
            AND (%(before_seq)s::bigint IS NULL OR e.seq < %(before_seq)s)
            AND (%(source)s::text IS NULL OR s.name = %(source)s OR %(source)s = 'antwoord' AND e.source_id IS NULL)
            AND (%(type)s::text IS NULL OR e.type = %(type)s)
            AND (%(show)s::text IS DISTINCT FROM 'held' OR e.held_reason IS NOT NULL AND e.decision IS NULL)
            AND (%(show)s::text IS NULL OR %(show)s = 'held' OR e.id IN (
                SELECT d.event_id FROM webhook_deliveries d
                WHERE d.state IN ('waiting', 'dead', 'held') AND d.state = %(show)s))
        ORDER BY e.seq DESC LIMIT %(limit)s
    )
    SELECT e.id, e.seq, s.name AS source, e.source_event_id, e.type, e.subject, e.occurred_at, e.received_at, e.held_reason,
        e.decision, coalesce(n.waiting, 0) AS waiting, coalesce(n.delivered, 0) AS delivered, coalesce(n.dead, 0) AS dead,
        coalesce(n.held, 0) AS held, coalesce(n.rejected, 0) AS rejected, coalesce(n.replayed, 0) AS replayed,
        coalesce(n.closed, 0) AS closed
    FROM wanted e LEFT JOIN webhook_sources s ON s.id = e.source_id LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE d.state = 'waiting')::int AS waiting,
            count(*) FILTER (WHERE d.state = 'delivered')::int AS delivered,
            count(*) FILTER (WHERE d.state = 'dead')::int AS dead,
            count(*) FILTER (WHERE d.state = 'held')::int AS held,
            count(*) FILTER (WHERE d.state = 'rejected')::int AS rejected,
            count(*) FILTER (WHERE d.state = 'replayed')::int AS replayed,
            count(*) FILTER (WHERE d.state = 'closed')::int AS closed
        FROM webhook_deliveries d WHERE d.event_id = e.id) AS n ON true
    ORDER BY e.seq DESC
"""
CONTENT = """
    SELECT content_type, length(raw) AS raw_bytes, data, convert_from(body, 'UTF8') AS body FROM webhook_events
    WHERE id = %(id)s
"""
DELIVERIES = """
    SELECT d.id, n.id AS endpoint_id, n.name AS endpoint, n.disabled_reason AS endpoint_disabled, d.state, d.job_id,
        d.replay_of, d.replay_id, d.tries, d.promised_at, d.created_at, d.delivered_at, d.died_at,
        j.status AS job_status, CASE WHEN j.status = 'pending' THEN j.next_run_at END AS next_try_at, j.attempts,
        j.max_attempts, j.run, j.error_class, j.last_error, j.closed_reason
    FROM webhook_deliveries d JOIN webhook_endpoints n ON n.id = d.endpoint_id LEFT JOIN ai_jobs j ON j.id = d.job_id
    WHERE d.event_id = %(id)s ORDER BY d.created_at, n.name
"""
ATTEMPTS = """
    SELECT a.delivery_id, a.try AS number, a.run, a.is_probe, n.name AS endpoint, a.started, a.gives_up_at, a.ended,
        a.duration_ms, a.outcome, a.http_status, a.error_class, a.error, a.answer
    FROM webhook_deliveries d JOIN webhook_attempts a ON a.delivery_id = d.id
    JOIN webhook_endpoints n ON n.id = a.endpoint_id
    WHERE d.event_id = %(id)s ORDER BY a.delivery_id, a.try
"""
LOCK = "SELECT held_reason, decision FROM webhook_events WHERE id = %(id)s FOR NO KEY UPDATE"
DECIDE = "UPDATE webhook_events SET decision = %(decision)s WHERE id = %(id)s"
RELEASE = """
    WITH released AS (
        UPDATE webhook_deliveries SET state = 'waiting', job_id = gen_random_uuid()
        WHERE event_id = %(id)s AND state = 'held' RETURNING id, job_id
    )
    INSERT INTO ai_jobs (id, payload, max_attempts)
    SELECT job_id, jsonb_build_object('type', 'deliver_event', 'delivery_id', id), 8 FROM released
"""
REJECT = "UPDATE webhook_deliveries SET state = 'rejected' WHERE event_id = %(id)s AND state = 'held'"


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event. `source` is None for one of our own; the counts are of its deliveries.

    It waits for a person while `held_reason` is there and `decision` is not.
    """

    id: UUID
    seq: int
    source: str | None
    source_event_id: str | None
    type: str
    subject: str | None
    occurred_at: datetime | None
    received_at: datetime
    held_reason: str | None
    decision: Literal["released", "rejected"] | None
    waiting: int
    delivered: int
    dead: int
    held: int
    rejected: int
    replayed: int
    closed: int

    @property
    def public_id(self) -> str:
        """Its id as senders and receivers know it."""
        return public_id(self.id)

    @property
    def is_held(self) -> bool:
        """Whether a person has to decide."""
        return self.held_reason is not None and self.decision is None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a delivery, `number` over all its runs; `outcome` is None while it goes on, or when it was interrupted."""

    delivery_id: UUID
    number: int
    run: int
    is_probe: bool
    endpoint: str
    started: datetime
    gives_up_at: datetime
    ended: datetime | None
    duration_ms: float | None
    outcome: Literal["delivered", "failed", "interrupted"] | None
    http_status: int | None
    error_class: str | None
    error: str | None
    answer: str | None


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """An event's way to one endpoint. What comes from the job is None once finished jobs are forgotten."""

    id: UUID
    endpoint_id: UUID
    endpoint: str
    endpoint_disabled: str | None  # why
    state: State
    job_id: UUID | None
    replay_of: UUID | None
    replay_id: UUID | None
    tries: int
    promised_at: datetime | None
    created_at: datetime
    delivered_at: datetime | None
    died_at: datetime | None
    job_status: str | None
    next_try_at: datetime | None
    attempts: int | None  # used, of this run
    max_attempts: int | None
    run: int | None
    error_class: str | None
    last_error: str | None
    closed_reason: str | None


@dataclass(frozen=True, slots=True)
class Content:
    """What an event holds. `body` is what is delivered: None for one of our own that no attempt has been made of."""

    content_type: str | None
    raw_bytes: int | None
    data: Any
    body: str | None


@dataclass(frozen=True, slots=True)
class EventDetail:
    """An event and its whole way."""

    event: EventRow
    content: Content
    deliveries: list[DeliveryRow]
    attempts: dict[UUID, list[Attempt]]  # by delivery, in order


def parse_id(text: str) -> UUID | None:
    """The event's id from how it is shown, or from a plain UUID."""
    try:
        return UUID(text.strip().removeprefix(PUBLIC_PREFIX))
    except ValueError:
        return None


def list_events(
    connection: Conn,
    *,
    limit: int,
    before_seq: int | None = None,
    source: str | None = None,
    event_type: str | None = None,
    show: Show | None = None,
) -> list[EventRow]:
    """The newest first; `before_seq` is the last one of the page before. `source` "antwoord" means events of our own."""
    return _select(
        connection,
        limit=limit,
        before_seq=before_seq,
        source=None if source is None else storable(source),
        event_type=None if event_type is None else storable(event_type),
        show=show,
    )


def show_event(connection: Conn, event_id: UUID) -> EventDetail | None:
    """One event and its way."""
    event = next(iter(_select(connection, event_id=event_id)), None)
    if event is None:
        return None
    key = {"id": event_id}
    with connection.cursor(row_factory=class_row(Content)) as cursor:
        content = cursor.execute(CONTENT, key).fetchone()
    with connection.cursor(row_factory=class_row(DeliveryRow)) as cursor:
        deliveries = cursor.execute(DELIVERIES, key).fetchall()
    attempts: dict[UUID, list[Attempt]] = {delivery.id: [] for delivery in deliveries}
    with connection.cursor(row_factory=class_row(Attempt)) as cursor:
        for attempt in cursor.execute(ATTEMPTS, key):
            attempts.setdefault(attempt.delivery_id, []).append(attempt)
    return None if content is None else EventDetail(event, content, deliveries, attempts)


def release_event(connection: Conn, event_id: UUID, *, who: str, reason: str) -> int:
    """Have a held event delivered after all; how many jobs that made. Raises UserError when it is not held."""
    return _decide(connection, event_id, "released", who=who, reason=stated(reason, "releasing it"))


def reject_event(connection: Conn, event_id: UUID, *, who: str, reason: str) -> int:
    """Never deliver a held event; how many deliveries that ended. Raises UserError when it is not held."""
    return _decide(connection, event_id, "rejected", who=who, reason=stated(reason, "rejecting it"))


def _decide(
    connection: Conn, event_id: UUID, decision: Literal["released", "rejected"], *, who: str, reason: str
) -> int:
    key = {"id": event_id}
    with connection.transaction():
        row = one(connection, LOCK, key)
        if row is None:
            raise UserError(f"There is no event {public_id(event_id)}.", name="no_event")
        if row[0] is None or row[1] is not None:
            raise UserError(f"{public_id(event_id)} is not held.", name="event_not_held")
        connection.execute(DECIDE, {**key, "decision": decision})
        count = connection.execute(RELEASE if decision == "released" else REJECT, key).rowcount
        what = "release_event" if decision == "released" else "reject_event"
        audit.record(connection, who=who, what=what, target_type="event", target_id=event_id, reason=reason)
        return count


def _select(
    connection: Conn,
    *,
    event_id: UUID | None = None,
    limit: int = 1,
    before_seq: int | None = None,
    source: str | None = None,
    event_type: str | None = None,
    show: Show | None = None,
) -> list[EventRow]:
    parameters = {
        "id": event_id, "limit": limit, "before_seq": before_seq, "source": source, "type": event_type, "show": show,
    }  # fmt: skip
    with connection.cursor(row_factory=class_row(EventRow)) as cursor:
        return cursor.execute(LIST, parameters).fetchall()
