"""Replays: what running the filtered dead letters again would do, doing it at a rate, and how far each one is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from starlette.responses import Response

from shared.errors import UserError
from shared.ops import refusal
from shared.ops.fields import Fields
from shared.ops.jobs_query import Filter
from shared.ops.render import url, utc_now
from shared.ops.routes import Route, action, page
from shared.ops.visit import Visit
from shared.queue import dead_letters, replays
from shared.queue.closing import REASON_LIMIT
from shared.queue.elsewhere import DELIVERY, endpoint_names
from shared.queue.replays import Replay
from shared.queue.replays_dry_run import count_replay

LISTED = 50
# Restarts a second, as forms name them. The second is for a few hundred; who has more time than hurry takes less.
RATES: Final = {"0.2": 0.2, "1": 1.0, "5": 5.0, "20": 20.0, "100": 100.0}
RATE = "5"


def dry_run(visit: Visit) -> Response:
    """What running the filtered ones again would do. Nothing is done by looking."""
    return _ask(visit, _replayable(visit.query))


def start(visit: Visit) -> Response:
    """Run them again, at the rate and with the reason that were given."""
    wanted = _replayable(visit.form)
    rate, reason, to = visit.form.choice("rate", RATES), visit.form.raw("reason"), visit.form.text("to")
    try:
        with visit.database.connection() as connection:
            plan = replays.start(
                connection, _dead(wanted), who=visit.who, reason=reason, rate=RATES[rate or RATE], to=to
            )
    except UserError as wrong:
        return _ask(visit, wanted, wrong, rate or RATE, reason, to)
    visit.wake()
    return visit.back(f"/jobs/replays/{plan.id}", notice="replay_started")


def listed(visit: Visit) -> Response:
    """The newest replays."""
    return visit.page("replays/list.html", **_listed(visit))


def live_listed(visit: Visit) -> Response:
    """Their rows."""
    return visit.live("replays", "replays/rows.html", url("/live/jobs/replays"), **_listed(visit))


def one(visit: Visit) -> Response:
    """One replay."""
    shown = _one(visit)
    return visit.page("replays/one.html", **shown) if shown else visit.missing()


def live_one(visit: Visit) -> Response:
    """How far it is."""
    shown = _one(visit)
    return visit.live("replay", "replays/replay.html", shown["live_url"], **shown) if shown else visit.missing()


def stop(visit: Visit) -> Response:
    """Restart nothing further."""
    with visit.database.connection() as connection:
        found = replays.stop(connection, visit.id(), who=visit.who)
    return visit.back(f"/jobs/replays/{visit.id()}", notice="replay_stopped") if found else visit.missing()


def resume(visit: Visit) -> Response:
    """Go on where it was stopped."""
    with visit.database.connection() as connection:
        found = replays.resume(connection, visit.id(), who=visit.who)
    if found is None:
        return visit.missing()
    visit.wake()
    return visit.back(f"/jobs/replays/{visit.id()}", notice="replay_resumed")


def _ask(
    visit: Visit,
    wanted: Filter,
    problem: UserError | None = None,
    rate: str = RATE,
    reason: str = "",
    to: str | None = None,
) -> Response:
    """The page that says what would be done, and asks how fast and why."""
    with visit.database.connection() as connection:
        found = count_replay(connection, _dead(wanted), rate=RATES[rate])
        has_deliveries = any(row.type == DELIVERY for row in found.counts)
        endpoints = endpoint_names(connection) if has_deliveries else []
    return refusal.page_with(
        visit,
        problem,
        "replays/ask.html",
        url("/jobs/restart"),
        target=url("/jobs/restart", **wanted.query()),
        query=wanted.query(),
        found=found,
        restarted=found.restarted,
        rates=[(name, number, found.restarted / number) for name, number in RATES.items()],
        rate=rate,
        endpoints=endpoints,
        to=to,
        reason=reason,
        most=REASON_LIMIT,
    )


def _listed(visit: Visit) -> dict[str, Any]:
    with visit.database.connection() as connection:
        rows = replays.list_replays(connection, limit=LISTED)
    return {"rows": rows, "most": LISTED}


def _one(visit: Visit) -> dict[str, Any] | None:
    with visit.database.connection() as connection:
        found = replays.show(connection, visit.id())
        if found is None:
            return None
        became = replays.became(connection, found.id)
    return {
        "it": found,
        "became": became,
        "filter": _named(found),
        "ends_at": _ends_at(found),
        "live_url": url(f"/live/jobs/replays/{found.id}"),
    }


def _ends_at(found: Replay) -> Any:
    """About when a running one will have restarted all, if nothing joins and nothing holds it back."""
    return utc_now() + timedelta(seconds=(found.total - found.handled) / found.rate)


def _named(found: Replay) -> dict[str, Any]:
    """The replay's filter under the names that the jobs page has for it, without what it does not show."""
    return {{"class": "error_class"}.get(name, name): value for name, value in found.filter.items()}


def _dead(wanted: Filter) -> dead_letters.Filter:
    since, until = wanted.period
    return dead_letters.Filter(
        job_type=wanted.type,
        error_class=wanted.error_class,
        error=wanted.error,
        phone=wanted.address,
        since=since,
        until=until,
    )


def _replayable(fields: Fields) -> Filter:
    """The filter of a replay: dead letters only, and not one message's jobs, which have buttons of their own."""
    wanted = Filter.read(fields)
    if wanted.state != "failed" or wanted.sid:
        raise UserError("Only jobs that have failed can be restarted.", name="only_failed")
    return wanted


ROUTES: tuple[Route, ...] = (
    page("/jobs/restart", dry_run),
    action("/jobs/restart", start),
    page("/jobs/replays", listed),
    page("/live/jobs/replays", live_listed),
    page("/jobs/replays/{id:uuid}", one),
    page("/live/jobs/replays/{id:uuid}", live_one),
    action("/jobs/replays/{id:uuid}/stop", stop),
    action("/jobs/replays/{id:uuid}/resume", resume),
)
