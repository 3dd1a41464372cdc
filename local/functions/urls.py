"""URLs and repeated fields as the cloud's host hands them to a function.

Its web server decodes a path once (leaving %2F and what is not UTF-8 encoded), and its URL is made from the decoded
path again; so `%41` arrives as `A`. The query string is kept as sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote_to_bytes

_PATH_SAFE = "/:@!$&'()*+,;=-._~"
_SLASH = re.compile("(%2[Ff])")
_ESCAPE = re.compile("(%[0-9A-Fa-f]{2})")


def decode_path(raw: str) -> str:
    """The path to match routes with: decoded, but for %2F and for segments between them that are not UTF-8."""
    if "%" not in raw:
        return raw

    def part(text: str) -> str:
        try:
            return unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            return text

    return "".join(text if index % 2 else part(text) for index, text in enumerate(_SLASH.split(raw)))


def encode_path(path: str) -> str:
    """A decoded path as it stands in the URL; escapes that were left in it stay."""
    parts = _ESCAPE.split(path)
    return "".join(text if index % 2 else quote(text, safe=_PATH_SAFE) for index, text in enumerate(parts))


def join_repeated(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Values by name without regard to case (the first spelling stays); repeated ones are joined by a comma."""
    spelling: dict[str, str] = {}
    values: dict[str, str] = {}
    for name, value in pairs:
        key = spelling.setdefault(name.lower(), name)
        values[key] = f"{values[key]},{value}" if key in values else value
    return values
