"""One request to an endpoint: signed, sent within its time, and what came back. No database, no retry.

The headers are those of Standard Webhooks (https://github.com/standard-webhooks/standard-webhooks), and `t=…,v1=…` in a header
that each endpoint names, with one signature for each secret that is valid now. The id and the body are the same for ever, the
timestamp is the attempt's own: a receiver refuses what is old and knows what it has seen.

A timeout or a dropped connection may have been acted on. It counts as passing all the same, because receivers are told to be
idempotent (docs/receiving.md); so connections are kept and used again, although one that was just closed fails in that way.
"""

from __future__ import annotations

import html
import http
import json
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from shared.clients.deadline import boot_clock, deadline
from shared.clients.guard import Guard
from shared.errors import Failure, FailureKind, classify, presentable, retry_after_seconds
from shared.signature.standard import PREFIX, sign_standard
from shared.signature.timestamped import DEFAULT_HEADER, sign_timestamped

if TYPE_CHECKING:
    import httpx2

    from shared.clients.http import DeadlineTransport

USER_AGENT = "Antwoord-Webhooks/1"
BODY_LIMIT = 64 * 1024  # bytes of an answer that are read
CONNECT_SECONDS = 5.0
_SHORTEST_SECRET = 8  # characters; a shorter one would strike out words
_PASSING = frozenset({408, 409, 425, 429})


@dataclass(frozen=True, slots=True)
class Replay:
    """Says that it was sent before: which replay, which try of it, and when it first went out (Unix seconds)."""

    id: str
    attempt: int
    original_timestamp: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where to, and with what: the secrets that are valid now, opened; the newest first."""

    url: str
    secrets: Sequence[str] = field(repr=False)
    signature_header: str = DEFAULT_HEADER
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float = 15.0
    replay: Replay | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: `failure` is None when it was accepted (2xx); `text` is shortened, with secrets struck out."""

    http_status: int | None
    duration_ms: float
    text: str
    failure: Failure | None


class Sender:
    """Sends to endpoints over connections that are shared and kept; made once a process, with its guard."""

    def __init__(self, guard: Guard, ssl_context: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        self._ssl_context = ssl_context
        self._opening = threading.Lock()
        self._opened: DeadlineTransport | None = None
        self._checked = lru_cache(maxsize=1024)(
            self._check
        )  # a quarter of the time that sending takes, for a fast receiver

    @property
    def _transport(self) -> DeadlineTransport:
        with self._opening:  # the first ones come together
            if self._opened is None:
                from shared.clients.http import DeadlineTransport

                self._opened = DeadlineTransport(
                    body_limit=BODY_LIMIT, guard=self._guard, ssl_context=self._ssl_context
                )
            return self._opened

    def prepare(self) -> None:
        """Load the library (0.1 s) before the first one is sent."""
        _ = self._transport

    def send(self, target: Target, body: bytes, *, message_id: str, idempotency_key: str) -> Answer:
        """One attempt, at most `target.timeout_seconds` long. Never raises: what goes wrong is in the answer.

        Redirects are not followed, cookies not kept. An answer over 64 KiB is cut there: its status says what became of it.
        """
        began = boot_clock()
        try:
            status, text, failure = self._exchange(target, body, message_id, idempotency_key)
        except Exception as error:  # noqa: BLE001 - whatever the library raises is a failed attempt
            failure = _of_transport(error)
            failure = replace(failure, text=_struck_out(failure.text, target))
            return Answer(None, _since(began), "", failure)
        return Answer(status, _since(began), _struck_out(text, target), failure)

    def close(self) -> None:
        """Close the connections that are kept."""
        if self._opened is not None:
            self._opened.close()

    def _exchange(
        self, target: Target, body: bytes, message_id: str, idempotency_key: str
    ) -> tuple[int, str, Failure | None]:
        import httpx2

        url = self._checked(target.url)
        ours = headers_of(target, body, message_id, idempotency_key, int(time.time()))
        taken = {name.lower() for name in ours}
        theirs = (pair for pair in target.headers.items() if pair[0].lower() not in taken)
        headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in (*ours.items(), *theirs)]
        timeout = {"connect": CONNECT_SECONDS, "read": None, "write": None, "pool": None}
        request = httpx2.Request("POST", url, headers=headers, content=body, extensions={"timeout": timeout})
        # The transport itself, and no client around it: that would keep the cookies of all endpoints in one jar.
        with deadline(target.timeout_seconds):
            response = self._transport.handle_request(request)
            try:
                status, said = response.status_code, response.headers
                retry_after = retry_after_seconds(said.get("retry-after"))
                failure = failure_of(status, retry_after, leads_elsewhere=bool(said.get("location")))
                return status, _beginning(response), failure
            finally:
                response.close()

    def _check(self, url: str) -> httpx2.URL:
        import httpx2

        self._guard.check_url(url)
        return httpx2.URL(url)


