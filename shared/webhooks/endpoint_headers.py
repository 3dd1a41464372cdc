"""The extra headers of an endpoint: which may be set, and how they and the secrets are kept. No I/O.

They are sealed as one, because some carry a token; their names stay readable. What the transport or the gateway itself sets
cannot be set by anybody else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from uuid import UUID

from shared import telemetry
from shared.errors import UserError
from shared.secrets import SecretUnreadable, Vault

HEADERS_AT_MOST = 20
VALUE_LENGTH_AT_MOST = 4096
NAME_LENGTH_AT_MOST = 100

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
}  # fmt: skip
_RESERVED = _HOP_BY_HOP | {
    "host",
    "expect",
    "accept-encoding",
    "user-agent",
    "x-idempotency-key",
    "x-original-timestamp",
}
_RESERVED_BEGINNINGS = ("content-", "webhook-", "x-webhook-", "x-replay-")


def secret_place(endpoint_id: UUID) -> str:
    """Where an endpoint's secrets, the current and the previous, are sealed for."""
    return f"endpoint:{endpoint_id}"


def open_secrets(secret: bytes, previous: bytes | None, endpoint_id: UUID, vault: Vault) -> list[str]:
    """What signs: the current secret, and the previous one while it can be read. Raises SecretUnreadable for the current.

    A previous one that no key opens must not stop deliveries: the receiver knows the current by now, or is about to.
    """
    secrets = [vault.open(secret, secret_place(endpoint_id))]
    if previous is not None:
        try:
            secrets.append(vault.open(previous, secret_place(endpoint_id)))
        except SecretUnreadable:
            telemetry.error("endpoint_secret_unreadable", endpoint_id=endpoint_id)
    return secrets


def headers_place(endpoint_id: UUID) -> str:
    """Where an endpoint's extra headers are sealed for."""
    return f"endpoint-headers:{endpoint_id}"


def seal_headers(headers: Mapping[str, str], endpoint_id: UUID, vault: Vault) -> bytes | None:
    """The headers as they are kept; None when there are none."""
    return vault.seal(json.dumps(dict(headers)), headers_place(endpoint_id)) if headers else None


def open_headers(sealed: bytes | None, endpoint_id: UUID, vault: Vault) -> dict[str, str]:
    """What seal_headers() made. Raises SecretUnreadable."""
    if sealed is None:
        return {}
    found = json.loads(vault.open(sealed, headers_place(endpoint_id)))
    return {str(name): str(value) for name, value in found.items()}


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers, tidied. Raises UserError for what cannot or may not be sent; the sentence repeats no value."""
    if len(headers) > HEADERS_AT_MOST:
        raise UserError(f"An endpoint has at most {HEADERS_AT_MOST} extra headers.", name="endpoint_headers_many")
    found: dict[str, str] = {}
    for given, text in headers.items():
        name, value = given.strip(), text.strip(" \t")
        if not _TOKEN.fullmatch(name) or len(name) > NAME_LENGTH_AT_MOST:
            raise UserError(f"{given!r} cannot be the name of a header.", name="endpoint_header_name")
        if is_reserved(name):
            raise UserError(f"{name} is set by the gateway itself; leave it out.", name="endpoint_header_reserved")
        if name.lower() in {known.lower() for known in found}:
            raise UserError(f"{name} is given twice.", name="endpoint_header_twice")
        if not value or len(value) > VALUE_LENGTH_AT_MOST or not _is_sendable(value):
            raise UserError(
                f"The value of {name} must be 1 to {VALUE_LENGTH_AT_MOST} characters of Latin-1 without control characters.",
                name="endpoint_header_value",
            )
        found[name] = value
    return found


def checked_signature_header(name: str, extra: Iterable[str]) -> str:
    """The name under which `t=…,v1=…` is sent. Raises UserError when something else stands there."""
    found = name.strip()
    if not _TOKEN.fullmatch(found) or len(found) > NAME_LENGTH_AT_MOST:
        raise UserError(f"{name!r} cannot be the name of a header.", name="endpoint_header_name")
    if found.lower() != "x-webhook-signature" and is_reserved(found):
        raise UserError(
            f"The signature cannot stand in {found}, which has another meaning.", name="endpoint_signature_header"
        )
    if found.lower() in {known.lower() for known in extra}:
        raise UserError(
            f"{found} is both an extra header and the one for the signature.", name="endpoint_signature_header"
        )
    return found


def is_reserved(name: str) -> bool:
    """Whether the transport or the gateway sets this header."""
    return name.lower() in _RESERVED or name.lower().startswith(_RESERVED_BEGINNINGS)


def _is_sendable(value: str) -> bool:
    return all(" " <= character <= "~" or "\xa0" <= character <= "\xff" for character in value)
