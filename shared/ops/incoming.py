"""One request, whole: what the console's thread gets from the event loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser


@dataclass(frozen=True, slots=True)
class Incoming:
    """`path` is the whole one, from /api/ops on; `parameters` are those of the route."""

    method: str
    scheme: str
    path: str
    query: str
    headers: Headers
    body: bytes = b""
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """Path and query, fit for an address."""
        return quote(self.path) + (f"?{self.query}" if self.query else "")

    @property
    def is_live(self) -> bool:
        """Whether a page asks for a part of itself, as opposed to a person who opens a page."""
        return self.headers.get("hx-request") == "true"

    def cookie(self, name: str) -> str:
        """A cookie's value, or nothing."""
        return cookie_parser(self.headers.get("cookie", "")).get(name, "")

    def comes_from_here(self, public_origin: str | None) -> bool:
        """Whether a browser says that this was sent by a page of ours.

        Under `Referrer-Policy: no-referrer` a form's `Origin` is "null" even so, and then `Sec-Fetch-Site` tells; a client
        that sends neither is not a browser of today, and has the CSRF token to show all the same.
        """
        site = self.headers.get("sec-fetch-site")
        if site is not None and site != "same-origin":
            return False
        origin = self.headers.get("origin")
        if origin is None or (origin == "null" and site is not None):
            return True
        return origin in (f"{self.scheme}://{self.headers.get('host', '')}", public_origin)


def own_path(path: str, prefix: str) -> str:
    """A path that a form says to go back to, if it is one of the console's; else the console's first page."""
    try:
        parts = urlsplit(path)
    except ValueError:
        return prefix
    is_own = not parts.scheme and not parts.netloc and (parts.path == prefix or parts.path.startswith(f"{prefix}/"))
    return path if is_own and "\\" not in path and path.isprintable() else prefix
