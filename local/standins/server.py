"""The server under every stand-in: a thread with an HTTP server on loopback, recorded requests and faults.

An operation is a plain function from `Call` to a response. Around it this file records the request, waits, and lets
a fault strike, so that an operation knows nothing of failing networks.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from typing import Any, Self

import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from local.standins.faults import BadRule, Fault, FaultPlan, read_rule
from shared.errors import UserError

REQUESTS_KEPT = 2000
SECONDS_TO_START = 10.0


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request as it came in. Of a repeated form field `form` has the last value, `pairs` all; `time` is Unix."""

    where: str
    method: str
    path: str
    query: str
    form: dict[str, str]
    pairs: list[tuple[str, str]]
    json: Any
    time: float


@dataclass(slots=True)
class Call:
    """What an operation gets: the request with its whole body read, and a fault that it must act out itself."""

    request: Request
    body: bytes
    pairs: list[tuple[str, str]] = field(default_factory=list)
    json: Any = None
    fault: Fault | None = None

    @property
    def form(self) -> dict[str, str]:
        """The form; of a repeated field the last value."""
        return dict(self.pairs)


Operation = Callable[[Call], Response]


class StandIn:
    """A context manager that serves `routes()` on 127.0.0.1; port 0 takes a free one.

    Raises UserError when the port is in use.
    """

    def __init__(self, *, port: int = 0, faults: FaultPlan | None = None) -> None:
        self.faults = faults or FaultPlan()
        self.port = port
        self._recorded: deque[RecordedRequest] = deque(maxlen=REQUESTS_KEPT)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._more_routes: list[BaseRoute] = []

    @property
    def url(self) -> str:
        """Scheme, host and port, no slash."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[RecordedRequest]:
        """The last 2,000 requests, oldest first."""
        return list(self._recorded)

    def add_routes(self, routes: list[Route]) -> None:
        """Serve more on the same port; before `start`."""
        self._more_routes.extend(routes)

    def routes(self) -> list[BaseRoute]:
        """The stand-in's own routes."""
        raise NotImplementedError

    def failure(self, status: int, code: int | str | None) -> Response:
        """The service's own way of saying that a request failed."""
        raise NotImplementedError

    def clock(self) -> float:
        """The time in the answers' `Date` header, in Unix seconds."""
        return time.time()

    def start(self) -> Self:
        """Bind and serve; returns when requests are answered."""
        listener = _listen(self.port)
        self.port = listener.getsockname()[1]
        own = [
            Route("/_requests", self._show_requests, methods=["GET", "DELETE"]),
            Route("/_faults", self._change_faults, methods=["GET", "POST", "DELETE"]),
        ]
        app = Starlette(routes=[*own, *self._more_routes, *self.routes()])
        config = uvicorn.Config(
            app, http=Connection, loop="asyncio", lifespan="off", ws="none", log_config=None, log_level="critical",
            access_log=False, timeout_graceful_shutdown=0, date_header=False,
        )  # fmt: skip
        self._server = server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name=type(self).__name__, daemon=True
        )
        self._thread.start()
        limit = time.monotonic() + SECONDS_TO_START
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > limit:
                raise UserError(f"The stand-in {type(self).__name__} did not start on {self.url}.")
            time.sleep(0.005)
        return self

    def stop(self) -> None:
        """Stop serving; requests that still run are cut off."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(10)
            self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def operation(
        self, where: str, act: Operation, *, delay: Callable[[], float] | None = None
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that records, waits `delay()` seconds, and acts; unless a fault for `where` says otherwise."""

        async def endpoint(request: Request) -> Response:
            call = await _read(request)
            path, query = request.url.path, request.url.query
            self._recorded.append(
                RecordedRequest(where, request.method, path, query, call.form, call.pairs, call.json, time.time())
            )
            if delay is not None and (seconds := delay()) > 0:
                await asyncio.sleep(seconds)
            fault = self.faults.take(where)
            if fault is None:
                response = await anyio.to_thread.run_sync(act, call)
            else:
                response = await self._fail(fault, act, call)
            response.headers["Date"] = formatdate(self.clock(), usegmt=True)
            return response

        return endpoint

    async def _fail(self, fault: Fault, act: Operation, call: Call) -> Response:
        if fault.do == "status":
            response = self.failure(fault.status, fault.code)
            response.headers.update(fault.headers)
            return response
        if fault.do == "drop_before":
            await asyncio.sleep(fault.seconds)
            return HangUp()
        call.fault = fault
        response = await anyio.to_thread.run_sync(act, call)
        if fault.do == "status_after":
            return self.failure(fault.status, fault.code)
        if fault.do in ("slow", "drop_after"):
            await asyncio.sleep(fault.seconds)
        if fault.do == "drop_after":
            return HangUp()
        body = bytes(response.body)
        if fault.do == "broken_body":
            return Response(body[: len(body) // 2], response.status_code, media_type=response.media_type)
        if fault.do == "drip":
            headers = {name: value for name, value in response.headers.items() if name != "content-type"}
            return StreamingResponse(
                _drip(body, fault.seconds), response.status_code, headers, response.headers.get("content-type")
            )
        return response

    async def _show_requests(self, request: Request) -> Response:
        if request.method == "DELETE":
            self._recorded.clear()
            return Response(status_code=204)
        return JSONResponse([asdict(item) for item in self._recorded])

    async def _change_faults(self, request: Request) -> Response:
        if request.method == "DELETE":
            where, rule_id = request.query_params.get("where"), request.query_params.get("id")
            if rule_id is not None and not rule_id.isdecimal():
                return JSONResponse({"error": "id must be a number"}, 400)
            self.faults.clear(where=where, rule_id=int(rule_id) if rule_id is not None else None)
            return Response(status_code=204)
        if request.method == "POST":
            try:
                given = json.loads(await request.body())
                rules = [read_rule(item) for item in (given if isinstance(given, list) else [given])]
            except (BadRule, ValueError, AttributeError, TypeError) as wrong:
                return JSONResponse({"error": str(wrong)}, 400)
            return JSONResponse([self.faults.put(rule).as_dict() for rule in rules], 201)
        return JSONResponse([rule.as_dict() for rule in self.faults.rules()])


class Connection(H11Protocol):
    """uvicorn's connection, which can be found again by its two ends, to be closed without an answer."""

    open: dict[tuple[Any, Any], Connection] = {}  # noqa: RUF012 - one table for all servers, keyed by both ends

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.open[(self.server, self.client)] = self

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.pop((self.server, self.client), None)
        super().connection_lost(exc)


class HangUp(Response):
    """Closes the connection instead of answering."""

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Message]], _send: Any) -> None:
        connection = Connection.open.get((scope["server"], scope["client"]))
        if connection is not None:
            connection.transport.close()
        while (await receive())["type"] != "http.disconnect":
            pass


async def _drip(body: bytes, seconds: float) -> AsyncIterator[bytes]:
    for index in range(len(body)):
        await asyncio.sleep(seconds)
        yield body[index : index + 1]


async def _read(request: Request) -> Call:
    """The body, and what it says: a form or JSON; neither is an error here."""
    body = await request.body()
    call = Call(request, body)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        call.pairs = urllib.parse.parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    elif kind == "application/json":
        try:
            call.json = json.loads(body)
        except (ValueError, RecursionError):
            call.json = None
    return call


def _listen(port: int) -> socket.socket:
    # The protocol must be named: asyncio sets TCP_NODELAY only then, and without it each answer waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as wrong:
        listener.close()
        raise UserError(f"Port {port} is in use; choose another one or stop what uses it.") from wrong
    return listener
