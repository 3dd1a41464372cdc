"""The ASGI application that turns HTTP requests into runs of HTTP-triggered functions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from local.functions.cookies import set_cookie
from local.functions.protos import RpcHttp, TypedData
from local.functions.routes import Route, RouteTable
from local.functions.urls import decode_path, encode_path, join_repeated
from local.functions.worker import Function, Outcome, Worker, new_trace_parent

log = logging.getLogger("local.host")

MAX_BODY_BYTES = 100 * 1024 * 1024  # the cloud's limit

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the client."""

    status: int
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


class TooLarge(Exception):
    """The body is over the limit."""


class Disconnected(Exception):
    """The client went away before its request was complete."""


class HttpFrontend:
    """Serves the HTTP triggers among `functions` below `/prefix`."""

    def __init__(
        self, worker: Worker, functions: Iterable[Function], prefix: str, *, max_body: int = MAX_BODY_BYTES
    ) -> None:
        self._worker = worker
        self._max_body = max_body
        self._routes = RouteTable(
            (_route(function, prefix), function) for function in functions if function.kind == "httpTrigger"
        )

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = _headers(scope["headers"])
        try:
            body = await read_body(headers, receive, self._max_body)
            answer = await self._handle(scope, headers, body)
        except Disconnected:
            return
        except TooLarge:
            answer = Answer(413)
        except asyncio.CancelledError:  # the server's grace is over; the run itself goes on until the process ends
            answer = Answer(500)
        sent = answer.headers
        has_body = answer.status >= 200 and answer.status not in (204, 304)
        if has_body and not any(name == b"content-length" for name, _value in sent):
            sent = [*sent, (b"content-length", b"%d" % len(answer.body))]
        await send({"type": "http.response.start", "status": answer.status, "headers": sent})
        await send({"type": "http.response.body", "body": answer.body if has_body else b""})

    async def _handle(self, scope: Event, headers: dict[str, str], body: bytes) -> Answer:
        path = decode_path(scope["raw_path"].decode("latin-1"))
        found = self._routes.find(scope["method"], path[1:])
        if found is None:
            return Answer(404)
        function, parameters = found
        if body and "content-length" not in headers:
            log.warning("%s got a body without Content-Length, which the cloud's host passes on empty", function.name)
        query = scope["query_string"].decode("latin-1")
        scheme = headers.get("x-forwarded-proto") or scope["scheme"]
        # Empty parameters are dropped, as by the cloud's host; the URL has them all.
        fields = join_repeated(parse_qsl(query)) if query else {}
        request = RpcHttp(
            method=scope["method"],
            url=f"{scheme}://{headers.get('host', '')}{encode_path(path)}{'?' if query else ''}{query}",
            headers=headers,
            params=parameters,
            query=fields,
            body=TypedData(bytes=body) if body else TypedData(),
        )
        trace = (headers.get("traceparent") or new_trace_parent(), headers.get("tracestate", ""))
        return to_answer(await self._worker.invoke(function, TypedData(http=request), trace=trace))


async def read_body(headers: dict[str, str], receive: Receive, limit: int) -> bytes:
    """The whole body. Raises TooLarge (over `limit` bytes, announced or sent) or Disconnected."""
    if int(headers.get("content-length", 0)) > limit:
        raise TooLarge
    chunks: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Disconnected
        chunk = event.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise TooLarge
        chunks.append(chunk)
        if not event.get("more_body"):
            return b"".join(chunks)


def to_answer(outcome: Outcome) -> Answer:
    """A function's result as HTTP: a failure is a 500 that tells the client nothing."""
    if not outcome.ok:
        return Answer(500)
    value = outcome.value
    if value is None:
        return Answer(200)
    if value.kind != "http":  # a function that returns a plain string
        return Answer(200, [(b"content-type", b"text/plain; charset=utf-8")], str(value.value).encode())
    response: RpcHttp = value.value
    headers = [
        (name.lower().encode("latin-1"), text.encode("latin-1", "replace"))
        for name, text in response.headers.items()
        if name.lower() != "transfer-encoding"
    ]
    headers += [(b"set-cookie", set_cookie(cookie).encode("latin-1", "replace")) for cookie in response.cookies or ()]
    body = response.body.value or b""
    return Answer(int(response.status_code), headers, body.encode() if isinstance(body, str) else body)


def _route(function: Function, prefix: str) -> Route:
    own = str(function.trigger.get("route", function.name)).strip("/")
    return Route.parse("/".join(part for part in (prefix, own) if part), function.trigger.get("methods"))


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case, repeated ones joined."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name = raw_name.decode("latin-1").lower()
        try:
            value = raw_value.decode()
        except UnicodeDecodeError:
            value = raw_value.decode("latin-1")
        joint = "; " if name == "cookie" else ","
        headers[name] = f"{headers[name]}{joint}{value}" if name in headers else value
    return headers
