"""A receiver of deliveries in a process of its own that costs next to nothing: it reads, and accepts at once, or never answers.

`/hang…` is never answered; everything else is, with 204.
"""

from __future__ import annotations

import asyncio
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

ACCEPTED = b"HTTP/1.1 204 No Content\r\n\r\n"


class Receiver:
    """A context manager; `url` has no slash at its end."""

    def __enter__(self) -> Self:
        here, there = get_context("spawn").Pipe()
        self._process = get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
        self._process.start()
        self.url = f"http://127.0.0.1:{here.recv()}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.join(10)


class _Requests(asyncio.Protocol):
    """Reads requests with a content-length, one after another."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, rest = self._buffer.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            if not head.startswith(b"POST /hang"):
                self._transport.write(ACCEPTED)


def _serve(there: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Requests, "127.0.0.1", 0)
        there.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())
