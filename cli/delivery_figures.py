"""The deliveries' four figures as `stats` shows them: a row for all endpoints and one for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from rich.table import Table

from cli.output import table
from shared.webhooks.figures import Figures, Report


def as_json(report: Report, names: Mapping[UUID, str]) -> dict[str, Any]:
    """Of all, and of each endpoint by name; durations in seconds."""
    return {
        "since": report.total.period.since,
        "until": report.total.period.until,
        "all": _figures(report.total),
        "endpoints": {name: _figures(report.of(of)) for of, name in names.items()},
    }


def figures_table(report: Report, names: Mapping[UUID, str]) -> Table:
    """The same for people."""
    rows = [("all", report.total), *((name, report.of(of)) for of, name in names.items())]
    heads = ["endpoint", "first tries", "right at first", "delivered", "tries", "most", "waiting", "again", "dead", "dead/min",
             "p50", "p95", "p99"]  # fmt: skip
    return table(heads, [(name, *_shown(figures)) for name, figures in rows])


def _figures(figures: Figures) -> dict[str, Any]:
    return {
        "first_tries": figures.first_tries,
        "first_attempt_success": figures.first_attempt_success,
        "delivered": figures.delivered,
        "mean_tries": figures.mean_tries,
        "most_tries": figures.most_tries,
        "tries": figures.tries,
        "waiting": figures.waiting_now,
        "waiting_again": figures.waiting_again,
        "died": figures.died,
        "died_a_minute": figures.died_a_minute,
        "latency_seconds": asdict(figures.latency) if figures.latency else None,
    }


def _shown(figures: Figures) -> tuple[str, ...]:
    success, mean, latency = figures.first_attempt_success, figures.mean_tries, figures.latency
    return (
        f"{figures.first_tries:,}",
        "–" if success is None else f"{int(success * 10_000) / 100:.2f}%",  # never 100% of what was not all
        f"{figures.delivered:,}",
        "–" if mean is None else f"{mean:.2f}",
        str(figures.most_tries or "–"),
        f"{figures.waiting_now:,}",
        f"{figures.waiting_again:,}",
        f"{figures.died:,}",
        f"{figures.died_a_minute:.3g}",
        *(
            ("–",) * 3
            if latency is None
            else (f"{seconds:.3g} s" for seconds in (latency.p50, latency.p95, latency.p99))
        ),
    )
