"""`sources`: who may send us events: add, list, rotate, disable, enable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from cli.environment import connection, database, person
from cli.output import AsJson, NothingMatched, Output, table
from cli.secret_option import given, shown_once
from shared.db.pool import Conn
from shared.errors import UserError
from shared.secrets import open_vault
from shared.webhooks import sources
from shared.webhooks.sources import (
    FIELDS,
    ID_FROM,
    NORMALISERS,
    OVERLAP_HOURS,
    SCHEMES,
    SIZE_LIMIT,
    TOLERANCE_SECONDS,
    NewSource,
    Normaliser,
    Scheme,
    Source,
)

app = typer.Typer(help="Who may send us events: add, list, rotate, disable, enable.")

Name = Annotated[str, typer.Argument(metavar="NAME")]
Secret = Annotated[
    str | None,
    typer.Option(metavar="S|-", help="The sender's secret, - to read it from standard input; or one is made."),
]


@app.command()
def add(
    name: Name,
    scheme: Annotated[str, typer.Option(metavar="|".join(SCHEMES), help="How its events are signed.")],
    secret: Secret = None,
    id_from: Annotated[
        str,
        typer.Option(
            metavar="header|header:NAME|pointer:/PATH|body-sha256",
            help="Where an event's id is; header is the first of webhook-id, X-Webhook-ID and X-Event-ID.",
        ),
    ] = ID_FROM,
    tolerance: Annotated[
        int, typer.Option(metavar="SECONDS", help="How far the time that is signed may be from ours, both ways.")
    ] = TOLERANCE_SECONDS,
    size_limit: Annotated[int, typer.Option(metavar="BYTES", help="The largest body.")] = SIZE_LIMIT,
    normaliser: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(NORMALISERS),
            help="How its bodies are read: openai unless said otherwise for standard, else json.",
        ),
    ] = None,
    path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=/POINTER",
            help=f"For json: where {', '.join(FIELDS)} are, also as FIELD=header:NAME; as often as needed.",
        ),
    ] = None,
    signature_header: Annotated[
        str | None, typer.Option(metavar="NAME", help="For t-v1: where t=…,v1=… stands, if not in X-Webhook-Signature.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a source. Its secret is shown this once: the sender signs with it. It counts at once."""
    wanted = NewSource(
        name=name, scheme=cast(Scheme, scheme), id_from=id_from, signature_header=signature_header,
        tolerance_seconds=tolerance, size_limit=size_limit, normaliser=cast(Normaliser | None, normaliser), paths=_paths(path),
    )  # fmt: skip
    with database() as (settings, pool), pool.connection() as opened:
        made = sources.add(
            opened, wanted, vault=open_vault(settings.secrets_key), who=person(), secret=given(secret)
        )  # fmt: skip
        found = _source(opened, name)
    _show_with_secret(found, made.secret, is_given=secret is not None, as_json=as_json)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the sources."""
    with connection() as opened:
        rows = sources.list_sources(opened)
    if not rows:
        raise NothingMatched("There are no sources yet: add one with `sources add`.")
    Output(as_json=as_json).result(
        {"sources": [_data(row) for row in rows]}, lambda console: console.print(_table(rows))
    )


@app.command()
def rotate(
    name: Name,
    overlap_hours: Annotated[
        float, typer.Option(help="How long the old secret is good too; 0 ends it within five seconds.")
    ] = OVERLAP_HOURS,
    secret: Secret = None,
    as_json: AsJson = False,
) -> None:
    """Give a source a new secret, shown this once. It counts at once, so give it to the sender within the overlap."""
    with database() as (settings, pool), pool.connection() as opened:
        _source(opened, name)
        made = sources.rotate(
            opened, name, vault=open_vault(settings.secrets_key), who=person(), overlap_hours=overlap_hours,
            secret=given(secret),
        )  # fmt: skip
        found = _source(opened, name)
    _show_with_secret(found, made.secret, is_given=secret is not None, as_json=as_json)


@app.command()
def disable(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why; it is kept in the audit log.")] = "",
    as_json: AsJson = False,
) -> None:
    """Take nothing more from a source, within five seconds: its sender gets 404. What came in is delivered."""
    with connection() as opened:
        _source(opened, name)
        sources.disable(opened, name, who=person(), reason=reason)
        found = _source(opened, name)
    _show(found, as_json=as_json)


@app.command()
def enable(name: Name, as_json: AsJson = False) -> None:
    """Take events from a source again, at once."""
    with connection() as opened:
        _source(opened, name)
        sources.enable(opened, name, who=person())
        found = _source(opened, name)
    _show(found, as_json=as_json)


def _source(opened: Conn, name: str) -> Source:
    found = sources.find_source(opened, name)
    if found is None:
        raise NothingMatched(f"There is no source {name}: see `sources list`.")
    return found


def _paths(given: Sequence[str] | None) -> dict[str, str]:
    """Raises UserError for what is no pair, and for a field that is given twice."""
    found: dict[str, str] = {}
    for text in given or ():
        named, equals, place = text.partition("=")
        if not equals:
            raise UserError(f"--path {text} must look like FIELD=/POINTER.")
        if named in found:
            raise UserError(f"--path {named} is given twice.")
        found[named] = place
    return found


def _data(row: Source) -> dict[str, Any]:
    """For a script; the names of the fields are fixed."""
    return {name: getattr(row, name) for name in type(row).__dataclass_fields__} | {"path": row.path}


def _table(rows: Sequence[Source]) -> Any:
    shown = [
        (row.name, row.path, row.scheme, row.id_from, row.normaliser, "disabled" if row.disabled_at else "enabled",
         _secrets(row), "" if row.last_event_at is None else f"{row.last_event_at:%d-%m-%Y %H:%M}")
        for row in rows
    ]  # fmt: skip
    return table(["source", "posted to", "scheme", "id", "read as", "state", "secret", "last event (UTC)"], shown)


def _secrets(row: Source) -> str:
    return "one" if row.previous_until is None else f"two until {row.previous_until:%d-%m-%Y %H:%M} UTC"


def _show(row: Source, *, as_json: bool) -> None:
    Output(as_json=as_json).result({"source": _data(row)}, lambda console: console.print(_table([row])))


def _show_with_secret(row: Source, secret: str, *, is_given: bool, as_json: bool) -> None:
    def show(console: Console) -> None:
        console.print(_table([row]))
        console.print(shown_once(secret, is_given=is_given), soft_wrap=True)

    Output(as_json=as_json).result({"source": _data(row), "secret": secret}, show)
