"""The HTTP server: uvicorn with h11, on a socket of ours, without its own handling of signals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator

import uvicorn

from local.functions.errors import USAGE, CannotStart
from local.functions.http import HttpFrontend

HOST = "127.0.0.1"
BACKLOG = 2048
KEEP_ALIVE_SECONDS = 130  # as the cloud's web server


def open_socket(port: int) -> socket.socket:
    """A listening socket on loopback; port 0 takes a free one. Raises CannotStart when the port cannot be had.

    Ours, because uvicorn answers a taken port with sys.exit in a task. The protocol is named because asyncio switches
    Nagle's algorithm off only then; otherwise every request on a kept connection takes 40 ms.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(BACKLOG)  # now, so that nobody else gets the port while the app is loaded
    except OSError as error:
        listening.close()
        reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        raise CannotStart(f"port {port} {reason}; give another with --port", USAGE) from error
    return listening


class Server(uvicorn.Server):
    """Serves the app; `answers` is set once it does."""

    def __init__(self, app: HttpFrontend, grace_seconds: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                loop="asyncio",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=grace_seconds,
            )
        )
        self.answers = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone: uvicorn would raise them again at its end, before the clean-up is done."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self.answers.set()