def headers_of(target: Target, body: bytes, message_id: str, idempotency_key: str, timestamp: int) -> dict[str, str]:
    """The headers of an attempt at a moment (Unix seconds). Raises ValueError when a secret is empty."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(sign_standard(message_id, timestamp, body, secret) for secret in target.secrets),
        target.signature_header: sign_timestamped(timestamp, body, target.secrets),
        "X-Webhook-ID": message_id,
        "X-Idempotency-Key": idempotency_key,
    }
    if target.replay:
        headers["X-Replay-Id"] = target.replay.id
        headers["X-Replay-Attempt"] = str(target.replay.attempt)
        headers["X-Original-Timestamp"] = str(target.replay.original_timestamp)
    return headers


def failure_of(status: int, retry_after: float | None, *, leads_elsewhere: bool = False) -> Failure | None:
    """What an endpoint's status means: passing (408, 409, 425, 429, 5xx), for ever (all else), or accepted (2xx).

    `leads_elsewhere`: it names a `Location`; a 3xx without one, and 304, is no redirect.
    """
    if 200 <= status < 300:
        return None
    try:
        text = f"HTTP {status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        text = f"HTTP {status}"
    if status in _PASSING or status >= 500:
        error_class = "throttled" if status == 429 else "unavailable"
        return Failure(FailureKind.TRANSIENT, error_class, text, status, retry_after)
    if status == 410:
        return Failure(FailureKind.PERMANENT, "gone", f"{text}: the endpoint says that it is no more", status)
    if 300 <= status < 400 and status != 304 and leads_elsewhere:
        text += ": redirects are not followed; change the endpoint's URL to where it leads"
        return Failure(FailureKind.PERMANENT, "redirected", text, status)
    return Failure(FailureKind.PERMANENT, "rejected", text, status)


def _of_transport(error: Exception) -> Failure:
    """DNS, TCP, TLS, silence, a broken connection: passing; what the guard refuses, and what is no answer at all, by class."""
    failure = classify(error)
    return failure if failure.kind is FailureKind.PERMANENT else replace(failure, kind=FailureKind.TRANSIENT)


def _beginning(response: httpx2.Response) -> str:
    """The text of an answer as far as it came: what goes wrong behind the status changes nothing of it."""
    import httpx2

    read = bytearray()
    try:
        for chunk in response.stream:  # type: ignore[union-attr]
            read += chunk[: BODY_LIMIT - len(read)]
    except httpx2.HTTPError:
        pass
    return bytes(read).decode("utf-8", "replace")


def _struck_out(text: str, target: Target) -> str:
    if len(text) >= _SHORTEST_SECRET:
        for secret in _secrets_of(target):
            for spelling in _spellings(secret):
                text = text.replace(spelling, "***")
    return presentable(text)


def _secrets_of(target: Target) -> list[str]:
    """The longest first; of a header's value also its words, since who refuses a token may name it without `Bearer`."""
    bare = [secret.removeprefix(PREFIX) for secret in target.secrets]
    words = [word for value in target.headers.values() for word in value.split()]
    found = {*target.secrets, *bare, *target.headers.values(), *words}
    return sorted((secret for secret in found if len(secret) >= _SHORTEST_SECRET), key=len, reverse=True)


def _spellings(secret: str) -> set[str]:
    """As it is, and as a page, an address or JSON would repeat it."""
    in_json = json.dumps(secret)[1:-1]
    return {secret, html.escape(secret), quote(secret, safe=""), in_json, in_json.replace("/", "\\/")}


def _since(began: float) -> float:
    return (boot_clock() - began) * 1000
