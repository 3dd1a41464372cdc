"""`conversations`: who talks with us, and what was said."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from cli.environment import connection
from cli.output import AsJson, NothingMatched, Output, plain, table
from shared.conversation import listing
from shared.db.text import storable

app = typer.Typer(help="Look at conversations.")


@app.command("list")
def list_(
    needs_person: Annotated[bool, typer.Option("--needs-person", help="Only those that wait for a person.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """List the conversations, the newest messages first."""
    with connection() as opened:
        rows = listing.list_conversations(opened, needs_person=needs_person, limit=limit)
    if not rows:
        raise NothingMatched("No conversation matches.")
    shown = [
        (row.address, row.name, row.messages, f"{row.last_inbound_at:%d-%m %H:%M:%S}" if row.last_inbound_at else None,
         "opted out" if row.opted_out_at else row.mode, row.needs_person_reason, row.id)
        for row in rows
    ]  # fmt: skip
    columns = ["address", "name", "messages", "last (UTC)", "mode", "needs a person", "id"]
    Output(as_json=as_json).result({"conversations": rows}, lambda console: console.print(table(columns, shown)))


@app.command()
def show(
    which: Annotated[str, typer.Argument(metavar="ADDRESS|ID")],
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 100,
    as_json: AsJson = False,
) -> None:
    """Show a conversation as the employee sees it, with what became of each message."""
    with connection() as opened:
        rows = listing.list_conversations(opened, address=storable(which.removeprefix("whatsapp:")))
        if not rows:
            raise NothingMatched(f"There is no conversation with {which}.")
        messages = listing.thread(opened, rows[0].id, limit=limit)

    def print_thread(console: Console) -> None:
        for message in messages:
            who = message.source if message.from_self else "→"
            fate = message.error_code or message.held_reason or ""
            console.print(f"{message.created_at:%d-%m %H:%M:%S}  {who} [{message.status}] {plain(fate)}".rstrip())
            console.print("    " + plain(message.body).replace("\n", "\n    "))

    Output(as_json=as_json).result({"conversation": rows[0], "messages": messages}, print_thread)
