"""Twilio's library over our transport: the HTTP client that it is given. Imports twilio and httpx2 at once."""

from __future__ import annotations

import logging
from typing import Any

import httpx2
from twilio.http import HttpClient  # type: ignore[import-untyped]
from twilio.http.response import Response  # type: ignore[import-untyped]
from twilio.rest import Client  # type: ignore[import-untyped]

from shared.clients.http import DeadlineTransport

_CONNECT_SECONDS = 5.0


def connections(call_seconds: float) -> httpx2.Client:
    """What is shared by all calls: a connection for each of them alone, never one that was used before."""
    return httpx2.Client(
        transport=DeadlineTransport(keep_alive=False, call_seconds=call_seconds),
        timeout=httpx2.Timeout(call_seconds, connect=_CONNECT_SECONDS),
    )


class TwilioCall(HttpClient):  # type: ignore[misc]
    """The HTTP client of one call; keeps the answer's status and headers, which the library's errors drop."""

    def __init__(self, client: httpx2.Client, base_url: str | None) -> None:
        super().__init__(logging.getLogger(__name__), is_async=False)
        self._client = client
        self._base_url = base_url
        self.status: int | None = None
        self.headers: dict[str, str] = {}

    def request(
        self,
        method: str,
        uri: str,
        params: dict[str, object] | None = None,
        data: dict[str, object] | None = None,
        headers: dict[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        timeout: float | None = None,  # noqa: ARG002  # the call's deadline holds
        allow_redirects: bool = False,  # noqa: ARG002  # never: a send must not go twice
    ) -> Response:
        """Send one request; `base_url` replaces whichever of Twilio's hosts it was meant for."""
        if self._base_url is not None:
            uri = self._base_url + uri.split("/", 3)[3].join(("/", ""))
        form: Any = data
        answer = self._client.request(
            method, uri, params=_texts(params), data=form, headers=headers, auth=auth, follow_redirects=False
        )
        self.status, self.headers = answer.status_code, dict(answer.headers)
        return Response(answer.status_code, answer.text, self.headers)


def open_call(
    client: httpx2.Client, base_url: str | None, account_sid: str, auth_token: str
) -> tuple[Client, TwilioCall]:
    """The library's client for one call. It is cheap, and a shared one could not say whose headers it has."""
    http = TwilioCall(client, base_url)
    return Client(account_sid, auth_token, http_client=http), http


def _texts(params: dict[str, object] | None) -> dict[str, str] | None:
    return None if params is None else {name: str(value) for name, value in params.items()}
