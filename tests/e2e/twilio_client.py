"""Twilio's own client, led to a stand-in."""

from __future__ import annotations

import re
from typing import Any

from twilio.http.http_client import TwilioHttpClient  # type: ignore[import-untyped]
from twilio.rest import Client  # type: ignore[import-untyped]


class _Led(TwilioHttpClient):  # type: ignore[misc]
    """Replaces the scheme and host of whatever the library calls, and keeps the last answer's headers."""

    def __init__(self, base: str, timeout: float) -> None:
        super().__init__(timeout=timeout)
        self._base = base

    def request(self, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        response = super().request(method, re.sub(r"^https://[^/]+", self._base, url), *args, **kwargs)
        self.last_headers = response.headers
        return response


def client_of(base: str, account_sid: str, auth_token: str, *, timeout: float = 5.0) -> Any:
    """A `twilio.rest.Client` whose calls go to `base`; `timeout` in seconds."""
    return Client(account_sid, auth_token, http_client=_Led(base, timeout))
