"""What the gateway's page shows: the newest events with their way, how the endpoint stands, what was sent and what arrived."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from local.gateway.demo import ENDPOINT, SOURCE
from local.standins.receiver import ReceiverStandIn
from local.standins.vendor import Sent, Vendor
from shared.db.pool import Conn, one
from shared.webhooks import endpoints, events
from shared.webhooks.events import Attempt, DeliveryRow, EventDetail

# Of the vendor's events, and of our own: each death tells of itself, and would fill it.
SHOWN = {SOURCE: 8, "antwoord": 3}
SENT_SHOWN = 8
TRIES_SHOWN = 12
NOW = "SELECT now()"


def of_gateway(connection: Conn) -> dict[str, Any]:
    """The newest events and the endpoint, as JSON has words for them."""
    row = one(connection, NOW)
    assert row is not None
    now: datetime = row[0]
    listed = [
        event for source, most in SHOWN.items() for event in events.list_events(connection, limit=most, source=source)
    ]
    newest = sorted(listed, key=lambda event: event.seq, reverse=True)
    found = [detail for event in newest if (detail := events.show_event(connection, event.id)) is not None]
    return {"events": [_event(detail, now) for detail in found], "endpoint": _endpoint(connection, now)}


def of_vendor(vendor: Vendor) -> list[dict[str, Any]]:
    """What was sent, the newest first."""
    return [_sent(sent) for sent in vendor.sent[: -SENT_SHOWN - 1 : -1]]


def of_receiver(receiver: ReceiverStandIn) -> dict[str, Any]:
    """What arrived, the newest first, and how often it was acted on."""
    counts = receiver.counts
    return {
        "acted": counts.acted, "seen": counts.seen, "refused": counts.refused,
        "arrivals": [
            {"message_id": arrival.message_id, "type": arrival.type, "verdict": arrival.verdict,
             "is_replay": arrival.replay_id is not None, "time": arrival.time}
            for arrival in receiver.arrivals[: -SENT_SHOWN - 1 : -1]
        ],
    }  # fmt: skip


def _event(detail: EventDetail, now: datetime) -> dict[str, Any]:
    event = detail.event
    return {
        "id": str(event.id), "shown_id": event.public_id, "type": event.type, "source": event.source,
        "source_event_id": event.source_event_id, "received": event.received_at.timestamp(), "is_held": event.is_held,
        "deliveries": [_delivery(delivery, detail.attempts[delivery.id], now) for delivery in detail.deliveries],
    }  # fmt: skip


def _delivery(delivery: DeliveryRow, attempts: Sequence[Attempt], now: datetime) -> dict[str, Any]:
    next_try = delivery.next_try_at
    return {
        "id": str(delivery.id), "job_id": str(delivery.job_id) if delivery.job_id else None, "endpoint": delivery.endpoint,
        "state": delivery.state, "job_status": delivery.job_status, "is_replay": delivery.replay_of is not None,
        "used": delivery.attempts, "most": delivery.max_attempts, "run": delivery.run,
        "next_try_in": None if next_try is None else (next_try - now).total_seconds(),
        "error_class": delivery.error_class, "closed": delivery.closed_reason,
        "tries": [_attempt(attempt) for attempt in attempts[-TRIES_SHOWN:]],
    }  # fmt: skip


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number, "run": attempt.run, "is_probe": attempt.is_probe, "started": attempt.started.timestamp(),
        "outcome": attempt.outcome, "duration_ms": attempt.duration_ms, "http_status": attempt.http_status,
        "error_class": attempt.error_class,
    }  # fmt: skip


def _endpoint(connection: Conn, now: datetime) -> dict[str, Any] | None:
    found = endpoints.find_endpoint(connection, ENDPOINT)
    if found is None:
        return None
    return {
        "name": found.name, "disabled": found.disabled_reason, "failures_in_row": found.failures_in_row,
        "open_for": None if found.open_until is None else max((found.open_until - now).total_seconds(), 0.0),
        "waiting": found.waiting, "dead": found.dead, "average_ms": found.average_ms,
    }  # fmt: skip


def _sent(sent: Sent) -> dict[str, Any]:
    return {
        "message_id": sent.message_id, "type": sent.type, "how": sent.how, "time": sent.time, "is_over": sent.is_over,
        "is_accepted": sent.is_accepted,
        "tries": [{"status": tried.status, "error": tried.error, "duration_ms": tried.duration_ms} for tried in sent.tries],
    }  # fmt: skip
