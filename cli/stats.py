"""`stats`: how the queue, the conversations and the deliveries stand."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer
from rich.console import Console

from cli.delivery_figures import as_json as figures_json
from cli.delivery_figures import figures_table
from cli.environment import database
from cli.jobs import duration, types_table
from cli.output import AsJson, Output, table
from shared.conversation.listing import conversation_counts
from shared.db.budget import read_budget
from shared.queue.listing import job_counts, resting_types, slow_jobs
from shared.queue.replays import list_replays
from shared.queue.types import list_types
from shared.webhooks import figures

SLOW_SHOWN = 10


def command(
    hours: Annotated[
        float, typer.Option(help="The deliveries' figures are over the last so many hours.", min=0.01, max=1_000_000)
    ] = 24.0,
    as_json: AsJson = False,
) -> None:
    """Show how it stands: jobs, what rests, is paused or slow, replays, conversations, connections, and deliveries.

    Of the deliveries the four figures: right at the first try, tries, dead letters a minute, and the time that they took.
    """
    with database() as (settings, pool), pool.connection() as opened:
        jobs, resting, kinds = job_counts(opened), resting_types(opened), list_types(opened)
        slow = slow_jobs(opened, settings.slow_job_threshold_ms / 1000, limit=SLOW_SHOWN)
        replays = list_replays(opened, state="running")
        talks, budget = conversation_counts(opened), read_budget(opened, settings.db_pool_max)
        deliveries = figures.read(opened, figures.last(opened, hours * 3600))
        names = figures.endpoint_names(opened)
    data = {
        "jobs": [
            {"type": job_type, "status": status, "count": count, "oldest_due_seconds": oldest}
            for job_type, status, count, oldest in jobs
        ],
        "types": kinds,
        "depth": sum(kind.waiting for kind in kinds),
        "due": sum(kind.due for kind in kinds),
        "resting": [{"type": name, "next_probe_seconds": left, "reason": why} for name, left, why in resting],
        "paused": [kind.type for kind in kinds if kind.paused],
        "slow": slow,
        "replays": replays,
        "conversations": talks,
        "connections": dataclasses.asdict(budget) | {"processes": budget.processes},
        "deliveries": figures_json(deliveries, names),
    }

    def show(console: Console) -> None:
        console.print(types_table(kinds))
        done = sum(count for _, status, count, _ in jobs if status == "done")
        console.print(f"\n{data['depth']:,} jobs wait, {data['due']:,} of them are due; {done:,} are done")
        for name, left, why in resting:
            console.print(f"{name} rests, next probe in {max(left, 0):.0f} s: {why}")
        for found in replays:
            console.print(
                f"replay {found.id}: {found.handled:,} of {found.total:,}, {found.rate:g} a second: {found.reason}"
            )
        if slow:
            threshold = max(settings.slow_job_threshold_ms / 1000, 1)
            console.print(f"\nlonger than {threshold:g} s in the last day:")
            rows = [
                (one.job_id, one.type, one.name, duration(one.seconds), one.outcome, one.error_class) for one in slow
            ]
            console.print(table(["job", "type", "with", "took", "outcome", "error"], rows))
        console.print()
        console.print(table(["", ""], [(name.replace("_", " "), count) for name, count in talks.items()]))
        console.print(
            f"connections: {budget.open} open; a process takes at most {budget.per_process}, the database gives"
            f" {budget.available}: room for {budget.processes} processes"
        )

        if names:
            console.print(f"\ndeliveries of the last {hours:g} hours:")
            console.print(figures_table(deliveries, names))

    Output(as_json=as_json).result(data, show)
