"""`jobs`: look at the queue, run again what failed, cancel what waits, and set the types: pause, weight, limit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console

from cli.environment import connection, person, wake_workers
from cli.output import AsJson, NothingMatched, Output, Status, table
from shared.errors import UserError
from shared.queue import closing, listing, replay, replays, types
from shared.queue.listing import AttemptRow, JobRow
from shared.queue.replays import Replay
from shared.queue.types import Limits, TypeRow

app = typer.Typer(help="Look at the queue, run again what failed, cancel what waits, pause and limit types.")

STATES = ("pending", "processing", "done", "failed")
NTH = ("first", "second", "third", "fourth", "fifth")
Type = Annotated[str, typer.Argument(metavar="TYPE")]

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
    if state is not None and state not in STATES:
        raise UserError(f"There is no state {state!r}: choose from {', '.join(STATES)}.")
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
        restarted_by = replays.show(opened, rows[0].replay_id) if rows and rows[0].replay_id else None
    if not rows:
        raise NothingMatched(f"There is no job {job_id}.")

    def print_job(console: Console) -> None:
        console.print(_table(rows))
        if rows[0].last_error:
            console.print(f"\nlast error: {rows[0].last_error}")
        if restarted_by:
            console.print(f"\n{_restarted_by(rows[0], restarted_by)}")
        console.print()
        console.print(_attempts(attempts))

    data = {"job": rows[0], "next_run": next_run(rows[0]), "attempts": attempts, "replay": restarted_by}
    Output(as_json=as_json).result(data, print_job)


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
        became = closing.cancel(opened, job_ids, who=person())
    _tell(became, CANCELLED, {"cancelled"}, as_json=as_json)


@app.command("types")
def types_(as_json: AsJson = False) -> None:
    """List the types of jobs: what waits and runs of each, its weight and limit, and whether it rests or is paused."""
    with connection() as opened:
        rows = types.list_types(opened)
    Output(as_json=as_json).result({"types": rows}, lambda console: console.print(types_table(rows)))


@app.command()
def pause(
    job_type: Type,
    reason: Annotated[str, typer.Option(help="Why; it is kept in the audit log.")] = "",
    as_json: AsJson = False,
) -> None:
    """Begin nothing more of a type: what runs is finished, what waits stays."""
    with connection() as opened:
        types.pause(opened, job_type, who=person(), reason=reason)
        found = types.find_type(opened, job_type)
    _show_type(found, as_json=as_json)


@app.command()
def resume(job_type: Type, as_json: AsJson = False) -> None:
    """Go on with a paused type, the oldest first."""
    with connection() as opened:
        types.resume(opened, job_type, who=person())
        found = types.find_type(opened, job_type)
    wake_workers(1)
    _show_type(found, as_json=as_json)


@app.command()
def limit(
    job_type: Type,
    weight: Annotated[int | None, typer.Option(help="Its share of the slots when other types wait too.")] = None,
    max_running: Annotated[
        str | None, typer.Option(metavar="N|none", help="How many at once, over all instances.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set a type's weight, and how many of it run at once; what is not given stays as it is."""
    if weight is None and max_running is None:
        raise UserError("Give --weight or --max-running.")
    with connection() as opened:
        found = types.find_type(opened, job_type)
        if found is None or not found.is_known:
            raise NothingMatched(f"There is no type of job {job_type}: see `jobs types`.")
        wanted = Limits(
            found.weight if weight is None else weight,
            found.max_running if max_running is None else _limit(max_running),
        )
        types.set_limits(opened, job_type, wanted, seen=found.limits, who=person())
        found = types.find_type(opened, job_type)
    wake_workers(1)
    _show_type(found, as_json=as_json)


def next_run(row: JobRow) -> str | None:
    """When a waiting job runs and which try that is: `in 40 s, third and last try`. None for one that does not wait."""
    if row.next_run_in is None:
        return None
    nth = f"{NTH[row.next_try - 1]} try" if row.next_try <= len(NTH) else f"try {row.next_try}"
    if row.is_last_try:
        nth = nth.replace(" try", " and last try") if row.next_try <= len(NTH) else f"{nth}, the last"
    return f"{'in ' + duration(row.next_run_in) if row.next_run_in > 0 else 'due'}, {nth}"


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`, `2 d`."""
    for size, unit, most in ((1, "s", 120), (60, "min", 7200), (3600, "h", 172_800)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:,.0f} d"


def types_table(rows: Sequence[TypeRow]) -> Any:
    """Types of jobs for a terminal."""
    shown = [
        (row.type, type_state(row), row.waiting, row.due,
         "" if row.oldest_due_seconds is None else duration(row.oldest_due_seconds), row.running, row.dead,
         row.weight, row.max_running or "none")
        for row in rows
    ]  # fmt: skip
    return table(["type", "state", "waiting", "due", "oldest due", "running", "dead", "weight", "limit"], shown)


def type_state(row: TypeRow) -> str:
    """How a type stands, in a few words."""
    if not row.is_known:
        return "unknown to this version: never claimed"
    if row.paused:
        by = f" by {row.paused_by}" if row.paused_by else ""
        return f"paused{by}" + (f": {row.paused_why}" if row.paused_why else "")
    if row.resting_until:
        return f"rests: {row.resting_reason}"
    return "ready"


def _limit(text: str) -> int | None:
    if text.strip().lower() == "none":
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise UserError(f"--max-running is a whole number or none, not {text!r}.")
    return int(text)


def _show_type(found: TypeRow | None, *, as_json: bool) -> None:
    assert found is not None, "it has just been changed"
    Output(as_json=as_json).result({"type": found}, lambda console: console.print(types_table([found])))


def _restarted_by(row: JobRow, replay: Replay) -> str:
    return f"run {row.run} is of replay {replay.id}, by {replay.who}: {replay.reason}"


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
        return next_run(row) or row.status
    return row.status


def _attempts(attempts: Sequence[AttemptRow]) -> Any:
    rows = [
        (f"{a.run}.{a.claim}", f"{a.started:%d-%m %H:%M:%S}", f"{(a.ended - a.started).total_seconds():.2f} s", a.outcome,
         a.error_class, a.http_status, a.error)
        for a in attempts
    ]  # fmt: skip
    return table(["run.claim", "started (UTC)", "took", "outcome", "class", "status", "error"], rows)
