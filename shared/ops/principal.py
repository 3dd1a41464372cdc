"""The platform's identity headers: read only when its sign-in is on (`OPS_AUTH=entra`), and judged here once more.

With authentication switched on, the platform strips these headers from what callers send and puts in its own.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.db.text import storable
from shared.ops.roles import Role, role_of

PROVIDER = "aad"
_TENANT = ("http://schemas.microsoft.com/identity/claims/tenantid", "tid")
_ROLE = ("http://schemas.microsoft.com/ws/2008/06/identity/claims/role", "roles")
_NAME = (
    "preferred_username",
    "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress",
    "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/upn",
    "http://schemas.microsoft.com/identity/claims/objectidentifier",
    "oid",
)
NAME_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom the platform signed in. `refusal` names what is wrong with them for this console; `role` is theirs if nothing is."""

    who: str
    refusal: str | None = None
    role: Role | None = None


def read_principal(headers: Mapping[str, str], tenant: str | None, role: str) -> Principal | None:
    """The principal of a request, or None when nobody has signed in by the one provider that counts. `role` is what an
    administrator's is called."""
    claims = _claims(headers.get("x-ms-client-principal", ""))
    if claims is None or headers.get("x-ms-client-principal-idp", "").lower() != PROVIDER:
        return None
    who = storable(next((value for kind in _NAME for value in claims.get(kind, [])), "")[:NAME_LIMIT])
    if not who:
        return None
    tenants = [value.lower() for kind in _TENANT for value in claims.get(kind, [])]
    if not tenant or tenants != [tenant.lower()] * len(tenants) or not tenants:
        return Principal(who, "tenant")
    found = role_of([value for kind in _ROLE for value in claims.get(kind, [])], role)
    return Principal(who, role=found) if found else Principal(who, "role")


def _claims(header: str) -> dict[str, list[str]] | None:
    """The claims by kind; None when the header is absent or is not what the platform writes."""
    try:
        principal: Any = json.loads(base64.b64decode(header, validate=True))
        if principal["auth_typ"] != PROVIDER:
            return None
        found: dict[str, list[str]] = {}
        for claim in principal["claims"]:
            found.setdefault(str(claim["typ"]), []).append(str(claim["val"]))
    except (binascii.Error, UnicodeDecodeError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found
