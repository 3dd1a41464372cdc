"""The console as an ASGI application below /api/ops. Its handlers are plain functions, run in few threads.

The event loop reads the body up to its limit and does nothing else: sign-in, forms, SQL and templates happen in one of
DB_POOL_MAX − 1 threads, so that the console cannot take every connection from the webhooks and the jobs.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import anyio
import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Match
from starlette.routing import Route as Pattern

from shared import telemetry
from shared.ops.desk import NO_PAGE, NO_SUCH_METHOD, Desk
from shared.ops.files import static_files
from shared.ops.headers import FOR_GOOD, HEADERS, NO_STORE
from shared.ops.incoming import Incoming
from shared.ops.routes import PREFIX, Route
from shared.ops.table import TABLE
from shared.ops.visit import Services

type Message = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]


class Console:
    """An ASGI application; `limiter` bounds its threads."""

    def __init__(self, services: Services) -> None:
        self._desk = Desk(services)
        self._threads = max(services.settings.db_pool_max - 1, 1)
        self._routes = [(Pattern(PREFIX + route.path, _never, methods=[route.method]), route) for route in TABLE]

    @functools.cached_property
    def limiter(self) -> anyio.CapacityLimiter:
        """Made inside the event loop that uses it."""
        return anyio.CapacityLimiter(self._threads)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request. There is no start-up: a `lifespan` is refused, which servers take for none."""
        if scope["type"] != "http":
            raise NotImplementedError(f"no {scope['type']} here")
        try:
            response = await self._answer(scope, receive)
        except Exception as error:  # noqa: BLE001 - not even the page of a failure could be made
            telemetry.error("console_failed", path=scope["path"], error_class=type(error).__name__)
            response = PlainTextResponse("Something went wrong here.", 500)
        headers = MutableHeaders(raw=response.raw_headers)
        headers.update(HEADERS)
        headers.setdefault("Cache-Control", NO_STORE)
        await response(scope, receive, send)

    async def _answer(self, scope: Message, receive: Receive) -> Response:
        path = scope["path"].rstrip("/")
        if path.startswith(f"{PREFIX}/static/"):
            return _static(path)
        incoming = Incoming(
            scope["method"], scope["scheme"], path, scope["query_string"].decode("latin-1"), Headers(scope=scope)
        )
        route, parameters = self._match({**scope, "path": path})
        body = b"" if incoming.method in ("GET", "HEAD") else await _body(incoming.headers, receive, route.limit)
        work: Callable[[], Response]
        if body is None:
            work = functools.partial(self._desk.refuse_size, incoming, route.limit)
        else:
            work = functools.partial(self._desk.answer, replace(incoming, body=body, parameters=parameters), route)
        return await anyio.to_thread.run_sync(work, limiter=self.limiter)

    def _match(self, scope: Message) -> tuple[Route, dict[str, Any]]:
        """The route and its parameters; for an address that is none, or not by this method, one that says so."""
        nearest = NO_PAGE
        for pattern, route in self._routes:
            match, found = pattern.matches(scope)
            if match is Match.FULL:
                return route, found["path_params"]
            if match is Match.PARTIAL:
                nearest = NO_SUCH_METHOD
        return nearest, {}


def _static(path: str) -> Response:
    found = static_files().get(unquote(path.removeprefix(f"{PREFIX}/static/")))
    if found is None:
        return PlainTextResponse("There is no such file.", 404)
    return Response(found.content, media_type=found.kind, headers={"Cache-Control": FOR_GOOD})


async def _body(headers: Headers, receive: Receive, limit: int) -> bytes | None:
    """The body; None when it is, or says that it is, larger than `limit` bytes."""
    announced = headers.get("content-length", "0")
    if not announced.isdecimal() or len(announced) > 12 or int(announced) > limit:
        return None
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > limit:
            return None
        if not message.get("more_body"):
            return bytes(body)


def _never(_: object) -> None:
    """Starlette's patterns want an endpoint; ours are called with a Visit instead."""
