"""`dlq`: the dead letters. Look at them, run them again at a rate, or close them with a reason."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from cli.environment import connection, database, person, waking
from cli.output import AsJson, NothingMatched, Output, Status, plain, table
from shared.db.pool import Conn
from shared.errors import UserError
from shared.queue import closing, replays
from shared.queue.dead_letters import Count, DeadLetter, Filter, list_dead
from shared.queue.replays import Replay
from shared.queue.replays_drive import advance
from shared.queue.replays_dry_run import DryRun, count_replay

app = typer.Typer(help="What failed for good: look at it, run it again at a rate, or close it.")

WATCH_SECONDS = 0.2  # between two looks at a replay
SAID_SECONDS = 5.0  # between two lines about it, where there is no terminal

Type = Annotated[str | None, typer.Option("--type", help="autoreply, suggest, send_message, embed_record, …")]
Class = Annotated[str | None, typer.Option("--class", help="The class of the last error.")]
Error = Annotated[str | None, typer.Option("--error", help="A part of the last error's text.")]
Phone = Annotated[str | None, typer.Option("--phone", help="The conversation's address, +31…")]
OlderThan = Annotated[str | None, typer.Option("--older-than", metavar="DURATION", help="90s, 30m, 2h, 3d, 1d12h.")]
Endpoint = Annotated[str | None, typer.Option("--endpoint", metavar="NAME", help="Where a delivery was to go.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Leave it to the workers instead of watching.")]
Id = Annotated[UUID, typer.Argument(metavar="ID")]

CLOSED = {"closed": "closed", "not failed": "left alone: it is no dead letter", "not found": "not found"}
UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


@app.command("list")
def list_(
    job_type: Type = None,
    error_class: Class = None,
    error: Error = None,
    phone: Phone = None,
    older_than: OlderThan = None,
    endpoint: Endpoint = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest dead letters."""
    wanted = _filter(job_type, error_class, error, phone, older_than, endpoint)
    with connection() as opened:
        rows = list_dead(opened, wanted, limit=limit)
    if not rows:
        raise NothingMatched("No dead letter matches.")
    Output(as_json=as_json).result({"dead_letters": rows}, lambda console: console.print(_dead_letters(rows)))


