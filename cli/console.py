"""`console`: a new one-time link to the console, for a link that was used, or lost."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.environment import connection, environment
from cli.output import AsJson, Output
from shared.db.pool import Conn
from shared.errors import UserError

DEFAULT_URL = "http://127.0.0.1:7071"
HOST_URL = "ANTWOORD_URL"  # where the host of `up` listens, for the commands beside it; not a setting


def command(
    url: Annotated[
        str | None, typer.Option(help="Where the host listens; that of the running `up` by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a new link that signs in to the console once (OPS_AUTH=local)."""
    found = environment()
    if found.get("OPS_AUTH", "off").strip().lower() != "local":
        raise UserError("Links sign in with OPS_AUTH=local alone, which `up` sets; it is another value here.")
    with connection() as opened:
        link = make_link(opened, url or found.get(HOST_URL) or DEFAULT_URL)
    Output(as_json=as_json).result({"link": link}, lambda console: console.print(link, soft_wrap=True, highlight=False))


def make_link(connection: Conn, host_url: str) -> str:
    """An address that signs in once, within twelve hours."""
    from shared.ops.session import create_link

    return f"{host_url}/api/ops/sign-in?token={create_link(connection)}"
