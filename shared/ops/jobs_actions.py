"""What can be done with jobs: restart one or all that match, cancel what waits, close what died."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from shared.errors import UserError
from shared.ops.fields import Fields
from shared.ops.jobs_query import Filter
from shared.ops.render import url
from shared.ops.routes import Route, action, page
from shared.ops.visit import Visit
from shared.queue import replay

OUTCOMES = ("restarted", "joined", "left_out", "skipped", "more")


def restart_one(visit: Visit) -> Response:
    """Run a dead letter again."""
    with visit.database.connection() as connection:
        became = replay.restart(connection, [visit.id()], who=visit.who)[visit.id()]
    if became == "not found":
        return visit.missing()
    if became in ("restarted", "joined"):
        visit.wake()
    return visit.back(f"/jobs/{visit.id()}", notice=f"job_{became.replace(' ', '_')}")


def cancel_one(visit: Visit) -> Response:
    """Take a waiting job out."""
    with visit.database.connection() as connection:
        became = replay.cancel(connection, [visit.id()], who=visit.who)[visit.id()]
    if became == "not found":
        return visit.missing()
    return visit.back(f"/jobs/{visit.id()}", notice=f"cancel_{became.replace(' ', '_')}")


def close_one(visit: Visit) -> Response:
    """Close a dead letter, with the reason that was given."""
    reason = visit.form.raw("reason")
    with visit.database.connection() as connection:
        became = replay.close(connection, [visit.id()], who=visit.who, reason=reason)[visit.id()]
    if became == "not found":
        return visit.missing()
    return visit.back(f"/jobs/{visit.id()}", notice=f"close_{became.replace(' ', '_')}")


def confirm_restart(visit: Visit) -> Response:
    """What restarting the filtered jobs would do, before it is done."""
    wanted = _restartable(visit.query)
    with visit.database.connection() as connection:
        found = connection.execute(replay.MATCHING, _parameters(wanted)).fetchall()
    left_out = sum(1 for _, may_have_left in found if may_have_left)
    return visit.page(
        "jobs/restart.html",
        wanted=wanted,
        query=wanted.query(),
        matching=len(found) - left_out,
        left_out=left_out,
        at_most=replay.RESTART_AT_MOST,
    )


def restart_filtered(visit: Visit) -> Response:
    """Restart them, and say what became of how many."""
    wanted = _restartable(visit.form)
    since, until = wanted.period
    with visit.database.connection() as connection:
        counts = replay.restart_matching(
            connection,
            who=visit.who,
            job_type=wanted.type,
            phone=wanted.address,
            error_class=wanted.error_class,
            since=since,
            until=until,
        )
    if counts.restarted or counts.joined:
        visit.wake()
    became = {name: getattr(counts, name) for name in OUTCOMES}
    return RedirectResponse(url("/jobs/restarted", **wanted.query(), **became), 303)


def restarted(visit: Visit) -> Response:
    """What became of the filtered jobs: an address of its own, so that a reload repeats nothing."""
    counts = {name: visit.query.number(name) or 0 for name in OUTCOMES}
    return visit.page("jobs/restarted.html", counts=counts, query=Filter.read(visit.query).query())


def _restartable(fields: Fields) -> Filter:
    """The filter of a restart: dead letters only, and not one message's jobs, which have buttons of their own."""
    wanted = Filter.read(fields)
    if wanted.state != "failed" or wanted.sid:
        raise UserError("Only jobs that have failed can be restarted.", name="only_failed")
    return wanted


def _parameters(wanted: Filter) -> dict[str, object]:
    since, until = wanted.period
    return {
        "type": wanted.type,
        "phone": wanted.address,
        "error_class": wanted.error_class,
        "since": since,
        "until": until,
    }


ROUTES: tuple[Route, ...] = (
    page("/jobs/restart", confirm_restart),
    page("/jobs/restarted", restarted),
    action("/jobs/restart", restart_filtered),
    action("/jobs/{id:uuid}/restart", restart_one),
    action("/jobs/{id:uuid}/cancel", cancel_one),
    action("/jobs/{id:uuid}/close", close_one),
)
