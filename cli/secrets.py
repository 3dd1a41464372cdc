"""`secrets`: the key that seals the secrets of webhooks, and its rotation."""

from __future__ import annotations

import base64
import os

import typer

from cli.environment import database, person
from cli.output import AsJson, Output, Status
from shared.secrets import open_vault
from shared.settings import KEY_BYTES
from shared.webhooks.reseal import reseal as reseal_all

app = typer.Typer(help="The key that seals the secrets of webhooks, SECRETS_KEY, and its rotation.")


@app.command("new-key")
def new_key(as_json: AsJson = False) -> None:
    """Print a new key for SECRETS_KEY; nothing is stored.

    To rotate: set SECRETS_KEY to `new,old` everywhere, run `secrets reseal`, then set it to `new` alone.
    """
    made = base64.b64encode(os.urandom(KEY_BYTES)).decode("ascii")
    Output(as_json=as_json).result({"key": made}, lambda console: console.print(made, soft_wrap=True))


@app.command()
def reseal(as_json: AsJson = False) -> None:
    """Seal every secret again under the first key of SECRETS_KEY. It may run twice, and while the application runs."""
    output = Output(as_json=as_json)
    with database() as (settings, pool), pool.connection() as opened:
        open_vault(settings.secrets_key)
        keys = settings.secrets_key or ()
        found = reseal_all(opened, keys, who=person())
    lines = [f"{found.done:,} sealed again, {found.already:,} were under the first key already"]
    if found.changed:
        lines.append(f"{found.changed:,} were changed by somebody else meanwhile: run it again")
    lines += [
        f"{place} cannot be read with any key of SECRETS_KEY: add the key that sealed it" for place in found.unreadable
    ]
    if not found.changed and not found.unreadable and len(keys) > 1:
        lines.append("when no instance runs with the old key in front any more, the old key can go from SECRETS_KEY")
    output.result({"secrets": found}, lambda console: console.print("\n".join(lines), soft_wrap=True))
    if found.changed or found.unreadable:
        raise typer.Exit(Status.FAILED)
