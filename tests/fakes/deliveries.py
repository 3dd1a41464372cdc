"""Rows of the webhook gateway for tests of what surrounds it: endpoints, events, and deliveries in any state."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from tests.fakes.world import World

ADD_ENDPOINT = """
    INSERT INTO webhook_endpoints (name, url, events, secret, created_by)
    VALUES (%(name)s, 'https://' || %(name)s || '.example.org/', %(events)s, '\\x01', 'anna') RETURNING id
"""
ADD_EVENT = """
    INSERT INTO webhook_events (id, type, subject, occurred_at, data, body)
    VALUES (%(id)s, %(type)s, 'x', now(), '{"n": 1}', convert_to('{"n":1}', 'UTF8'))
"""
ADD_DELIVERY = """
    INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state, tries, delivered_at)
    VALUES (%(id)s, %(event)s, %(endpoint)s, %(job)s, %(state)s, 8, CASE %(state)s WHEN 'delivered' THEN now() END)
"""
ADD_JOB = """
    INSERT INTO ai_jobs (id, payload, status, attempts, claims, max_attempts, error_class, last_error)
    VALUES (%(job)s, jsonb_build_object('type', 'deliver_event', 'delivery_id', %(id)s::uuid), %(status)s, %(tries)s,
        %(tries)s, 8, %(class)s, %(error)s)
"""
TABLES = (
    "webhook_attempts", "webhook_receipts", "ai_jobs", "webhook_deliveries", "replays", "webhook_endpoints", "webhook_events",
    "webhook_sources",
)  # fmt: skip
_STATUS = {"waiting": "pending", "delivered": "done", "dead": "failed"}


def forget_deliveries(world: World) -> None:
    """Empty the gateway's tables, and the jobs with them."""
    for table in ("job_attempts", *TABLES):
        world.execute(f"DELETE FROM {table}")


def add_endpoint(world: World, name: str, *events: str) -> UUID:
    """An endpoint that asks for these types; its secret cannot be opened, so nothing can be sent to it."""
    found: UUID = world.value(ADD_ENDPOINT, name=name, events=list(events))
    return found


def add_event(world: World, event_type: str = "response.completed") -> UUID:
    """An event whose body is made."""
    event = uuid4()
    world.execute(ADD_EVENT, id=event, type=event_type)
    return event


def add_delivery(
    world: World, endpoint: UUID, state: str = "dead", *, event: UUID | None = None, error_class: str = "http_500"
) -> tuple[UUID, UUID | None]:
    """A delivery in a state, with the job that it then has; the ids of both."""
    delivery, job = uuid4(), uuid4() if state in _STATUS else None
    given: dict[str, Any] = {"id": delivery, "job": job, "endpoint": endpoint, "state": state}
    world.execute(ADD_DELIVERY, **given, event=event or add_event(world))
    if job is not None:
        dead = state == "dead"
        world.execute(
            ADD_JOB, **given, status=_STATUS[state], tries=8 if dead else 0,
            error=f"{error_class}: the endpoint answered" if dead else None, **{"class": error_class if dead else None},
        )  # fmt: skip
    return delivery, job
