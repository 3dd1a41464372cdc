"""Jobs: the list with its filter, and one job with what happened to it."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from shared.ops import jobs_query, story
from shared.ops.jobs_query import Filter
from shared.ops.render import url
from shared.ops.routes import Route, page
from shared.ops.visit import Visit
from shared.queue import replays, types


def jobs(visit: Visit) -> Response:
    """The list."""
    return visit.page("jobs/list.html", **_listed(visit))


def live_jobs(visit: Visit) -> Response:
    """Its rows."""
    shown = _listed(visit)
    return visit.live("jobs", "jobs/rows.html", shown["live_url"], **shown)


def job(visit: Visit) -> Response:
    """One job."""
    shown = _one(visit)
    return visit.page("jobs/one.html", **shown) if shown else visit.missing()


def live_job(visit: Visit) -> Response:
    """All of it that changes by itself."""
    shown = _one(visit)
    return visit.live("job", "jobs/job.html", shown["live_url"], **shown) if shown else visit.missing()


def _listed(visit: Visit) -> dict[str, Any]:
    wanted, before = Filter.read(visit.query), visit.query.number("before")
    with visit.database.connection() as connection:
        rows, next_key = jobs_query.list_jobs(connection, wanted, before=before)
    query = wanted.query()
    return {
        "wanted": wanted,
        "query": query,
        "rows": rows,
        "older": url("/jobs", **query, before=next_key) if next_key else None,
        "newest": url("/jobs", **query) if before else None,
        "live_url": url("/live/jobs", **query, before=before),
        "states": jobs_query.STATES,
    }


def _one(visit: Visit) -> dict[str, Any] | None:
    with visit.database.connection() as connection:
        row = jobs_query.find_job(connection, visit.id())
        if row is None:
            return None
        attempts = jobs_query.attempts_of(connection, row.id)
        replay = replays.show(connection, row.replay_id) if row.replay_id else None
        kind = types.find_type(connection, row.type) if row.status == "pending" else None
    return {
        "job": row,
        "runs": story.by_run(story.tell(row.type, attempts), row.run),
        "replay": replay,
        "kind": kind,
        "attempts": attempts,
        "payload": json.dumps(row.payload, indent=2, ensure_ascii=False),
        "live_url": url(f"/live/jobs/{row.id}"),
    }


ROUTES: tuple[Route, ...] = (
    page("/jobs", jobs),
    page("/live/jobs", live_jobs),
    page("/jobs/{id:uuid}", job),
    page("/live/jobs/{id:uuid}", live_job),
)
