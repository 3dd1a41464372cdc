"""`endpoints`: where events are delivered: add, list, show, change, rotate, test, disable, enable."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.environment import database, person, wake_workers
from cli.jobs import duration
from cli.output import AsJson, NothingMatched, Output, Status, table
from cli.secret_option import given, shown_once
from shared.clients.guard import Guard
from shared.db.pool import Conn
from shared.errors import UserError
from shared.secrets import Vault, open_vault
from shared.settings import Settings
from shared.webhooks import endpoints, ping
from shared.webhooks.endpoints import OVERLAP_HOURS, SCHEDULES, Endpoint, EndpointSettings, Schedule
from shared.webhooks.ping import Pinged
from shared.webhooks.sending import Sender

# What the reasons mean that nobody has typed.
_REASONS = {"gone": "gone, it answered 410", endpoints.BY_HAND: "by a person, who gave no reason"}

app = typer.Typer(help="Where events are delivered: add, list, show, change, rotate, test, disable, enable.")

Name = Annotated[str, typer.Argument(metavar="NAME")]
Url = Annotated[str | None, typer.Option(help="https://…; http for hosts in OUTBOUND_ALLOW_HOSTS.")]
Events = Annotated[
    str | None,
    typer.Option(
        metavar="a,b", help="Types, with a * at the end for all that begin so; none, or * alone: what sources send."
    ),
]
Rate = Annotated[str | None, typer.Option(metavar="N|none", help="Attempts a second, over all instances.")]
Concurrency = Annotated[int | None, typer.Option(metavar="N", help="Attempts at once, over all instances.")]
Timeout = Annotated[float | None, typer.Option(metavar="SECONDS", help="How long one attempt may take in all.")]
Retries = Annotated[
    str | None, typer.Option("--schedule", metavar="|".join(SCHEDULES), help="The waits between tries.")
]
SignatureHeader = Annotated[str | None, typer.Option(metavar="NAME", help="Where t=…,v1=… stands.")]
Headers = Annotated[
    list[str] | None, typer.Option("--header", metavar="'NAME: VALUE'", help="Sent along; as often as needed.")
]
HeadersFrom = Annotated[
    list[str] | None,
    typer.Option("--header-from", metavar="NAME=VARIABLE", help="The same, its value from an environment variable."),
]
Secret = Annotated[
    str | None,
    typer.Option(metavar="S|-", help="A secret of your own, - to read it from standard input; or one is made."),
]


@app.command()
def add(
    name: Name,
    url: Annotated[str, typer.Option(help="https://…; http for hosts in OUTBOUND_ALLOW_HOSTS.")],
    events: Events = None,
    rate: Rate = None,
    concurrency: Concurrency = None,
    schedule: Retries = None,
    timeout: Timeout = None,
    signature_header: SignatureHeader = None,
    header: Headers = None,
    header_from: HeadersFrom = None,
    secret: Secret = None,
    as_json: AsJson = False,
) -> None:
    """Add an endpoint. Its secret is shown this once: the receiver verifies with it (docs/receiving.md)."""
    wanted = _wanted(EndpointSettings(url=url), None, events, rate, concurrency, schedule, timeout, signature_header)
    extra = _headers(header, header_from)
    with _desk() as desk:
        added = endpoints.add(
            desk.connection, name, wanted, guard=desk.guard, vault=desk.vault(), who=person(), secret=given(secret),
            headers=extra,
        )  # fmt: skip
        found = desk.endpoint(name)
    _show_with_secret(found, added.secret, is_given=secret is not None, as_json=as_json)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List endpoints with how they stand."""
    with _desk() as desk:
        rows = endpoints.list_endpoints(desk.connection)
    if not rows:
        raise NothingMatched("There are no endpoints yet: add one with `endpoints add`.")
    data = {"endpoints": [_data(row) for row in rows]}
    Output(as_json=as_json).result(data, lambda console: console.print(_table(rows)))


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show one endpoint."""
    with _desk() as desk:
        found = desk.endpoint(name)
    Output(as_json=as_json).result({"endpoint": _data(found)}, lambda console: console.print(_details(found)))


@app.command()
def change(
    name: Name,
    url: Url = None,
    events: Events = None,
    rate: Rate = None,
    concurrency: Concurrency = None,
    schedule: Retries = None,
    timeout: Timeout = None,
    signature_header: SignatureHeader = None,
    header: Headers = None,
    header_from: HeadersFrom = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Send no extra headers any more.")] = False,
    as_json: AsJson = False,
) -> None:
    """Change an endpoint; what is not given stays as it is. Headers that are given take the place of all there are."""
    extra = _headers(header, header_from)
    if no_headers:
        if extra is not None:
            raise UserError("--no-headers and a header cannot both be.")
        extra = {}
    with _desk() as desk:
        found = desk.endpoint(name)
        wanted = _wanted(found.settings, url, events, rate, concurrency, schedule, timeout, signature_header)
        if wanted == found.settings and extra is None:
            raise UserError("Give what is to be changed: see `endpoints change --help`.")
        endpoints.change(
            desk.connection, found.id, wanted, seen=found.version, guard=desk.guard, who=person(),
            vault=None if extra is None else desk.vault(), headers=extra,
        )  # fmt: skip
        found = desk.endpoint(name)
    wake_workers(1)
    Output(as_json=as_json).result({"endpoint": _data(found)}, lambda console: console.print(_details(found)))


@app.command()
def rotate(
    name: Name,
    overlap_hours: Annotated[
        float, typer.Option(help="How long the old secret signs too; 0 ends it at once.")
    ] = OVERLAP_HOURS,
    secret: Secret = None,
    as_json: AsJson = False,
) -> None:
    """Give an endpoint a new secret, shown this once; every attempt is signed with both until the overlap has ended."""
    with _desk() as desk:
        found = desk.endpoint(name)
        used = endpoints.rotate(
            desk.connection, found.id, vault=desk.vault(), who=person(), overlap_hours=overlap_hours,
            secret=given(secret),
        )  # fmt: skip
        found = desk.endpoint(name)
    _show_with_secret(found, used, is_given=secret is not None, as_json=as_json)


@app.command("test")
def try_(name: Name, as_json: AsJson = False) -> None:
    """Send a ping, signed like any delivery, and show what was answered; it is no delivery and is not tried again."""
    with _desk() as desk:
        prepared = ping.prepare(desk.connection, desk.endpoint(name).id, vault=desk.vault())
        sender = Sender(desk.guard)
    answered = ping.ping(prepared, sender)
    sender.close()
    with _desk() as desk:
        ping.record(desk.connection, prepared, answered, who=person())
    Output(as_json=as_json).result({"ping": answered}, lambda console: _show_ping(console, name, answered))
    if not answered.is_accepted:
        raise typer.Exit(Status.FAILED)


@app.command()
def disable(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why; it is shown with the endpoint.")] = "",
    as_json: AsJson = False,
) -> None:
    """Deliver nothing more to an endpoint; what waits for it becomes a dead letter within minutes."""
    with _desk() as desk:
        endpoints.disable(desk.connection, desk.endpoint(name).id, who=person(), reason=reason)
        found = desk.endpoint(name)
    wake_workers(1)
    Output(as_json=as_json).result({"endpoint": _data(found)}, lambda console: console.print(_table([found])))


@app.command()
def enable(name: Name, as_json: AsJson = False) -> None:
    """Deliver to an endpoint again, now: what held it up is forgotten. Dead letters are replayed with `dlq replay`."""
    with _desk() as desk:
        endpoints.enable(desk.connection, desk.endpoint(name).id, who=person())
        found = desk.endpoint(name)
    wake_workers(1)
    Output(as_json=as_json).result({"endpoint": _data(found)}, lambda console: console.print(_table([found])))


@dataclass(frozen=True, slots=True)
class _Desk:
    """What a command works with."""

    settings: Settings
    connection: Conn

    @property
    def guard(self) -> Guard:
        return Guard(self.settings.outbound_allow_hosts)

    def vault(self) -> Vault:
        """Raises UserError without SECRETS_KEY."""
        return open_vault(self.settings.secrets_key)

    def endpoint(self, name: str) -> Endpoint:
        """Raises NothingMatched."""
        found = endpoints.find_endpoint(self.connection, name)
        if found is None:
            raise NothingMatched(f"There is no endpoint {name}: see `endpoints list`.")
        return found


@contextmanager
def _desk() -> Iterator[_Desk]:
    with database() as (settings, pool), pool.connection() as opened:
        yield _Desk(settings, opened)


def _wanted(
    known: EndpointSettings,
    url: str | None,
    events: str | None,
    rate: str | None,
    concurrency: int | None,
    schedule: str | None,
    timeout: float | None,
    signature_header: str | None,
) -> EndpointSettings:
    """What is known, with what was given in its place."""
    return replace(
        known,
        url=known.url if url is None else url,
        events=known.events if events is None else tuple(events.split(",")),
        rate=known.rate if rate is None else _rate(rate),
        concurrency=known.concurrency if concurrency is None else concurrency,
        schedule=known.schedule if schedule is None else _schedule(schedule),
        timeout_seconds=known.timeout_seconds if timeout is None else timeout,
        signature_header=known.signature_header if signature_header is None else signature_header,
    )


def _rate(text: str) -> float | None:
    if text.strip().lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise UserError(f"--rate is a number of attempts a second, or none, not {text!r}.") from None


def _schedule(text: str) -> Schedule:
    found = next((schedule for schedule in SCHEDULES if schedule == text), None)
    if found is None:
        raise UserError(f"--schedule is {' or '.join(SCHEDULES)}, not {text!r}.")
    return found


def _headers(given: Sequence[str] | None, given_from: Sequence[str] | None) -> dict[str, str] | None:
    """The extra headers; None when none was given. The sentences repeat no value."""
    pairs = []
    for number, text in enumerate(given or (), start=1):
        name, colon, value = text.partition(":")
        if not colon:
            raise UserError(f"Header {number} must look like 'NAME: VALUE'.")
        pairs.append((name, value))
    for text in given_from or ():
        name, _, variable = text.partition("=")
        if not os.environ.get(variable):
            raise UserError(f"--header-from {name}=VARIABLE: the environment has no variable {variable or '…'}.")
        pairs.append((name, os.environ[variable]))
    if len({name.strip().lower() for name, _ in pairs}) < len(pairs):
        raise UserError("A header is given twice.")
    return dict(pairs) if pairs else None


def _data(row: Endpoint) -> dict[str, Any]:
    """For a script; the names of the fields are fixed."""
    names = type(row).__dataclass_fields__
    return {name: getattr(row, name) for name in names} | {"health": row.health}


def _state(row: Endpoint) -> str:
    match row.health:
        case "disabled":
            return f"disabled: {_REASONS.get(row.disabled_reason or '', row.disabled_reason)}"
        case "resting":
            return f"rests after {row.failures_in_row} failures in a row, next probe {row.open_until:%H:%M:%S} UTC"
        case "failing":
            return f"{row.failures_in_row} failures in a row"
        case _:
            return "well"


def _limits(row: Endpoint) -> str:
    rate = "no rate limit" if row.rate is None else f"{row.rate:g} a second"
    return f"{rate}, {row.concurrency} at once"


def _table(rows: Sequence[Endpoint]) -> Any:
    shown = [
        (row.name, row.url, ", ".join(row.events) or "all of sources", _state(row), row.waiting,
         "" if row.oldest_waiting_seconds is None else duration(row.oldest_waiting_seconds), row.dead, row.held,
         _limits(row))
        for row in rows
    ]  # fmt: skip
    return table(["endpoint", "url", "events", "state", "waiting", "oldest", "dead", "held", "limits"], shown)


def _details(row: Endpoint) -> Any:
    lines = [
        ("endpoint", row.name), ("id", row.id), ("url", row.url),
        ("events", ", ".join(row.events) or "all that come from sources"), ("state", _state(row)),
        ("deliveries", f"{row.waiting:,} wait, {row.dead:,} dead, {row.held:,} held for a person"),
        ("limits", _limits(row)), ("timeout", f"{row.timeout_seconds:g} s"), ("schedule", row.schedule),
        ("signature in", row.signature_header), ("extra headers", ", ".join(row.header_names) or "none"),
        ("secret", _secret_state(row)), ("added", f"{row.created_at:%d-%m-%Y %H:%M} UTC by {row.created_by}"),
    ]  # fmt: skip
    return table(["", ""], lines)


def _secret_state(row: Endpoint) -> str:
    if row.previous_until is None:
        return "one signs"
    return f"two sign: the previous one until {row.previous_until:%d-%m-%Y %H:%M} UTC"


def _show_with_secret(row: Endpoint, secret: str, *, is_given: bool, as_json: bool) -> None:
    def show(console: Console) -> None:
        console.print(_details(row))
        console.print(shown_once(secret, is_given=is_given), soft_wrap=True)

    Output(as_json=as_json).result({"endpoint": _data(row), "secret": secret}, show)


def _show_ping(console: Console, name: str, answered: Pinged) -> None:
    console.print(f"{name}: {answered.sentence}", soft_wrap=True)
    if answered.answer:
        console.print(table(["its answer"], [(answered.answer,)]))
