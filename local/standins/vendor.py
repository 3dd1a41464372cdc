"""A stand-in for an AI vendor that reports by webhook: it signs as Standard Webhooks asks (OpenAI and Azure OpenAI sign so),
and tries again while nobody accepts.

It also sends what vendors and strangers send by mistake or on purpose: the same event many times at once, an id that was used
for something else, a wrong signature, an old one, and a body that no parser likes.
"""

from __future__ import annotations

import json
import secrets as random_source
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import httpx2

from shared.signature import new_secret, sign_standard

type How = Literal["as usual", "many", "changed", "forged", "old", "poison"]
HOWS: tuple[How, ...] = get_args(How.__value__)
# Each with the id of what it is about, as the vendor names such things.
TYPES = {
    "response.completed": "resp",
    "response.failed": "resp",
    "batch.completed": "batch",
    "batch.failed": "batch",
    "fine_tuning.job.succeeded": "ftjob",
    "audio.transcription.done": "trans",  # one that the gateway has never heard of
}
PAUSES = (1.0, 3.0, 10.0, 30.0)  # seconds between tries; a real vendor goes on for days
COPIES = 20
SECONDS_TO_CONNECT, SECONDS_TO_ANSWER = 2.0, 15.0
KEPT = 200
HOUR = 3600
_DEEP = 100_000


@dataclass(frozen=True, slots=True)
class Try:
    """One request: the status that was answered, or None and what went wrong; `time` is Unix seconds."""

    status: int | None
    error: str | None
    duration_ms: float
    time: float


@dataclass(slots=True)
class Sent:
    """One event and what became of sending it. `message_id` is `webhook-id`, the same in every try."""

    message_id: str
    event_id: str
    type: str
    how: How
    time: float
    tries: list[Try] = field(default_factory=list)
    is_over: bool = False

    @property
    def is_accepted(self) -> bool:
        """Whether it was answered with 2xx."""
        return any(tried.status is not None and 200 <= tried.status < 300 for tried in self.tries)


class Vendor:
    """Sends events to `url`, signed with `secret`; both may be set later. Remembers the newest 200."""

    def __init__(self, url: str = "", secret: str = "", *, pauses: Sequence[float] = PAUSES) -> None:
        self.url, self.secret, self.pauses = url, secret, pauses
        self._sent: deque[Sent] = deque(maxlen=KEPT)
        # A vendor keeps no connection either: one that was closed while idle would look like a failed try.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        timeout = httpx2.Timeout(SECONDS_TO_ANSWER, connect=SECONDS_TO_CONNECT)
        self._client = httpx2.Client(timeout=timeout, limits=limits, trust_env=False)
        self._pool = ThreadPoolExecutor(2 * COPIES, "vendor")
        self._closing = threading.Event()

    @property
    def sent(self) -> list[Sent]:
        """What was sent, oldest first."""
        return list(self._sent)

    def send(self, event_type: str = "response.completed", how: How = "as usual") -> Sent:
        """Begin to send an event, in other threads; what is returned tells how far that is."""
        now = time.time()
        sent = Sent(f"wh_{random_source.token_hex(16)}", f"evt_{random_source.token_hex(16)}", event_type, how, now)
        self._sent.append(sent)
        body = _body(sent)
        match how:
            case "as usual":
                self._pool.submit(self._insist, sent, body)
            case "many":
                together = threading.Barrier(COPIES)
                for _ in range(COPIES):
                    self._pool.submit(self._once, sent, body, together=together)
            case "changed":
                self._pool.submit(self._change, sent, body)
            case "forged":
                self._pool.submit(self._once, sent, body, secret=new_secret())
            case "old":
                self._pool.submit(self._once, sent, body, at=now - HOUR)
            case "poison":
                for number, poison in enumerate(poisons(sent)):
                    self._pool.submit(self._once, sent, poison, message_id=f"{sent.message_id}_{number}")
        return sent

    def close(self) -> None:
        """Stop; what is not accepted yet never will be."""
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    def _insist(self, sent: Sent, body: bytes) -> None:
        for pause in (*self.pauses, None):
            status = self._try(sent, body)
            if (status is not None and 200 <= status < 300) or pause is None or self._closing.wait(pause):
                break
        sent.is_over = True

    def _change(self, sent: Sent, body: bytes) -> None:
        self._try(sent, body)
        self._try(sent, body.replace(b'"object":"event"', b'"object":"other"'))
        sent.is_over = True

    def _once(self, sent: Sent, body: bytes, *, together: threading.Barrier | None = None, **how: Any) -> None:
        if together is not None:
            together.wait(SECONDS_TO_ANSWER)
        self._try(sent, body, **how)
        sent.is_over = True

    def _try(
        self,
        sent: Sent,
        body: bytes,
        *,
        secret: str | None = None,
        at: float | None = None,
        message_id: str | None = None,
    ) -> int | None:
        """POST it; the status, or None if no answer came."""
        named, began = message_id or sent.message_id, time.time()
        timestamp = int(began if at is None else at)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "AI-Vendor-Webhooks/1",
            "webhook-id": named,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign_standard(named, timestamp, body, secret or self.secret),
        }
        status: int | None = None
        error: str | None = None
        try:
            status = self._client.post(self.url, content=body, headers=headers).status_code
        except (httpx2.HTTPError, httpx2.InvalidURL, RuntimeError) as wrong:
            error = type(wrong).__name__
        sent.tries.append(Try(status, error, (time.time() - began) * 1000, began))
        return status


def _body(sent: Sent) -> bytes:
    about = f"{TYPES.get(sent.type, 'obj')}_{random_source.token_hex(12)}"
    event = {
        "id": sent.event_id, "object": "event", "created_at": int(sent.time), "type": sent.type, "data": {"id": about},
    }  # fmt: skip
    return json.dumps(event, separators=(",", ":")).encode()


def poisons(sent: Sent) -> list[bytes]:
    """Bodies that no parser likes, each with this event's type and id."""
    head = b'{"id":"%b","type":"%b","data":' % (sent.event_id.encode(), sent.type.encode())
    return [
        head + b"[" * _DEEP + b"]" * _DEEP + b"}",  # nested deeply
        head + b'{"n":' + b"9" * 5_000 + b"}}",  # a number of 5,000 digits
        head + b'{"n":1e999999}}',
        head + b'{"a":1,"a":2},"type":"response.failed"}',  # the same key twice
        head + b'{"a":"\\u0000"}}',  # what Postgres cannot hold
        head + b'{"a":"\\ud800"}}',  # half a character
        head + b'{"a":"\xff\xfe"}}',  # no UTF-8
        head[:-8],  # half a body
        b"",
        b"null",
    ]
