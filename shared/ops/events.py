"""Events of the webhook gateway: the list, one event with its way to each endpoint, and what a person can do about it."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.responses import Response

from shared.errors import UserError
from shared.ops import event_story, events_query, refusal
from shared.ops.render import url, utc_now
from shared.ops.routes import Route, action, page
from shared.ops.visit import Visit
from shared.queue import types
from shared.queue.closing import REASON_LIMIT
from shared.queue.elsewhere import DELIVERY, endpoint_names
from shared.webhooks import events
from shared.webhooks.events import EventDetail, Show
from shared.webhooks.resend import resend

PAGE_SIZE = 50
TYPES_OFFERED = 100
SHOWS: Final[tuple[Show, ...]] = ("held", "dead", "waiting")
OWN = "antwoord"  # as a source: events of our own


def listed(visit: Visit) -> Response:
    """The newest events that match."""
    shown = _listed(visit)
    with visit.database.connection() as connection:
        offered = events_query.known_types(connection, limit=TYPES_OFFERED)
        sources = events_query.source_names(connection)
    return visit.page("webhooks/events.html", types=offered, sources=[*sources, OWN], **shown)


def live_listed(visit: Visit) -> Response:
    """Their rows."""
    shown = _listed(visit)
    return visit.live("events", "webhooks/events_rows.html", shown["live_url"], **shown)


def one(visit: Visit) -> Response:
    """One event."""
    return _page(visit)


def live_one(visit: Visit) -> Response:
    """Its way."""
    shown = _one(visit)
    return visit.live("event", "webhooks/event.html", shown["live_url"], **shown) if shown else visit.missing()


def delivery(visit: Visit) -> Response:
    """The page that shows a delivery: its event's."""
    with visit.database.connection() as connection:
        event_id = events_query.event_of(connection, visit.id())
    return visit.back(f"/webhooks/events/{event_id}") if event_id else visit.missing()


def send_again(visit: Visit) -> Response:
    """Send a delivery again, to its own endpoint or to another."""
    reason, to = visit.form.raw("reason"), visit.form.text("to")
    try:
        with visit.database.connection() as connection:
            event_id = events_query.event_of(connection, visit.id())
            sent = resend(connection, visit.id(), who=visit.who, reason=reason, to=to)
    except UserError as wrong:
        return _page(visit, wrong, event_id)
    if sent is None or event_id is None:
        return visit.missing()
    visit.wake()
    return visit.back(f"/webhooks/events/{event_id}", notice="delivery_resent")


def release(visit: Visit) -> Response:
    """Have a held event delivered after all."""
    try:
        with visit.database.connection() as connection:
            events.release_event(connection, visit.id(), who=visit.who, reason=visit.form.raw("reason"))
    except UserError as wrong:
        return _page(visit, wrong)
    visit.wake()
    return visit.back(f"/webhooks/events/{visit.id()}", notice="event_released")


def reject(visit: Visit) -> Response:
    """Never deliver a held event."""
    try:
        with visit.database.connection() as connection:
            events.reject_event(connection, visit.id(), who=visit.who, reason=visit.form.raw("reason"))
    except UserError as wrong:
        return _page(visit, wrong)
    return visit.back(f"/webhooks/events/{visit.id()}", notice="event_rejected")


def _listed(visit: Visit) -> dict[str, Any]:
    query = visit.query
    source, event_type, show = query.text("source"), query.text("type"), query.choice("show", SHOWS)
    before = query.number("before")
    with visit.database.connection() as connection:
        rows = events.list_events(
            connection, limit=PAGE_SIZE + 1, before_seq=before, source=source, event_type=event_type, show=show
        )
    filters = {"source": source, "type": event_type, "show": show}
    shown = rows[:PAGE_SIZE]
    return {
        "rows": shown,
        "filters": filters,
        "shows": SHOWS,
        "is_filtered": any(filters.values()),
        "older": url("/webhooks", **filters, before=shown[-1].seq) if len(rows) > PAGE_SIZE else None,
        "newest": url("/webhooks", **filters) if before else None,
        "live_url": url("/live/webhooks", **filters, before=before),
    }


def _one(visit: Visit, event_id: Any = None) -> dict[str, Any] | None:
    with visit.database.connection() as connection:
        detail = events.show_event(connection, event_id or visit.id())
        if detail is None:
            return None
        asked = events_query.asked_for(connection, detail)
        resting = events_query.resting(connection, [delivery.endpoint_id for delivery in detail.deliveries])
        kind = types.find_type(connection, DELIVERY)
        endpoints = endpoint_names(connection)
    event = detail.event
    return {
        "event": event,
        "content": detail.content,
        "decided": next((one for one in asked if one.target_id == str(event.id)), None),
        "ways": [_way(detail, place, asked) for place in range(len(detail.deliveries))],
        "resting": resting,
        "is_paused": bool(kind and kind.paused),
        "endpoints": endpoints,
        "data": json.dumps(detail.content.data, indent=2, ensure_ascii=False),
        "most": REASON_LIMIT,
        "live_url": url(f"/live/webhooks/events/{event.id}"),
    }


def _way(detail: EventDetail, place: int, asked: list[events_query.Asked]) -> event_story.Way:
    """One delivery with what people asked about it."""
    found = detail.deliveries[place]
    own = {str(found.id), str(found.job_id)}
    about = [
        one
        for one in asked
        if one.what in ("resend_delivery", "restart_job", "replay") and (one.made == found.id or one.target_id in own)
    ]
    return event_story.tell(found, detail.attempts[found.id], about, utc_now())


def _page(visit: Visit, problem: UserError | None = None, event_id: Any = None) -> Response:
    shown = _one(visit, event_id)
    if shown is None:
        return visit.missing()
    address = url(f"/webhooks/events/{shown['event'].id}")
    return refusal.page_with(visit, problem, "webhooks/event_page.html", address, **shown)


ROUTES: tuple[Route, ...] = (
    page("/webhooks", listed),
    page("/live/webhooks", live_listed),
    page("/webhooks/events/{id:uuid}", one),
    page("/live/webhooks/events/{id:uuid}", live_one),
    action("/webhooks/events/{id:uuid}/release", release),
    action("/webhooks/events/{id:uuid}/reject", reject),
    page("/webhooks/deliveries/{id:uuid}", delivery),
    action("/webhooks/deliveries/{id:uuid}/resend", send_again),
)