@app.command()
def replay(
    rate: Annotated[float, typer.Option("--rate", metavar="N", help="How many a second.")],
    job_type: Type = None,
    error_class: Class = None,
    error: Error = None,
    phone: Phone = None,
    older_than: OlderThan = None,
    endpoint: Endpoint = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="ENDPOINT", help="Send deliveries to this endpoint instead.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; it is kept with the replay.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be restarted.")] = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Run dead letters again, the oldest first, so many a second.

    What may have been sent is left out, and so is what nobody would run, as its type is paused or unknown. With --to each
    dead delivery gets a new one to that endpoint, and is closed; what is no delivery is left out.
    """
    output, wanted = Output(as_json=as_json), _filter(job_type, error_class, error, phone, older_than, endpoint)
    with connection() as opened:
        found = count_replay(opened, wanted, rate=rate, to=to)
        if not found.total:
            raise NothingMatched("No dead letter matches.")
        if dry_run:
            output.result({"dry_run": found}, lambda console: _show_dry_run(console, found))
            return
        plan = replays.start(opened, wanted, who=person(), reason=reason, rate=rate, to=to)
    output.note(f"replay {plan.id}: {plan.total:,} dead letters, {rate:g} a second, about {_duration(found.seconds)}")
    for left in filter(None, (_left_paused(found), _not_deliveries(found))):
        output.note(left)
    _carry_on(output, plan, wait=not no_wait)


@app.command("replays")
def replays_(limit: Annotated[int, typer.Option(min=1, max=1_000)] = 20, as_json: AsJson = False) -> None:
    """List the newest replays and how far they are."""
    with connection() as opened:
        rows = replays.list_replays(opened, limit=limit)
    if not rows:
        raise NothingMatched("Nothing has been replayed yet.")
    Output(as_json=as_json).result({"replays": rows}, lambda console: console.print(_replays(rows)))


@app.command()
def stop(replay_id: Id, as_json: AsJson = False) -> None:
    """Stop a replay: nothing further is restarted, what is restarted runs."""
    plan = _changed(replay_id, lambda opened: replays.stop(opened, replay_id, who=person()))
    _tell(Output(as_json=as_json), plan)


@app.command()
def resume(replay_id: Id, no_wait: NoWait = False, as_json: AsJson = False) -> None:
    """Go on with a replay where it was stopped, or watch one that runs."""
    plan = _changed(replay_id, lambda opened: replays.resume(opened, replay_id, who=person()))
    _carry_on(Output(as_json=as_json), plan, wait=not no_wait)


@app.command()
def close(
    job_ids: Annotated[list[UUID], typer.Argument(metavar="ID…")],
    reason: Annotated[str, typer.Option(help="Why they need not run again; it is kept with them.")] = "",
    as_json: AsJson = False,
) -> None:
    """Close dead letters for good, with a reason."""
    with connection() as opened:
        became = closing.close(opened, job_ids, who=person(), reason=reason)
    lines = [(job_id, CLOSED[what]) for job_id, what in became.items()]
    data = {"jobs": {str(job_id): what for job_id, what in became.items()}}
    Output(as_json=as_json).result(data, lambda console: console.print(table(["job", "what became of it"], lines)))
    if "closed" not in became.values():
        raise typer.Exit(Status.NOTHING)


def seconds_of(duration: str) -> float:
    """The seconds of `90s`, `30m`, `2h`, `3d` or `1d12h`. Raises UserError."""
    if not duration.strip():
        raise UserError("The duration is empty: give for example 90s, 30m, 2h, 3d or 1d12h.")
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)([dhms])", duration.strip().lower())
    if not parts or "".join(number + unit for number, unit in parts) != duration.strip().lower():
        raise UserError(f"{duration} is not a duration: give for example 90s, 30m, 2h, 3d or 1d12h.")
    seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if seconds > 100 * 365 * UNITS["d"]:
        raise UserError(f"{duration} is longer than a hundred years.")
    return seconds


def _filter(
    job_type: str | None,
    error_class: str | None,
    error: str | None,
    phone: str | None,
    older_than: str | None,
    endpoint: str | None,
) -> Filter:
    seconds = None if older_than is None else seconds_of(older_than)
    return Filter(
        job_type=job_type, error_class=error_class, error=error, phone=phone, older_than=seconds, endpoint=endpoint
    )


def _changed(replay_id: UUID, change: Callable[[Conn], Replay | None]) -> Replay:
    with connection() as opened:
        plan = change(opened)
    if plan is None:
        raise NothingMatched(f"There is no replay {replay_id}: see `dlq replays`.")
    return plan


def _carry_on(output: Output, plan: Replay, *, wait: bool) -> None:
    """Restart at the plan's rate and show how far it is, until it ends; or leave it to the workers."""
    if wait:
        try:
            plan = _watch(output, plan)
        except KeyboardInterrupt:
            output.note(
                f"No longer watched; the workers go on with it. `dlq stop {plan.id}` stops it, `dlq resume {plan.id}` "
                "watches it again."
            )
            raise typer.Exit(Status.FAILED) from None
    else:
        with waking() as wake:
            wake(0.0)
    _tell(output, plan)
    if wait and plan.state == "stopped":
        why = "Its endpoint is disabled: enable it" if plan.stopped_itself else f"{plan.stopped_by} has stopped it"
        output.note(f"{why}; `dlq resume {plan.id}` goes on.")
        raise typer.Exit(Status.FAILED)
    if plan.state == "done" and not plan.restarted + plan.joined:
        raise typer.Exit(Status.NOTHING)


def _watch(output: Output, plan: Replay) -> Replay:
    with database() as (_, pool), waking() as wake, _Bar(output, plan) as bar:
        while plan.state == "running":
            plan = advance(pool, plan.id, wake=wake, seconds=WATCH_SECONDS)
            bar.show(plan)
            if plan.state == "running":
                time.sleep(WATCH_SECONDS)
    return plan


