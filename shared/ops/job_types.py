"""The queue by types of jobs: what waits and runs of each, what rests and is paused, what took long; and how to set a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from shared.db.budget import read_budget
from shared.errors import UserError
from shared.ops import refusal
from shared.ops.render import url
from shared.ops.routes import Route, action, page
from shared.ops.visit import Visit
from shared.queue import listing, types
from shared.queue.types import Limits

SLOW_SHOWN = 10
FIELD_OF = {"type_weight": "weight", "type_limit": "max_running"}  # which field of the form an error is about


@dataclass(frozen=True, slots=True)
class Typed:
    """What a person filled in, as text: a form that is refused shows it again. `seen` is what its page had shown."""

    weight: str
    max_running: str
    seen: Limits


def queue(visit: Visit) -> Response:
    """All types."""
    return visit.page("queue/list.html", **_listed(visit))


def live_queue(visit: Visit) -> Response:
    """Their figures."""
    return visit.live("queue", "queue/rows.html", url("/live/jobs/queue"), **_listed(visit))


def one(visit: Visit) -> Response:
    """One type."""
    return _page(visit)


def live_one(visit: Visit) -> Response:
    """All of it that changes by itself."""
    shown = _one(visit)
    return visit.live("type", "queue/type.html", shown["live_url"], **shown) if shown else visit.missing()


def pause(visit: Visit) -> Response:
    """Begin nothing more of a type."""
    with visit.database.connection() as connection:
        types.pause(connection, _name(visit), who=visit.who)
    return visit.back(_back(visit), notice="type_paused")


def resume(visit: Visit) -> Response:
    """Go on with it."""
    with visit.database.connection() as connection:
        types.resume(connection, _name(visit), who=visit.who)
    visit.wake()
    return visit.back(_back(visit), notice="type_resumed")


def set_limits(visit: Visit) -> Response:
    """Set its weight and its limit; a form that cannot be understood comes back with what was filled in."""
    form = visit.form
    weight, max_running = form.text("weight", 40) or "", form.text("max_running", 40) or ""
    seen = Limits(form.number("seen_weight") or 0, form.number("seen_max_running"))
    try:
        wanted = Limits(_whole(weight, "type_weight"), _whole(max_running, "type_limit") if max_running else None)
        with visit.database.connection() as connection:
            types.set_limits(connection, _name(visit), wanted, seen=seen, who=visit.who)
    except UserError as wrong:
        is_changed = wrong.name == "type_changed"  # then what the form shows is what there is now
        return _page(visit, wrong, None if is_changed else Typed(weight, max_running, seen))
    visit.wake()
    return visit.back(f"/jobs/queue/{_name(visit)}", notice="type_limits_set")


def _listed(visit: Visit) -> dict[str, Any]:
    threshold = visit.settings.slow_job_threshold_ms / 1000
    with visit.database.connection() as connection:
        rows = types.list_types(connection)
        slow = listing.slow_jobs(connection, threshold, limit=SLOW_SHOWN)
        budget = read_budget(connection, visit.settings.db_pool_max)
    return {
        "rows": rows,
        "finished": visit.services.overview.lately().finished,
        "slow": slow,
        "threshold": threshold,
        "budget": budget,
    }


def _one(visit: Visit) -> dict[str, Any] | None:
    threshold = visit.settings.slow_job_threshold_ms / 1000
    with visit.database.connection() as connection:
        found = types.find_type(connection, _name(visit))
        if found is None:
            return None
        slow = listing.slow_jobs(connection, threshold, job_type=found.type, limit=SLOW_SHOWN)
    return {
        "it": found,
        "finished": visit.services.overview.lately().finished,
        "slow": slow,
        "threshold": threshold,
        "live_url": url(f"/live/jobs/queue/{quote(found.type)}"),
    }


def _page(visit: Visit, problem: UserError | None = None, typed: Typed | None = None) -> Response:
    shown = _one(visit)
    if shown is None:
        return visit.missing()
    limits = shown["it"].limits
    unlimited = "" if limits.max_running is None else str(limits.max_running)
    return refusal.page_with(
        visit,
        problem,
        "queue/one.html",
        url(f"/jobs/queue/{quote(shown['it'].type)}"),
        field_of=FIELD_OF,
        typed=typed or Typed(str(limits.weight), unlimited, limits),
        **shown,
    )


def _name(visit: Visit) -> str:
    return str(visit.incoming.parameters["type"])


def _back(visit: Visit) -> str:
    """To the list, or to the type's own page: where the button was."""
    return f"/jobs/queue/{_name(visit)}" if visit.form.flag("on_its_page") else "/jobs/queue"


def _whole(text: str, name: str) -> int:
    """A whole number that a person has typed. Raises UserError `name`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise UserError(f"{text[:20]!r} is not a whole number.", name=name)
    return int(text)


ROUTES: tuple[Route, ...] = (
    page("/jobs/queue", queue),
    page("/live/jobs/queue", live_queue),
    page("/jobs/queue/{type}", one),
    page("/live/jobs/queue/{type}", live_one),
    action("/jobs/queue/{type}/pause", pause),
    action("/jobs/queue/{type}/resume", resume),
    action("/jobs/queue/{type}/limits", set_limits),
)
