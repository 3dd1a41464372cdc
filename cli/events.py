"""`events`: what came in or was told, the way of each to its endpoints, and one delivery sent again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console

from cli.environment import connection, person, wake_workers
from cli.output import AsJson, NothingMatched, Output, table
from shared.errors import UserError
from shared.webhooks import events
from shared.webhooks.events import DeliveryRow, EventDetail, EventRow, Show
from shared.webhooks.resend import resend as send_again

app = typer.Typer(help="What came in by webhook and where it went: list, show, resend.")

SHOWS: dict[str, Show] = {"held": "held", "dead": "dead", "waiting": "waiting"}
STATES = ("waiting", "delivered", "dead", "held", "rejected", "replayed", "closed")


@app.command("list")
def list_(
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who sent it; antwoord for events of our own.")
    ] = None,
    event_type: Annotated[str | None, typer.Option("--type", help="response.completed, job.failed, …")] = None,
    state: Annotated[
        str | None, typer.Option(metavar="|".join(SHOWS), help="Only those with a delivery that is so.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest events and how many of their deliveries are where."""
    if state is not None and state not in SHOWS:
        raise UserError(f"--state is {', '.join(SHOWS)}, not {state!r}.")
    with connection() as opened:
        rows = events.list_events(
            opened, limit=limit, source=source, event_type=event_type, show=None if state is None else SHOWS[state]
        )
    if not rows:
        raise NothingMatched("No event matches.")
    data = {"events": [_data(row) for row in rows]}
    Output(as_json=as_json).result(data, lambda console: console.print(_events(rows)))


@app.command()
def show(
    which: Annotated[str, typer.Argument(metavar="EVENT", help="evt_… as receivers see it.")], as_json: AsJson = False
) -> None:
    """Show an event's way: each delivery with its id, and each of its tries."""
    event_id = events.parse_id(which)
    with connection() as opened:
        found = None if event_id is None else events.show_event(opened, event_id)
    if found is None:
        raise NothingMatched(f"There is no event {which}: see `events list`.")
    attempts = [attempt for delivery in found.deliveries for attempt in found.attempts[delivery.id]]
    data = {"event": _data(found.event), "deliveries": found.deliveries, "attempts": attempts}
    Output(as_json=as_json).result(data, lambda console: _show(console, found))


@app.command()
def resend(
    delivery: Annotated[
        UUID, typer.Argument(metavar="DELIVERY", help="From `events show`; receivers see it as X-Idempotency-Key.")
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="ENDPOINT", help="Send it to this endpoint instead.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; it is kept with who asked.")] = "",
    as_json: AsJson = False,
) -> None:
    """Send one delivery again, now, whether it is dead or has arrived; the event keeps its id and its bytes.

    Many are replayed with `dlq replay`.
    """
    with connection() as opened:
        sent = send_again(opened, delivery, who=person(), reason=reason, to=to)
    if sent is None:
        raise NothingMatched(f"There is no delivery {delivery}: see `events show`.")
    wake_workers(1)
    lines = [("sent again to", sent.to), ("delivery", sent.delivery_id), ("job", sent.job_id)]
    Output(as_json=as_json).result({"resent": sent}, lambda console: console.print(table(["", ""], lines)))


def _data(row: EventRow) -> dict[str, Any]:
    """For a script; with the id that receivers know it by."""
    return {name: getattr(row, name) for name in type(row).__dataclass_fields__} | {"public_id": row.public_id}


def _events(rows: Sequence[EventRow]) -> Any:
    shown = [
        (row.public_id, row.source or "antwoord", row.type, row.subject, f"{row.received_at:%d-%m %H:%M:%S}",
         _where(row))
        for row in rows
    ]  # fmt: skip
    return table(["event", "from", "type", "subject", "received (UTC)", "deliveries"], shown)


def _where(row: EventRow) -> str:
    counts = ((state, int(getattr(row, state))) for state in STATES)
    said = ", ".join(f"{count} {state}" for state, count in counts if count)
    return said or ("held" if row.is_held else "nobody asked for it")


def _show(console: Console, found: EventDetail) -> None:
    console.print(_events([found.event]))
    for delivery in found.deliveries:
        console.print()
        console.print(table(["to", "state", "delivery", "next try (UTC)", "why"], [_delivery(delivery)]))
        tries = [
            (one.number, f"{one.started:%d-%m %H:%M:%S}", one.outcome or "running", one.http_status,
             None if one.duration_ms is None else f"{one.duration_ms:,.0f} ms", one.error)
            for one in found.attempts[delivery.id]
        ]  # fmt: skip
        if tries:
            console.print(table(["try", "began (UTC)", "outcome", "status", "took", "error"], tries))


def _delivery(row: DeliveryRow) -> tuple[Any, ...]:
    due = f"{row.next_try_at:%d-%m %H:%M:%S}" if row.next_try_at else None
    why = row.last_error if row.error_class == "waiting" else row.error_class  # which says nothing by itself
    return row.endpoint, row.state, row.id, due, row.closed_reason or why
