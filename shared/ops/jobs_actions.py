"""What can be done with one job: run it again when it has died, cancel it while it waits, close it."""

from __future__ import annotations

from starlette.responses import Response

from shared.ops.routes import Route, action
from shared.ops.visit import Visit
from shared.queue import closing, replay


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
        became = closing.cancel(connection, [visit.id()], who=visit.who)[visit.id()]
    if became == "not found":
        return visit.missing()
    return visit.back(f"/jobs/{visit.id()}", notice=f"cancel_{became.replace(' ', '_')}")


def close_one(visit: Visit) -> Response:
    """Close a dead letter, with the reason that was given."""
    reason = visit.form.raw("reason")
    with visit.database.connection() as connection:
        became = closing.close(connection, [visit.id()], who=visit.who, reason=reason)[visit.id()]
    if became == "not found":
        return visit.missing()
    return visit.back(f"/jobs/{visit.id()}", notice=f"close_{became.replace(' ', '_')}")


ROUTES: tuple[Route, ...] = (
    action("/jobs/{id:uuid}/restart", restart_one),
    action("/jobs/{id:uuid}/cancel", cancel_one),
    action("/jobs/{id:uuid}/close", close_one),
)
