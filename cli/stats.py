"""`stats`: how the queue and the conversations stand."""

from __future__ import annotations

import dataclasses

from rich.console import Console

from cli.environment import database
from cli.output import AsJson, Output, table
from shared.conversation.listing import conversation_counts
from shared.db.budget import read_budget
from shared.queue.listing import job_counts, resting_types


def command(as_json: AsJson = False) -> None:
    """Show the counts: jobs by type and state, the oldest that waits, and conversations."""
    with database() as (settings, pool), pool.connection() as opened:
        jobs, resting, talks = job_counts(opened), resting_types(opened), conversation_counts(opened)
        budget = read_budget(opened, settings.db_pool_max)
    data = {
        "jobs": [
            {"type": job_type, "status": status, "count": count, "oldest_due_seconds": oldest}
            for job_type, status, count, oldest in jobs
        ],
        "resting": [{"type": name, "next_probe_seconds": left, "reason": why} for name, left, why in resting],
        "conversations": talks,
        "connections": dataclasses.asdict(budget) | {"processes": budget.processes},
    }

    def show(console: Console) -> None:
        rows = [(t, s, n, f"{oldest:.1f} s" if oldest else None) for t, s, n, oldest in jobs]
        console.print(table(["type", "state", "jobs", "oldest due"], rows) if rows else "no jobs yet")
        for name, left, why in resting:
            console.print(f"{name} rests, next probe in {max(left, 0):.0f} s: {why}")
        console.print()
        console.print(table(["", ""], [(name.replace("_", " "), count) for name, count in talks.items()]))
        console.print(
            f"connections: {budget.open} open; a process takes at most {budget.per_process}, the database gives"
            f" {budget.available}: room for {budget.processes} processes"
        )

    Output(as_json=as_json).result(data, show)
