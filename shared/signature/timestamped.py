"""`t=…,v1=…`: HMAC-SHA256 over `timestamp.body`, hexadecimal, in one header.

Source: https://docs.stripe.com/webhooks#verify-manually. Several `v1` may stand there (a secret is being rotated), other
fields are ignored, and the timestamp is signed as it was written.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from shared.errors import RequestRefused
from shared.signature.parts import TOLERANCE_SECONDS, check_match, check_time, header, usable

DEFAULT_HEADER = "X-Webhook-Signature"


def sign_timestamped(timestamp: int, body: bytes, secrets: Sequence[str]) -> str:
    """The header's value, with one `v1` for each secret. Raises ValueError for an empty one."""
    signatures = ",".join(f"v1={_digest(str(timestamp), body, secret)}" for secret in usable(secrets))
    return f"t={timestamp},{signatures}"


def verify_timestamped(
    *,
    signature: str | None,
    body: bytes,
    secrets: Sequence[str],
    now: float,
    tolerance: float = TOLERANCE_SECONDS,
    name: str = DEFAULT_HEADER,
) -> None:
    """Return if one of the signatures is genuine; `now` in Unix seconds. Raises RequestRefused."""
    pairs = [part.strip().partition("=") for part in header(signature, name).split(",")]
    times = [value for field, _, value in pairs if field == "t"]
    if len(times) != 1:
        raise RequestRefused(400, f"{name} must hold one t=.")
    given = [value.lower().encode("ascii") for field, _, value in pairs if field == "v1" and value]
    check_time(times[0], name, now, tolerance)
    check_match([_digest(times[0], body, secret).encode("ascii") for secret in usable(secrets)], given)


def _digest(timestamp: str, body: bytes, secret: str) -> str:
    return hmac.new(secret.encode("utf-8"), timestamp.encode("ascii") + b"." + body, hashlib.sha256).hexdigest()
