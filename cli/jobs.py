"""`jobs`: look at the queue, and run again what failed."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console

from cli.environment import connection
from cli.output import AsJson, NothingMatched, Output, Status, table
from shared.queue import listing, replay
from shared.queue.listing import AttemptRow, JobRow

app = typer.Typer(help="Look at the queue, and run again what failed.")

WORDS = {
    "restarted": "restarted",
    "joined": "closed: the conversation's active job takes its messages along",
    "kept": "kept: part of its reply may have been sent, and the conversation has another active job",
    "not failed": "left alone: it has not failed",
    "not found": "not found",
}


@app.command("list")
def list_(
    state: Annotated[str | None, typer.Option(help="pending, processing, done or failed.")] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="autoreply, send_message, embed_record.")] = None,
    phone: Annotated[str | None, typer.Option(help="The conversation's address, +31…")] = None,
    sid: Annotated[str | None, typer.Option(help="Twilio's id of a message.")] = None,
    error_class: Annotated[str | None, typer.Option(help="The class of the last error.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest jobs."""
    with connection() as opened:
        rows = listing.list_jobs(
            opened, state=state, job_type=job_type, phone=phone, sid=sid, error_class=error_class, limit=limit
        )
    if not rows:
        raise NothingMatched("No job matches.")
    Output(as_json=as_json).result({"jobs": rows}, lambda console: console.print(_table(rows)))


@app.command()
def show(job_id: Annotated[UUID, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Show one job with its attempts."""
    with connection() as opened:
        rows = listing.list_jobs(opened, ids=[job_id])
        attempts = listing.attempts_of(opened, [job_id])[job_id]
    if not rows:
        raise NothingMatched(f"There is no job {job_id}.")

    def print_job(console: Console) -> None:
        console.print(_table(rows))
        if rows[0].last_error:
            console.print(f"\nlast error: {rows[0].last_error}")
        console.print()
        console.print(_attempts(attempts))

    Output(as_json=as_json).result({"job": rows[0], "attempts": attempts}, print_job)


@app.command()
def retry(job_ids: Annotated[list[UUID], typer.Argument(metavar="ID…")], as_json: AsJson = False) -> None:
    """Run failed jobs again, now: the same rows, their history kept. What may have been sent is not sent blindly."""
    with connection() as opened:
        became = replay.restart(opened, job_ids, who=f"command:{getpass.getuser()}")
    lines = [(job_id, WORDS[what]) for job_id, what in became.items()]
    data = {"jobs": {str(job_id): what for job_id, what in became.items()}}
    Output(as_json=as_json).result(data, lambda console: console.print(table(["job", "what became of it"], lines)))
    if not {"restarted", "joined"} & set(became.values()):
        raise typer.Exit(Status.NOTHING)


def _table(rows: Sequence[JobRow]) -> Any:
    shown = [
        (row.id, row.type, _state(row), row.address, f"{row.attempts}/{row.max_attempts}", row.error_class,
         f"{row.created_at:%d-%m %H:%M:%S}")
        for row in rows
    ]  # fmt: skip
    return table(["job", "type", "state", "with", "tries", "error", "created (UTC)"], shown)


def _state(row: JobRow) -> str:
    if row.closed_reason:
        return f"closed: {row.closed_reason}"
    if row.next_run_in is not None:
        return f"waits {row.next_run_in:.0f} s" if row.next_run_in > 0 else "due"
    return row.status


def _attempts(attempts: Sequence[AttemptRow]) -> Any:
    rows = [
        (f"{a.run}.{a.claim}", f"{a.started:%d-%m %H:%M:%S}", f"{(a.ended - a.started).total_seconds():.2f} s", a.outcome,
         a.error_class, a.http_status, a.error)
        for a in attempts
    ]  # fmt: skip
    return table(["run.claim", "started (UTC)", "took", "outcome", "class", "status", "error"], rows)
