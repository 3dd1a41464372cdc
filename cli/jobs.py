"""`jobs`: look at the queue, run again what failed, cancel what waits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console

from cli.environment import connection, person, wake_workers
from cli.output import AsJson, NothingMatched, Output, Status, table
from shared.queue import listing, replay
from shared.queue.listing import AttemptRow, JobRow

app = typer.Typer(help="Look at the queue, run again what failed, cancel what waits.")

RETRIED = {
    "restarted": "restarted",
    "joined": "closed: the conversation's active job takes its messages along",
    "kept": "kept: part of its reply may have been sent, and the conversation has another active job",
    "not failed": "left alone: it has not failed",
    "not found": "not found",
}
CANCELLED = {
    "cancelled": "cancelled: nothing of it goes out any more",
    "kept": "kept: its message may have been sent, or was",
    "not pending": "left alone: it runs, is done, or has failed",
    "not found": "not found",
}


@app.command("list")
def list_(
    state: Annotated[str | None, typer.Option(help="pending, processing, done or failed.")] = None,
    job_type: Annotated[
        str | None, typer.Option("--type", help="autoreply, suggest, send_message, embed_record, import_people.")
    ] = None,
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
        became = replay.restart(opened, job_ids, who=person())
    wake_workers(sum(what in ("restarted", "joined") for what in became.values()))
    _tell(became, RETRIED, {"restarted", "joined"}, as_json=as_json)


@app.command()
def cancel(job_ids: Annotated[list[UUID], typer.Argument(metavar="ID…")], as_json: AsJson = False) -> None:
    """Cancel waiting jobs: nothing of them goes out, and what they would have answered stays unanswered."""
    with connection() as opened:
        became = replay.cancel(opened, job_ids, who=person())
    _tell(became, CANCELLED, {"cancelled"}, as_json=as_json)


def _tell(became: Mapping[UUID, str], words: Mapping[str, str], well: Collection[str], *, as_json: bool) -> None:
    """Say what became of each job; the status says whether anything was done at all."""
    lines = [(job_id, words[what]) for job_id, what in became.items()]
    data = {"jobs": {str(job_id): what for job_id, what in became.items()}}
    Output(as_json=as_json).result(data, lambda console: console.print(table(["job", "what became of it"], lines)))
    if not any(what in well for what in became.values()):
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
