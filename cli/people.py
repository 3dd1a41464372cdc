"""`people`: the people who may ask, and their import from a file or a URL."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console

from cli.environment import connection, person, settings, wake_workers
from cli.output import AsJson, NothingMatched, Output, Status, plain, table
from shared.clients.guard import Guard
from shared.errors import UserError
from shared.knowledge import people
from shared.knowledge.people import ImportRow, ReportRow, Table
from shared.knowledge.people_file import SIZE_LIMIT
from shared.knowledge.people_source import fetch

app = typer.Typer(help="The people who may ask, and their import from a file or a URL.")

WAIT_SECONDS = 120.0  # without progress
SHOWN_ROWS = 100  # of the rejected ones, in a table
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(metavar="FILE|URL")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would become of each row.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is done (a host must be running).")] = False,
    bearer_from: Annotated[
        str | None,
        typer.Option(metavar="VARIABLE", help="The environment variable with the token that a URL asks for."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import people from a CSV file with at least a column of names and one of phone numbers.

    A URL must be https and public, or its host be in OUTBOUND_ALLOW_HOSTS; redirects are not followed. People who
    are known are changed where the file says something else; people who are not in it are left alone.
    """
    output = Output(as_json=as_json)
    found = _download(source, bearer_from) if _URL.match(source) else _read(Path(source), bearer_from)
    output.note(_described(found))
    with connection() as opened:
        import_id = people.start_import(opened, found, who=person(), dry_run=dry_run)
    wake_workers()
    ended = _wait(output, import_id) if wait else None
    if ended is None:
        data = {"import": {"id": import_id, "state": "waiting", "rows_total": found.rows_total}}
        output.result(data, lambda console: console.print(f"import {import_id} waits for a worker"))
        return
    with connection() as opened:
        rejected = people.import_report(opened, import_id)
    rows = [{"line": row.line, "reason": row.reason, "sentence": row.sentence} for row in rejected]
    output.result({"import": ended, "rejected": rows}, lambda console: _show(console, ended, rejected))
    if ended.state == "failed" or ended.rejected == ended.rows_total:
        raise typer.Exit(Status.FAILED)


@app.command("list")
def list_(
    search: Annotated[
        str | None, typer.Option(help="Part of a name or department, an employee number, or digits of a phone number.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 100,
    as_json: AsJson = False,
) -> None:
    """List people by name."""
    with connection() as opened:
        rows = people.list_people(opened, search=search, limit=limit)
        total = people.count_people(opened, search=search)
    if not rows:
        raise NothingMatched(
            "Nobody matches." if search else "There is nobody yet: import people with `people import`."
        )
    shown = [
        (row.name, row.phone, row.language, row.department, row.external_id, f"{row.left_at:%d-%m-%Y}" if row.left_at else None)
        for row in rows
    ]  # fmt: skip
    columns = ["name", "phone", "language", "department", "number", "leaves"]
    output = Output(as_json=as_json)
    output.result({"people": rows, "total": total}, lambda console: console.print(table(columns, shown)))
    if total > len(rows):
        output.note(f"{len(rows):,} of {total:,}: see --limit and --search")


def _download(url: str, bearer_from: str | None) -> Table:
    bearer = None
    if bearer_from is not None:
        bearer = os.environ.get(bearer_from, "").strip()
        if not bearer:
            raise UserError(f"--bearer-from: the environment has no variable {bearer_from}.")
    name, data = fetch(url, Guard(settings("database_url").outbound_allow_hosts), bearer=bearer)
    return people.read_table(name, data)


def _read(path: Path, bearer_from: str | None) -> Table:
    if bearer_from is not None:
        raise UserError("--bearer-from is for a URL.")
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except OSError as wrong:
        raise UserError(f"{path} cannot be read: {wrong.strerror}.") from wrong
    return people.read_table(path.name, data)


def _described(found: Table) -> str:
    """What was understood of the file, so that a wrong column shows before anything is waited for."""
    delimiter = {",": "comma", ";": "semicolon", "\t": "tab"}[found.delimiter]
    columns = ", ".join(f"{field} from “{column}”" for field, column in found.map.items())
    rest = f"; attributes: {', '.join(found.attributes)}" if found.attributes else ""
    return f"{found.source}: {found.rows_total:,} rows, {delimiter}, {found.encoding}; {columns}{rest}"


def _wait(output: Output, import_id: UUID) -> ImportRow:
    """Wait for the end and say how far it is."""
    done, ends = -1, time.monotonic() + WAIT_SECONDS
    while True:
        with connection() as opened:
            found = people.list_imports(opened, import_id=import_id)[0]
        if found.rows_done != done:
            done, ends = found.rows_done, time.monotonic() + WAIT_SECONDS
            output.note(f"{done:,} of {found.rows_total:,} rows")
        if found.state in ("done", "failed"):
            return found
        if time.monotonic() > ends:
            raise UserError("The import does not move: is a host running? It goes on by itself; see `jobs list`.")
        time.sleep(0.2)


def _show(console: Console, ended: ImportRow, rejected: Sequence[ReportRow]) -> None:
    columns = ["state", "rows", "added", "changed", "unchanged", "rejected"]
    state = f"{ended.state}: {ended.reason}" if ended.reason else ended.state
    state += " (dry run: nothing was written)" if ended.dry_run else ""
    counts = (ended.rows_done, ended.added, ended.changed, ended.unchanged, ended.rejected)
    console.print(table(columns, [(state, *counts)]))
    if rejected:
        console.print()
        console.print(
            table(["line", "why it was rejected"], [(row.line, row.sentence) for row in rejected[:SHOWN_ROWS]])
        )
    if len(rejected) > SHOWN_ROWS:
        console.print(plain(f"and {len(rejected) - SHOWN_ROWS:,} more: --json gives them all"))
