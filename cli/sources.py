"""`sources`: who may send us events: add, list, show, change, rotate, disable, enable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from cli.environment import connection, database, person
from cli.output import AsJson, NothingMatched, Output, table
from cli.secret_option import given, shown_once
from shared.db.pool import Conn
from shared.errors import UserError
from shared.secrets import open_vault
from shared.signature.timestamped import DEFAULT_HEADER
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
    SourceSettings,
)

app = typer.Typer(help="Who may send us events: add, list, show, change, rotate, disable, enable.")

Name = Annotated[str, typer.Argument(metavar="NAME")]
Secret = Annotated[
    str | None,
    typer.Option(metavar="S|-", help="The sender's secret, - to read it from standard input; or one is made."),
]
IdFrom = Annotated[
    str | None,
    typer.Option(
        metavar="header|header:NAME|pointer:/PATH|body-sha256",
        help="Where an event's id is; header is the first of webhook-id, X-Webhook-ID and X-Event-ID.",
    ),
]
Tolerance = Annotated[
    int | None, typer.Option(metavar="SECONDS", help="How far the time that is signed may be from ours, both ways.")
]
SizeLimit = Annotated[int | None, typer.Option(metavar="BYTES", help="The largest body.")]
ReadAs = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(NORMALISERS),
        help="How its bodies are read: openai unless said otherwise for standard, else json.",
    ),
]
Paths = Annotated[
    list[str] | None,
    typer.Option(
        "--path",
        metavar="FIELD=/POINTER",
        help=f"For json: where {', '.join(FIELDS)} are, also as FIELD=header:NAME; as often as needed.",
    ),
]
SignatureHeader = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="For t-v1: where t=…,v1=… stands; X-Webhook-Signature is the usual one."),
]


@app.command()
def add(
    name: Name,
    scheme: Annotated[str, typer.Option(metavar="|".join(SCHEMES), help="How its events are signed.")],
    secret: Secret = None,
    id_from: IdFrom = ID_FROM,
    tolerance: Tolerance = TOLERANCE_SECONDS,
    size_limit: SizeLimit = SIZE_LIMIT,
    normaliser: ReadAs = None,
    path: Paths = None,
    signature_header: SignatureHeader = None,
    as_json: AsJson = False,
) -> None:
    """Add a source. Its secret is shown this once: the sender signs with it. It counts at once."""
    new = NewSource(name=name, scheme=cast(Scheme, scheme))
    wanted = _wanted(new, id_from, tolerance, size_limit, normaliser, _paths(path), signature_header)
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
def show(name: Name, as_json: AsJson = False) -> None:
    """Show one source."""
    with connection() as opened:
        found = _source(opened, name)
    _show_all(found, as_json=as_json)


@app.command()
def change(
    name: Name,
    id_from: IdFrom = None,
    tolerance: Tolerance = None,
    size_limit: SizeLimit = None,
    normaliser: ReadAs = None,
    path: Paths = None,
    no_paths: Annotated[bool, typer.Option("--no-paths", help="Name no places any more.")] = False,
    signature_header: SignatureHeader = None,
    as_json: AsJson = False,
) -> None:
    """Change a source, within five seconds; what is not given stays. Places that are given replace all there are.

    Its address and its secret stay, and so does its scheme, which says what a secret looks like: for another one, add a source.
    With another --id-from, what has come in counts as new if the sender repeats it: change that when nothing is being retried.
    """
    places = _paths(path)
    if no_paths:
        if places is not None:
            raise UserError("--no-paths and --path cannot both be.")
        places = {}
    with connection() as opened:
        found = _source(opened, name)
        wanted = _wanted(found.settings, id_from, tolerance, size_limit, normaliser, places, signature_header)
        if wanted == found.settings:
            raise UserError("Give what is to be changed: see `sources change --help`.")
        sources.change(opened, name, wanted, seen=found.version, who=person())
        found = _source(opened, name)
    _show_all(found, as_json=as_json)


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


def _wanted[S: SourceSettings](
    known: S,
    id_from: str | None,
    tolerance: int | None,
    size_limit: int | None,
    normaliser: str | None,
    paths: dict[str, str] | None,
    signature_header: str | None,
) -> S:
    """What is known, with what was given in its place."""
    return replace(
        known,
        id_from=known.id_from if id_from is None else id_from,
        tolerance_seconds=known.tolerance_seconds if tolerance is None else tolerance,
        size_limit=known.size_limit if size_limit is None else size_limit,
        normaliser=known.normaliser if normaliser is None else cast(Normaliser, normaliser),
        paths=known.paths if paths is None else paths,
        signature_header=known.signature_header if signature_header is None else signature_header,
    )


def _paths(given: Sequence[str] | None) -> dict[str, str] | None:
    """None when none was given. Raises UserError for what is no pair, and for a field that is given twice."""
    found: dict[str, str] = {}
    for text in given or ():
        named, equals, place = text.partition("=")
        if not equals:
            raise UserError(f"--path {text} must look like FIELD=/POINTER.")
        if named in found:
            raise UserError(f"--path {named} is given twice.")
        found[named] = place
    return found or None


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


def _details(row: Source) -> Any:
    header, newest = row.signature_header or DEFAULT_HEADER, row.last_event_at
    lines = [
        ("source", row.name), ("id", row.id), ("posted to", row.path),
        ("scheme", f"{row.scheme}, in {header}" if row.scheme == "t-v1" else row.scheme), ("id from", row.id_from),
        ("tolerance", f"{row.tolerance_seconds:,} s"), ("largest body", f"{row.size_limit:,} bytes"),
        ("read as", row.normaliser),
        ("places", ", ".join(f"{named}={row.paths[named]}" for named in sorted(row.paths)) or "the usual ones"),
        ("state", "disabled" if row.disabled_at else "enabled"), ("secret", _secrets(row)),
        ("last event", f"{newest:%d-%m-%Y %H:%M} UTC" if newest else "none in the last days"),
        ("added", f"{row.created_at:%d-%m-%Y %H:%M} UTC by {row.created_by}"),
    ]  # fmt: skip
    return table(["", ""], lines)


def _secrets(row: Source) -> str:
    return "one" if row.previous_until is None else f"two until {row.previous_until:%d-%m-%Y %H:%M} UTC"


def _show(row: Source, *, as_json: bool) -> None:
    Output(as_json=as_json).result({"source": _data(row)}, lambda console: console.print(_table([row])))


def _show_all(row: Source, *, as_json: bool) -> None:
    Output(as_json=as_json).result({"source": _data(row)}, lambda console: console.print(_details(row)))


def _show_with_secret(row: Source, secret: str, *, is_given: bool, as_json: bool) -> None:
    def show(console: Console) -> None:
        console.print(_table([row]))
        console.print(shown_once(secret, is_given=is_given), soft_wrap=True)

    Output(as_json=as_json).result({"source": _data(row), "secret": secret}, show)
