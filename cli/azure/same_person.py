"""Whether `az` and `azd` are signed in as the same one.

azd gives the templates the id of who is signed in to it. The name beside that id, which becomes the database's administrator, and
the token that migrates come from `az`. Of two people the name is the one's and the id the other's, and neither gets in.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from cli.azure.programs import ProgramFailed
from cli.azure.values import Values
from cli.doctor.finding import Finding, left_out, ok, wrong

CHECK = "same person"
_NAMES = ("upn", "unique_name", "preferred_username", "appid", "oid")


def check(values: Values, account: dict[str, Any]) -> Finding:
    """Compare the object ids in both tokens for the subscription's tenant: a guest has another one in each tenant."""
    tenant = str(account.get("tenantId") or "")
    asked = ("auth", "token", "--output", "json", "--no-prompt", *(("--tenant-id", tenant) if tenant else ()))
    try:
        theirs = json.loads(values.programs.azd(*asked))["token"]
    except ProgramFailed as failed:
        return wrong(CHECK, f"`azd` is not signed in: run `azd auth login`. {failed.said}")
    ours = values.programs.az("account", "get-access-token", "--query", "accessToken")
    az, azd = _claims(ours), _claims(theirs)
    if not az.get("oid") or not azd.get("oid"):
        return left_out(CHECK, "The tokens of `az` and `azd` do not say whose they are.")
    if az["oid"] != azd["oid"]:
        return wrong(
            CHECK,
            f"`az` is signed in as {_name(az)} and `azd` as {_name(azd)}, so the database would get an administrator with the "
            "name of the one and the id of the other: sign in to both as the same (`az login`, `azd auth login`).",
        )
    return ok(CHECK, f"`az` and `azd` are both signed in as {_name(az)}.")


def _claims(token: Any) -> dict[str, Any]:
    """What a token says of its owner, unchecked: both programs have just got it themselves. Nothing when it is no JWT."""
    try:
        body = str(token).split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _name(claims: dict[str, Any]) -> str:
    return next((str(claims[name]) for name in _NAMES if claims.get(name)), "somebody")
