"""People: the list, and one with what is known about them."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from shared.knowledge.people import count_people, list_people
from shared.ops import people_query
from shared.ops.render import url
from shared.ops.routes import Route, page
from shared.ops.visit import Visit

PAGE_SIZE = 50


def people(visit: Visit) -> Response:
    """The list, by name."""
    search, with_left = visit.query.text("q"), visit.query.flag("left")
    first = visit.query.number("from") or 0
    with visit.database.connection() as connection:
        rows = list_people(connection, search=search, with_left=with_left, limit=PAGE_SIZE + 1, offset=first)
        total = count_people(connection, search=search, with_left=with_left)
    filters = {"q": search, "left": "1" if with_left else None}
    before = max(first - PAGE_SIZE, 0)
    return visit.page(
        "people/list.html",
        rows=rows[:PAGE_SIZE],
        total=total,
        search=search,
        with_left=with_left,
        before=url("/people", **filters, **{"from": before or None}) if first else None,
        following=url("/people", **filters, **{"from": first + PAGE_SIZE}) if len(rows) > PAGE_SIZE else None,
    )


def person(visit: Visit) -> Response:
    """One person."""
    shown = _one(visit)
    return visit.page("people/one.html", **shown) if shown else visit.missing()


def live_person(visit: Visit) -> Response:
    """All of it that changes by itself."""
    shown = _one(visit)
    return visit.live("person", "people/person.html", shown["live_url"], **shown) if shown else visit.missing()


def _one(visit: Visit) -> dict[str, Any] | None:
    with visit.database.connection() as connection:
        found = people_query.find_person(connection, visit.id())
        if found is None:
            return None
        conversations = people_query.conversations_of(connection, found)
    return {"person": found, "conversations": conversations, "live_url": url(f"/live/people/{found.id}")}


ROUTES: tuple[Route, ...] = (
    page("/people", people),
    page("/people/{id:uuid}", person),
    page("/live/people/{id:uuid}", live_person),
)
