"""What the schemes share: reading a header safely, and comparing in constant time."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Sequence

from shared.errors import RequestRefused

TOLERANCE_SECONDS = 300.0
HEADER_LENGTH_AT_MOST = 4096
SIGNATURES_AT_MOST = 20

_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


def header(value: str | None, name: str) -> str:
    """A header's value. Raises RequestRefused (400) when it is missing, too long or not ASCII."""
    if not value:
        raise RequestRefused(400, f"The request has no {name}.")
    if len(value) > HEADER_LENGTH_AT_MOST or not value.isascii():
        raise RequestRefused(400, f"{name} cannot be read.")
    return value


def check_time(stated: str, name: str, now: float, tolerance: float) -> None:
    """Raise RequestRefused when the time (Unix seconds, as it was signed) is further than `tolerance` from `now`."""
    if not _SECONDS.fullmatch(stated):
        raise RequestRefused(400, f"{name} holds no time in Unix seconds.")
    if abs(now - int(stated)) > tolerance:
        raise RequestRefused(403, f"{name} is more than {tolerance:g} seconds away from the time here.")


def check_match(expected: Iterable[bytes], given: Sequence[bytes]) -> None:
    """Raise RequestRefused (403) unless one of the expected signatures was given; every pair is compared."""
    if len(given) > SIGNATURES_AT_MOST:
        raise RequestRefused(400, f"The request has more than {SIGNATURES_AT_MOST} signatures.")
    genuine = False
    for wanted in expected:
        for found in given:
            genuine |= hmac.compare_digest(wanted, found)
    if not genuine:
        raise RequestRefused(403, "The signature does not match the request.")


def usable(secrets: Sequence[str]) -> list[str]:
    """The secrets that can sign. Raises ValueError when one is empty: then anybody could."""
    if not secrets or not all(secrets):
        raise ValueError("a secret must not be empty")
    return list(secrets)
