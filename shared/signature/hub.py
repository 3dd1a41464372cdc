"""`X-Hub-Signature-256`: HMAC-SHA256 over the body alone, `sha256=` and hexadecimal.

Source: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries. No time is signed, so nothing but the
sender's id tells a repetition.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from shared.errors import RequestRefused
from shared.signature.parts import check_match, header, usable

HEADER = "X-Hub-Signature-256"


def sign_hub(body: bytes, secret: str) -> str:
    """The header's value. Raises ValueError for an empty secret."""
    return "sha256=" + _digest(body, usable([secret])[0])


def verify_hub(*, signature: str | None, body: bytes, secrets: Sequence[str]) -> None:
    """Return if the signature is genuine. Raises RequestRefused."""
    algorithm, _, given = header(signature, HEADER).partition("=")
    if algorithm != "sha256" or not given:
        raise RequestRefused(400, f"{HEADER} must begin with sha256=.")
    check_match([_digest(body, secret).encode("ascii") for secret in usable(secrets)], [given.lower().encode("ascii")])


def _digest(body: bytes, secret: str) -> str:
    return hmac.new(secret.encode("utf-8"), body, hashlib.sha256).hexdigest()