class _Bar:
    """How far a replay is: a bar on a terminal, else a line now and then; on stderr."""

    def __init__(self, output: Output, plan: Replay) -> None:
        self._output = output
        self._progress = Progress(
            TextColumn("restarting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True), disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._task: TaskID = self._progress.add_task(_left_paused(plan), total=plan.total, completed=plan.handled)
        self._said_at = time.monotonic()

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, plan: Replay) -> None:
        self._progress.update(self._task, completed=plan.handled, description=_left_paused(plan))
        if self._progress.disable and time.monotonic() - self._said_at >= SAID_SECONDS:
            self._said_at = time.monotonic()
            self._output.note("; ".join(filter(None, (f"{plan.handled:,} of {plan.total:,}", _left_paused(plan)))))


def _tell(output: Output, plan: Replay) -> None:
    with connection() as opened:
        became = replays.became(opened, plan.id)
    data = {"replay": plan, "jobs": became}

    def show(console: Console) -> None:
        console.print(_replays([plan]))
        if plan.left_paused:
            console.print(f"\n{_left_paused(plan)}; replay them when it goes on")
        if plan.not_deliveries:
            console.print(f"\n{_not_deliveries(plan)}")
        console.print(
            f"\nof the restarted: {became.waiting:,} wait, {became.running:,} run, {became.died_again:,} have died again"
        )

    output.result(data, show)


def _show_dry_run(console: Console, found: DryRun) -> None:
    console.print(_counts(found.counts))
    if found.to is not None:
        console.print(
            f"\n{found.restarted:,} would be sent to {found.to} in {_duration(found.seconds)}, as deliveries of their own, and "
            "their dead letters closed"
        )
        for left in filter(None, (_left_paused(found), _not_deliveries(found))):
            console.print(left)
        return
    console.print(
        f"\n{found.restarted:,} would be restarted in {_duration(found.seconds)}, {found.joining:,} would join them in their "
        f"conversation, {found.left_out:,} would be left out because they may have arrived"
    )
    if found.left_paused:
        console.print(_left_paused(found))


def _counts(counts: Sequence[Count]) -> Any:
    rows = [
        (row.type, row.error_class, f"{row.count:,}", f"{row.left_out:,}", f"{row.left_paused:,}", f"{row.joining:,}")
        for row in counts
    ]  # fmt: skip
    return table(["type", "class", "dead letters", "left out", "paused", "joining"], rows)


def _left_paused(found: DryRun | Replay) -> str:
    """What is left out because nobody would run it; empty when that is nothing."""
    if not found.left_paused:
        return ""
    names = " and ".join(found.paused_types)
    return (
        f"{found.left_paused:,} left out: {names} {'is' if len(found.paused_types) == 1 else 'are'} paused, or unknown"
    )


def _not_deliveries(found: DryRun | Replay) -> str:
    """What cannot go to another endpoint; empty when that is nothing."""
    if not found.not_deliveries:
        return ""
    return f"{found.not_deliveries:,} left out: no deliveries, so they cannot go to {found.to}"


def _dead_letters(rows: Sequence[DeadLetter]) -> Any:
    shown = [
        (row.id, row.type, row.address, row.run, f"{row.attempts}/{row.max_attempts}", row.error_class, row.last_error,
         f"{row.died_at:%d-%m %H:%M:%S}")
        for row in rows
    ]  # fmt: skip
    return table(["job", "type", "with", "run", "tries", "class", "last error", "died (UTC)"], shown)


def _replays(rows: Sequence[Replay]) -> Any:
    shown = [
        (row.id, row.state, f"{row.handled:,} of {row.total:,}", f"{row.restarted:,}", f"{row.joined:,}",
         f"{row.left_out:,}", _paused(row), f"{row.skipped:,}", f"{row.rate:g}/s", _words(row.filter), row.to, row.who,
         row.reason, f"{row.created_at:%d-%m %H:%M}")
        for row in rows
    ]  # fmt: skip
    columns = ["replay", "state", "handled", "restarted", "joined", "left out", "paused", "elsewhere", "rate", "filter",
               "to", "who", "why", "began (UTC)"]  # fmt: skip
    return table(columns, shown)


def _paused(row: Replay) -> str:
    return f"{row.left_paused:,} {' '.join(row.paused_types)}".rstrip()


def _words(wanted: Mapping[str, Any]) -> str:
    return plain(", ".join(f"{name} {value}" for name, value in wanted.items())) or "all"


def _duration(seconds: float) -> str:
    """Two units at most: `1 h 5 min`, `40 s`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"
