"""Standard Webhooks, version 1: HMAC-SHA256 over `id.timestamp.body`, base64, `v1,…`, several separated by spaces.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md. OpenAI and Azure OpenAI
sign so. A secret is `whsec_` and base64; one without the prefix stands for its own bytes, as in OpenAI's library.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets as random_source
from collections.abc import Sequence

from shared.errors import RequestRefused
from shared.signature.parts import TOLERANCE_SECONDS, check_match, check_time, header, usable

PREFIX = "whsec_"
_ID = re.compile(r"[\x21-\x2d\x2f-\x7e]{1,256}", re.ASCII)  # the dot separates what is signed


def new_secret() -> str:
    """A fresh secret: 32 random bytes (the specification asks for 24 to 64)."""
    return PREFIX + base64.b64encode(random_source.token_bytes(32)).decode("ascii")


def sign_standard(message_id: str, timestamp: int, body: bytes, secret: str) -> str:
    """One signature, as it stands in `webhook-signature`. Raises ValueError for an empty secret."""
    return "v1," + base64.b64encode(_digest(message_id, str(timestamp), body, usable([secret])[0])).decode("ascii")


def verify_standard(
    *,
    message_id: str | None,
    timestamp: str | None,
    signature: str | None,
    body: bytes,
    secrets: Sequence[str],
    now: float,
    tolerance: float = TOLERANCE_SECONDS,
) -> None:
    """Return if one of the signatures is genuine; `now` in Unix seconds. Raises RequestRefused."""
    named = header(message_id, "webhook-id")
    if not _ID.fullmatch(named):
        raise RequestRefused(400, "webhook-id cannot be read.")
    stated = header(timestamp, "webhook-timestamp")
    given = [
        value.encode("ascii")
        for version, _, value in (part.partition(",") for part in header(signature, "webhook-signature").split(" "))
        if version == "v1" and value
    ]
    check_time(stated, "webhook-timestamp", now, tolerance)
    check_match([base64.b64encode(_digest(named, stated, body, secret)) for secret in usable(secrets)], given)


def _digest(message_id: str, timestamp: str, body: bytes, secret: str) -> bytes:
    return hmac.new(key(secret), f"{message_id}.{timestamp}.".encode("ascii") + body, hashlib.sha256).digest()


def key(secret: str) -> bytes:
    """The bytes that a secret stands for. Raises ValueError for `whsec_` without base64 behind it."""
    if not secret.startswith(PREFIX):
        return secret.encode("utf-8")
    try:
        found = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError as wrong:
        raise ValueError("what follows whsec_ must be base64") from wrong
    if not found:
        raise ValueError("a secret must not be empty")
    return found
