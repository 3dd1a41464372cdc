"""`azure`: what azd's hooks run. Each may be run again, and by hand; the second time there is nothing to do."""

from __future__ import annotations

import datetime
import getpass
import os
import sys
from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console

from cli.azure import deployed as after
from cli.azure import preflight as before
from cli.azure import registration
from cli.azure.database import Server, prepare
from cli.azure.parameters import read_parameters
from cli.azure.programs import ProgramFailed
from cli.azure.values import Values, read_answers, read_values
from cli.azure.vault import Vault
from cli.doctor.command import examine, is_wrong, show
from cli.doctor.finding import Finding, State
from cli.output import AsJson, Output, Status

app = typer.Typer(help="What `azd` runs around a deployment (infra/hooks).")

RESOURCE = "https://ossrdbms-aad.database.windows.net"
KEYS = {"secrets-key": None, "metrics-token": "METRICS_ON"}  # made here; the second with its switch alone
TOKENS = {  # given by somebody: the secret, the variable, and the switch without which it is not asked for
    "twilio-auth-token": ("TWILIO_AUTH_TOKEN", None),
    "twilio-auth-token-secondary": ("TWILIO_AUTH_TOKEN_SECONDARY", "TWILIO_ROTATING"),
    "twilio-webhook-shared-key": ("TWILIO_WEBHOOK_SHARED_KEY", "TWILIO_SHARED_KEY_USED"),
}


@app.command()
def preflight(
    address_service: Annotated[
        str, typer.Option(help="Answers this machine's public address.", show_default=False)
    ] = before.ADDRESS_SERVICE,
    as_json: AsJson = False,
) -> None:
    """Check tools, sign-in, names, region, models and quota before anything is made; each failure says what to do."""
    output, values = Output(as_json=as_json), _values()
    parameters = read_parameters(values.given, answered=read_answers(values.get("AZURE_ENV_NAME")))
    today = datetime.datetime.now(datetime.UTC).date()
    findings = list(before.check(values, parameters, address_service=address_service, today=today))
    show(output, findings)
    if is_wrong(findings):
        raise typer.Exit(Status.FAILED)


@app.command()
def provisioned(as_json: AsJson = False) -> None:
    """Fill the vault, and bring the database to where the application can use it."""
    output = Output(as_json=as_json)
    done = bring_up(_values(), output)

    def lines(console: Console) -> None:
        console.print("\n".join(done) or "Nothing to do.", soft_wrap=True)

    output.result({"done": done}, lines)


@app.command()
def deployed(as_json: AsJson = False) -> None:
    """Add the first documents if FIRST_DOCUMENTS names some, say what to paste at Twilio, and check the set-up."""
    output, values = Output(as_json=as_json), _values()
    findings = look(values, output)
    show(output, findings)
    output.note(_told(values))
    if is_wrong([finding for finding in findings if not is_for_later(finding)]):
        raise typer.Exit(Status.FAILED)


def bring_up(values: Values, output: Output) -> list[str]:
    """Fill the vault and prepare the database; what was done, in words. What is there already stays as it is."""
    vault_name, base_url, role, identity = values.need(
        "KEY_VAULT_NAME", "PUBLIC_BASE_URL", "APP_IDENTITY_NAME", "APP_IDENTITY_PRINCIPAL_ID"
    )
    done = _fill(Vault(values.programs, vault_name), values, output)
    prepared = prepare(_server(values), role, identity)
    done += [f"extension {name} created" for name in prepared.extensions]
    done += [f"role {role} created"] if prepared.made_role else []
    done += [f"schema {role} created"] if prepared.made_schema else []
    done += [f"migrated: {name}" for name in prepared.migrations]
    try:
        if registration.set_redirect(values, base_url):
            done.append("sign-in returns to the app")
    except ProgramFailed as refused:  # a pipeline may seldom; whoever owns the registration can, and all else is done
        output.note(
            f"The sign-in cannot be told to return to {base_url}: whoever owns the app registration adds "
            f"{registration.redirect_uri(base_url)} to its web redirect URIs, if it is not there. {refused.said}"
        )
    after.refresh_references(values)
    return done


def look(values: Values, output: Output) -> list[Finding]:
    """Add the first documents, wait for the app, and check the set-up with the settings that the app has got."""
    base_url, role = values.need("PUBLIC_BASE_URL", "APP_IDENTITY_NAME")
    server = _server(values)
    settings, broken = after.settings_of_app(values, server)
    for name, outcome in after.add_documents(server, role, after.documents(values.get("FIRST_DOCUMENTS"))):
        output.note(f"document {name}: {outcome}")
    output.note(f"waiting for {base_url} …")
    after.wait_until_it_answers(base_url)
    return [*broken, *examine(settings, [], output.note)]


def _values() -> Values:
    return read_values(os.environ)  # and not local.settings.json, nor what an `up` beside this says of itself


def _server(values: Values) -> Server:
    """The database server, and the deployer's token for it."""
    host, database, login = values.need("DATABASE_HOST", "DATABASE_NAME", "AZURE_PRINCIPAL_NAME")
    token = values.programs.az("account", "get-access-token", "--resource", RESOURCE, "--query", "accessToken")
    return Server(host, database, login, str(token), _tls(values))


def _tls(values: Values) -> str:
    """How the database's certificate is checked, as main.parameters.json has it."""
    return values.get("DATABASE_TLS", "verify-full")


def _fill(vault: Vault, values: Values, output: Output) -> list[str]:
    """Put into the vault what is missing; a key that seals others is never replaced."""
    done = [
        f"{name} made"
        for name, switch in KEYS.items()
        if (not switch or values.is_on(switch)) and vault.ensure_key(name)
    ]
    for name, (variable, switch) in TOKENS.items():
        if switch and not values.is_on(switch):
            continue
        given = values.get(variable)
        if not given and not vault.has(name):
            given = _ask(variable)
            if not given:
                output.note(
                    f"{variable} is missing: put it into the vault {vault.name} as {name}, or set it and run this again."
                )
        if given and vault.ensure_value(name, given):
            done.append(f"{name} set")
    return done


def _ask(variable: str) -> str:
    """Ask the person, without an echo; nothing where there is nobody to ask."""
    return getpass.getpass(f"{variable}: ").strip() if sys.stdin.isatty() else ""


def is_for_later(finding: Finding) -> bool:
    """Twilio can be set only once there is an address to paste: that is no failure of the deployment."""
    return finding.state is State.WRONG and finding.check in ("twilio: webhook", "twilio: status URL")


def _told(values: Values) -> str:
    host, database, login, role = values.need(
        "DATABASE_HOST", "DATABASE_NAME", "AZURE_PRINCIPAL_NAME", "APP_IDENTITY_NAME"
    )
    base_url, user, acting = values.get("PUBLIC_BASE_URL"), quote(login, safe=""), quote(f"-c role={role}", safe="")
    lines = [
        "",
        f"Antwoord is deployed: {base_url}",
        "",
        "Paste at Twilio, Messaging › Senders › WhatsApp senders › your number:",
    ]
    lines += [f"  {name}\n    {value}   (POST)" for name, value in after.twilio_settings(base_url).items()]
    if console := after.console_users(values):
        lines += ["", f"Console: {console}"]
    address = f"postgresql://{user}@{host}:5432/{database}?sslmode={_tls(values)}&options={acting}"
    lines += ["", "The commands of ./antwoord from this machine, signed in with `az login`:"]
    lines.append(f"  export DATABASE_AUTH=entra DATABASE_URL='{address}'")
    return "\n".join(lines)
