"""Load on one host: requests one after another, or at a fixed rate whatever the answers (an open loop). Keep-alive, raw sockets.

A request's time in the open loop counts from the moment that it was due, not from when a free connection was found: a stall
then costs every request that it held up.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType
from typing import Self
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from twilio.request_validator import RequestValidator  # type: ignore[import-untyped]

from bench.lab import BenchFailed
from local.standins.twilio import ACCOUNT_SID, AUTH_TOKEN, WHATSAPP_FROM
from local.standins.twilio_callbacks import inbound_form
from local.standins.twilio_messages import Message
from shared.signature import sign_standard

INBOUND = "/api/twilio/inbound"
FORM = "application/x-www-form-urlencoded; charset=UTF-8"
READ_SECONDS = 30.0
CONNECTIONS = 32  # of the open loop: above the host's own threads


class Connection:
    """One kept connection to a host on loopback; a context manager."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 80), READ_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> int:
        """Send one request and read the whole answer; its status. Raises BenchFailed when the host hangs up."""
        self._socket.sendall(request)
        answer = b""
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self._more()
        head = answer[:end].lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
        while len(answer) < end + 4 + length:
            answer += self._more()
        return int(head.split(b" ", 2)[1])

    def _more(self) -> bytes:
        if piece := self._socket.recv(65536):
            return piece
        raise BenchFailed("The host closed the connection in the middle of an answer.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


def webhook(url: str, address: str, text: str) -> bytes:
    """A whole request as Twilio posts an inbound message, signed; `address` is the employee's number in E.164."""
    now = time.time()
    message = Message(
        f"SM{uuid4().hex}", f"whatsapp:{address}", WHATSAPP_FROM, text, "inbound", "received", now, now
    )  # fmt: skip
    form = inbound_form(ACCOUNT_SID, message, "Bench", None)
    signature = RequestValidator(AUTH_TOKEN).compute_signature(url + INBOUND, dict(form))
    return post(url, INBOUND, urlencode(form).encode(), f"X-Twilio-Signature: {signature}\r\n")


def vendor_event(url: str, source: str, secret: str) -> bytes:
    """A whole request as OpenAI posts an event, signed now; the source takes Standard Webhooks."""
    now, identity = int(time.time()), f"wh_{uuid4().hex}"
    body = json.dumps({
        "id": f"evt_{uuid4().hex}", "object": "event", "created_at": now, "type": "response.completed",
        "data": {"id": f"resp_{uuid4().hex}"},
    }).encode()  # fmt: skip
    headers = (
        f"webhook-id: {identity}\r\nwebhook-timestamp: {now}\r\n"
        f"webhook-signature: {sign_standard(identity, now, body, secret)}\r\n"
    )
    return post(url, f"/api/events/{source}", body, headers, content_type="application/json")


def post(url: str, path: str, body: bytes, headers: str = "", *, content_type: str = FORM) -> bytes:
    """A whole request, with a form unless said otherwise."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nUser-Agent: TwilioProxy/1.1\r\nAccept: */*\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    )
    return head.encode() + body


class Sender:
    """A process of its own that sends, so that nothing in the bench's process competes with it; a context manager."""

    def __enter__(self) -> Self:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        self._pool.submit(time.sleep, 0).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def one_by_one(self, url: str, requests: Sequence[bytes], pause: float = 0.0) -> list[float]:
        """The seconds of each request, each sent `pause` seconds after the answer to the one before.

        Raises BenchFailed unless all get 200.
        """
        return _well(self._pool.submit(one_by_one, url, requests, pause).result())

    def at_rate(self, url: str, requests: Sequence[bytes], rate: float) -> list[float]:
        """The seconds of each request from when it was due, `rate` of them a second. Raises BenchFailed unless all get 200."""
        return _well(self._pool.submit(at_rate, url, requests, rate).result())


def one_by_one(url: str, requests: Sequence[bytes], pause: float = 0.0) -> list[tuple[int, float]]:
    """Send requests one after another over one kept connection; status and seconds of each."""
    answers = []
    with Connection(url) as connection:
        for request in requests:
            began = time.perf_counter()
            status = connection.ask(request)
            answers.append((status, time.perf_counter() - began))
            time.sleep(pause)
    return answers


def at_rate(url: str, requests: Sequence[bytes], rate: float) -> list[tuple[int, float]]:
    """Send requests at fixed moments over 32 kept connections; status and seconds since it was due of each."""
    answers: list[tuple[int, float]] = [(0, 0.0)] * len(requests)
    turns, begins = itertools.count(), time.perf_counter() + 0.1

    def send() -> None:
        with Connection(url) as connection:
            while (turn := next(turns)) < len(requests):  # next() of a counter is one step for all threads
                due = begins + turn / rate
                time.sleep(max(due - time.perf_counter(), 0.0))
                status = connection.ask(requests[turn])
                answers[turn] = (status, time.perf_counter() - due)

    senders = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    return answers


def _well(answers: Sequence[tuple[int, float]]) -> list[float]:
    if wrong := [status for status, _ in answers if status != 200]:
        raise BenchFailed(f"The host answered {wrong[0]} to {len(wrong)} of {len(answers)} requests of the bench.")
    return [seconds for _, seconds in answers]
