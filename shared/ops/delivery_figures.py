"""The four figures of the deliveries, with their plots: over a period that one chooses, of all endpoints or of one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from starlette.responses import Response

from shared.errors import UserError
from shared.ops import chart
from shared.ops.chart import Plot
from shared.ops.figures_kept import Reading
from shared.ops.render import url, utc_now
from shared.ops.routes import Route, page
from shared.ops.times import Times, start_of
from shared.ops.visit import Visit
from shared.webhooks import figures as webhook_figures
from shared.webhooks.figures import Latency, Period

# Periods that end now, in seconds.
PERIODS: Final = {"hour": 3600.0, "day": 86_400.0, "week": 7 * 86_400.0, "month": 30 * 86_400.0}
TRIES_SHOWN = 8  # bars; what took more is in the last


def figures(visit: Visit) -> Response:
    """The page."""
    return visit.page("webhooks/figures.html", **_shown(visit))


def live(visit: Visit) -> Response:
    """All that changes by itself."""
    shown = _shown(visit)
    return visit.live("figures", "webhooks/figures_shown.html", shown["live_url"], **shown)


def _shown(visit: Visit) -> dict[str, Any]:
    query, kept = visit.query, visit.services.figures
    endpoint, name = query.uuid("endpoint"), query.choice("period", PERIODS)
    since, until = query.day("since"), query.day("until")
    with visit.database.connection() as connection:
        names = webhook_figures.endpoint_names(connection)
        if since or until:
            last = until or utc_now().date()
            try:
                period = Period(start_of(since or last), start_of(last + timedelta(days=1)))
            except OverflowError as wrong:
                raise UserError("A day is not understood.", name="not_understood") from wrong
            if period.since >= period.until:
                raise UserError("The period ends before it begins.", name="period_order")
            reading, name = kept.of(connection, period, endpoint=endpoint), None
        else:
            name = name or "day"
            reading = kept.lately(connection, PERIODS[name], endpoint=endpoint)
    filters = {"period": name, "endpoint": endpoint, "since": since, "until": until}
    total, steps = reading.report.total, reading.buckets
    return {
        "figures": total,
        "rows": [(of, names[of], reading.report.of(of)) for of in names if endpoint in (None, of)],
        "steps": steps,
        "plots": _plots(visit, reading),
        "tries": _by_tries(total.tries),
        "waiting": _by_tries({number + 1: count for number, count in total.waiting.items()}),
        "endpoint": endpoint,
        "endpoints": names,
        "period": name,
        "periods": PERIODS,
        "since": since,
        "until": until,
        "live_url": url("/live/webhooks/figures", **filters),
    }


def _plots(visit: Visit, reading: Reading) -> dict[str, Plot]:
    """One of each figure."""
    steps, period = reading.buckets, reading.report.total.period
    times = Times(visit.words, utc_now())
    names = [times.name_of(step.start, period.seconds) for step in steps]
    shares = [step.first_attempt_success for step in steps]
    latencies = [step.latency for step in steps]
    known = [value for found in latencies if found for value in (found.p50, found.p95, found.p99)]
    tries, waiting = (
        _by_tries(reading.report.total.tries),
        _by_tries({number + 1: count for number, count in reading.report.total.waiting.items() if number}),
    )
    counts = list(range(1, TRIES_SHOWN + 1))
    return {
        "success": chart.plot(
            names,
            chart.percent(min((share for share in shares if share is not None), default=None)),
            curves={"given": shares},
        ),
        "latency": chart.plot(
            names,
            chart.seconds(known),
            curves={kind: [_of(found, kind) for found in latencies] for kind in ("p99", "p95", "p50")},
        ),
        "died": chart.plot(
            names,
            chart.whole(max((step.died for step in steps), default=0)),
            bars={"died": [step.died for step in steps]},
        ),
        "tries": chart.plot(
            [f"{number}+" if number == TRIES_SHOWN else str(number) for number in counts],
            chart.whole(max((*tries.values(), *waiting.values()), default=0)),
            bars={"given": [tries.get(n, 0) for n in counts], "asked": [waiting.get(n, 0) for n in counts]},
        ),
    }


def _of(latency: Latency | None, kind: str) -> float | None:
    return None if latency is None else {"p50": latency.p50, "p95": latency.p95, "p99": latency.p99}[kind]


def _by_tries(counts: Any) -> dict[int, int]:
    """Deliveries by number of tries, those with more than are shown at the last."""
    found: dict[int, int] = {}
    for number, count in counts.items():
        key = min(number, TRIES_SHOWN)
        found[key] = found.get(key, 0) + count
    return found


ROUTES: tuple[Route, ...] = (page("/webhooks/figures", figures), page("/live/webhooks/figures", live))
