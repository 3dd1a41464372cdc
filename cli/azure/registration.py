"""The app registration that signs administrators in to the console: made once, found again by its name and its roles."""

from __future__ import annotations

import json
import uuid
from typing import Any

from cli.azure.programs import ProgramFailed
from cli.azure.values import OFF, ON, Values
from cli.doctor.finding import Finding, advice, ok, wrong
from shared.ops.roles import OPERATOR_NAME, VIEWER_NAME

CHECK = "sign-in"
ROLES = {  # what each opens: shared/ops/table.py
    VIEWER_NAME: "Looks at everything in the console, and changes nothing.",
    OPERATOR_NAME: "Looks at everything; answers, restarts and stops in conversations, jobs and deliveries.",
    "Antwoord.Admin": "Does everything in the console, also with documents, people and the gateway.",
}
_NAMESPACE = uuid.UUID("6d1c9a0e-3f0b-4f0e-9a57-0c6f2d8a4b11")  # any: the same role has the same id everywhere


def role_id(value: str) -> str:
    """The id of one of our app roles."""
    return str(uuid.uuid5(_NAMESPACE, value))


def app_roles() -> list[dict[str, Any]]:
    """The roles as Entra wants them."""
    return [
        {
            "id": role_id(value), "value": value, "displayName": value, "description": description,
            "allowedMemberTypes": ["User"], "isEnabled": True,
        }
        for value, description in ROLES.items()
    ]  # fmt: skip


def ensure(values: Values) -> Finding:
    """Make the registration if there is none, and tell azd its client id; none where the console is not wanted."""
    known, name = values.get("CONSOLE_CLIENT_ID"), f"Antwoord ({values.get('AZURE_ENV_NAME')})"
    switch = values.get("CONSOLE", "true")
    if switch not in ON + OFF:
        return wrong(CHECK, f"CONSOLE is {switch!r}: a switch is true or false.")
    if switch in OFF:
        values.put("CONSOLE_CLIENT_ID", "")
        return ok(CHECK, f"The console is off, as CONSOLE says{f'; CONSOLE_CLIENT_ID was {known}' if known else ''}.")
    try:
        if known:
            return ok(CHECK, f"Administrators sign in by the app registration {known}.")
        client_id = _find(values, name)
        made = client_id is None
        client_id = client_id or _make(values, name)
        _ensure_principal(values, client_id)
        values.put("CONSOLE_CLIENT_ID", client_id)
    except ProgramFailed as failed:
        return advice(
            CHECK,
            "The console stays off, since you may not register an application: somebody who may registers one, single "
            "tenant, with ID tokens and the role Antwoord.Admin; then `azd env set CONSOLE_CLIENT_ID` its client id. "
            f"{failed.said}",
        )
    return ok(
        CHECK, f"{'Registered' if made else 'Found'} {name}: give administrators its role Antwoord.Admin in Entra."
    )


def redirect_uri(base_url: str) -> str:
    """Where the platform takes up a sign-in."""
    return f"{base_url}/.auth/login/aad/callback"


def set_redirect(values: Values, base_url: str) -> bool:
    """Let the sign-in return to the app at `base_url`; whether that was new."""
    client_id, wanted = values.get("CONSOLE_CLIENT_ID"), redirect_uri(base_url)
    if not client_id:
        return False
    known = values.programs.az("ad", "app", "show", "--id", client_id, "--query", "web.redirectUris") or []
    if wanted in known:
        return False
    values.programs.az_quietly("ad", "app", "update", "--id", client_id, "--web-redirect-uris", *known, wanted)
    return True


def _find(values: Values, name: str) -> str | None:
    quoted = name.replace("'", "''")
    found = values.programs.az("ad", "app", "list", "--filter", f"displayName eq '{quoted}'") or []
    ours = {role_id(value) for value in ROLES}
    for app in found:
        if ours <= {role.get("id") for role in app.get("appRoles") or []}:
            return str(app["appId"])
    return None


def _make(values: Values, name: str) -> str:
    app = values.programs.az(
        "ad", "app", "create", "--display-name", name, "--sign-in-audience", "AzureADMyOrg",
        "--enable-id-token-issuance", "true", "--app-roles", json.dumps(app_roles()),
    )  # fmt: skip
    return str(app["appId"])


def _ensure_principal(values: Values, client_id: str) -> None:
    """Without its service principal nobody can be given a role; an earlier run may have ended between the two."""
    if not values.programs.az("ad", "sp", "list", "--filter", f"appId eq '{client_id}'"):
        values.programs.az_quietly("ad", "sp", "create", "--id", client_id)
