"""After a deployment: the settings that the app has got, as the checks need them; first documents; what to paste at Twilio."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2

from cli.azure.database import Server
from cli.azure.values import Values
from cli.azure.vault import Vault
from cli.doctor.finding import Finding, wrong
from cli.environment import ROOT
from cli.twilio_addresses import RETRIES, status_url, webhook_url
from shared.clients.deadline import deadline
from shared.clients.http import DeadlineTransport
from shared.errors import UserError

REFERENCE = "@Microsoft.KeyVault("
ANSWER_SECONDS, TRY_SECONDS, PAUSE_SECONDS = 180.0, 10.0, 2.0
DOCUMENTS = (".md", ".txt")
_SECRET = re.compile(r"SecretName=([\w-]+)|/secrets/([\w-]+)")


def settings_of_app(values: Values, server: Server) -> tuple[dict[str, str], list[Finding]]:
    """The app's settings with their secrets, and with the deployer's own way into the database; and what does not resolve."""
    group, app, vault, role = values.need(
        "AZURE_RESOURCE_GROUP", "FUNCTION_APP_NAME", "KEY_VAULT_NAME", "APP_IDENTITY_NAME"
    )
    listed = (
        values.programs.az("functionapp", "config", "appsettings", "list", "--resource-group", group, "--name", app)
        or []
    )
    found: dict[str, str] = {}
    broken: list[Finding] = []
    secrets = Vault(values.programs, vault)
    for item in listed:
        name, value = str(item["name"]), str(item.get("value") or "")
        if value.startswith(REFERENCE):
            named = _SECRET.search(value)
            secret = (named[1] or named[2]) if named else ""
            known = secrets.read(secret) if secret else None
            if known is None:
                broken.append(
                    wrong(
                        f"secret: {name}",
                        f"It refers to {secret!r}, which is not in the vault {vault}: put it there (docs/deploy.md).",
                    )
                )
                continue
            value = known
        found[name] = value
    return found | {"DATABASE_URL": server.url(role=role), "DATABASE_AUTH": "password"}, broken


def refresh_references(values: Values) -> None:
    """Have the app read its references to the vault now: those of before the secrets were there did not resolve."""
    group, app = values.need("AZURE_RESOURCE_GROUP", "FUNCTION_APP_NAME")
    site = values.programs.az("functionapp", "show", "--resource-group", group, "--name", app, "--query", "id")
    path = f"{site}/config/configreferences/appsettings/refresh?api-version=2022-03-01"
    values.programs.az_quietly("rest", "--method", "post", "--url", f"https://management.azure.com{path}")


def wait_until_it_answers(base: str, seconds: float = ANSWER_SECONDS) -> None:
    """The first request after a deployment takes its time. What is wrong after that, the checks say."""
    ends = time.monotonic() + seconds
    with httpx2.Client(transport=DeadlineTransport(call_seconds=TRY_SECONDS), timeout=TRY_SECONDS) as client:
        while time.monotonic() < ends:
            try:
                with deadline(TRY_SECONDS):
                    if client.get(f"{base}/api/health").status_code == 200:
                        return
            except httpx2.HTTPError:
                pass
            time.sleep(PAUSE_SECONDS)


def documents(asked: str) -> list[Path]:
    """The files that FIRST_DOCUMENTS names: files or folders with `:` between, or `demo`. Raises UserError."""
    found: list[Path] = []
    for part in filter(None, asked.split(os.pathsep)):
        path = ROOT / "local" / "demo" / "handbook" if part == "demo" else ROOT / part
        if not path.exists():
            raise UserError(f"FIRST_DOCUMENTS names {part}, which is not there.")
        found += [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.suffix in DOCUMENTS)
    return found


def add_documents(server: Server, role: str, paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Store them as the app's role; the app embeds them. The name of each, and what came of it."""
    import psycopg

    from shared.conversation.language import detect
    from shared.db.roots import trusted_roots
    from shared.knowledge import ingest
    from shared.knowledge.upload import read_upload

    url = server.url(role=role)
    with psycopg.connect(url, autocommit=True, **trusted_roots(url)) as connection:
        for path in paths:
            document = read_upload(path.name, path.read_bytes(), None, "", detect=detect)
            yield path.name, ingest.add_document(connection, document).outcome


def twilio_settings(base: str) -> dict[str, str]:
    """What to paste, by the words of Twilio's page."""
    return {
        "Webhook URL for incoming messages": f"{webhook_url(base)}{RETRIES}",
        "Fallback URL for incoming messages": webhook_url(base),
        "Status callback URL": status_url(base),
    }


def console_users(values: Values) -> str | None:
    """Where people get into the console, if it is on."""
    return f"{values.get('PUBLIC_BASE_URL')}/api/ops/" if values.get("CONSOLE_CLIENT_ID") else None
