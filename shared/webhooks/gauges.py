"""The chore `gauges`: one JSON line a minute that alerts are made of, whatever collects the logs."""

from __future__ import annotations

from shared import telemetry
from shared.db.pool import Conn, one
from shared.queue import types
from shared.webhooks import figures

WINDOW_SECONDS = 300.0  # a quiet endpoint's one failure should be seen, and still be there when somebody looks
DELIVERY = "deliver_event"

BREAKERS_OPEN = "SELECT count(*)::int FROM webhook_endpoints WHERE open_until IS NOT NULL AND disabled_at IS NULL"


def log_gauges(connection: Conn) -> None:
    """Dead letters of all types, the oldest due job's seconds, due deliveries and those that try again, open breakers; of five
    minutes first-attempt success and latency, which are left out when there was nothing to count."""
    kinds = types.list_types(connection)
    report = figures.read(connection, figures.last(connection, WINDOW_SECONDS))
    opened = one(connection, BREAKERS_OPEN)
    success, latency = report.total.first_attempt_success, report.total.latency
    telemetry.event(
        "gauges",
        dead_letters=sum(kind.dead for kind in kinds),
        oldest_due_seconds=round(max((kind.oldest_due_seconds or 0.0 for kind in kinds), default=0.0), 3),
        first_attempt_success=None if success is None else round(success, 6),
        deliveries_due=sum(kind.due for kind in kinds if kind.type == DELIVERY),
        retry_depth=report.total.waiting_again,
        breakers_open=0 if opened is None else int(opened[0]),
        delivery_p95_seconds=None if latency is None else round(latency.p95, 3),
        delivery_p99_seconds=None if latency is None else round(latency.p99, 3),
    )
