"""Outbound HTTP: a transport for httpx2 in which every call has an end and every answer a greatest size.

Both SDKs go through it. Importing this module loads httpx2; the clock and `deadline` alone are in `deadline.py`.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import httpcore2
import httpx2

from shared.clients.deadline import Call, TooLate, boot_clock, current_call, deadline, limits
from shared.clients.guard import Guard
from shared.clients.network import DeadlineBackend

__all__ = ["BODY_LIMIT", "DeadlineTransport", "ResponseTooLarge", "TooLate", "boot_clock", "deadline"]

BODY_LIMIT = 4 * 1024 * 1024  # bytes
CALL_SECONDS = 30.0
_IDLE_SECONDS = 5.0  # shorter than any server's own limit, so that a reused connection is seldom a dead one

_LOW_LEVEL = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
    httpcore2.ProxyError,
)


class ResponseTooLarge(httpx2.TransportError):
    """The answer's body is larger than the limit; what had come was thrown away."""


class DeadlineTransport(httpx2.BaseTransport):
    """HTTP/1.1 over connections that keep the limits of the current `deadline()`.

    Outside a `deadline()` block a call gets `call_seconds`. `keep_alive=False` gives each request a connection of its
    own: a reused one that the server had just closed fails as if the request may have been acted on. Errors are those
    of httpx2's own transport (ConnectError, ReadTimeout, …); besides `TooLate` and `ResponseTooLarge`. Proxies of the
    environment are not used. With a `guard`, only addresses that it admits are connected to. The look-up of a host's name is
    the one wait that cannot be limited (see network.py).
    """

    def __init__(
        self,
        *,
        keep_alive: bool = True,
        body_limit: int = BODY_LIMIT,
        call_seconds: float = CALL_SECONDS,
        ssl_context: ssl.SSLContext | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._keep_alive = keep_alive
        self._body_limit = body_limit
        self._call_seconds = call_seconds
        self._pool = httpcore2.ConnectionPool(
            ssl_context=ssl_context or _default_context(),
            max_connections=None,
            max_keepalive_connections=20,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=DeadlineBackend(guard),
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; the body of the answer is read, within the same limits, by who iterates it."""
        call = current_call() or Call(boot_clock() + self._call_seconds)
        call.at_first_write = True
        sent = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=self._headers(request),
            content=request.stream,
            extensions=request.extensions,
        )
        with _errors_of_httpx2(), limits(call):
            answer = self._pool.handle_request(sent)
        body = _Body(answer.stream, call, self._body_limit, _encoding(answer.headers))
        dropped = body.decoded_headers
        headers = [(name, value) for name, value in answer.headers if name.lower() not in dropped]
        return httpx2.Response(answer.status, headers=headers, stream=body, extensions=answer.extensions)

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def _headers(self, request: httpx2.Request) -> list[tuple[bytes, bytes]]:
        """The request's headers; a compressed answer is not wanted, since its size says little."""
        ours = [(b"Accept-Encoding", b"identity")]
        if not self._keep_alive:
            ours.append((b"Connection", b"close"))
        names = {name.lower() for name, _ in ours}
        return [(name, value) for name, value in request.headers.raw if name.lower() not in names] + ours


@cache
def _default_context() -> ssl.SSLContext:
    """One for all transports: reading the certificates takes long."""
    return httpx2.create_ssl_context()


class _Body(httpx2.SyncByteStream):
    """An answer's body: read within the call's limits, unpacked here, at most `limit` bytes then."""

    def __init__(self, raw: object, call: Call, limit: int, encoding: bytes) -> None:
        assert isinstance(raw, Iterable)
        self._raw: Iterable[bytes] = raw
        self._call = call
        self._limit = limit
        # Unpacked here and not by httpx2, because 4 MiB of gzip can hold 4 GiB.
        self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in (b"gzip", b"x-gzip", b"deflate") else None
        self.decoded_headers = {b"content-encoding", b"content-length"} if self._unpack else set[bytes]()

    def __iter__(self) -> Iterator[bytes]:
        size, chunks = 0, iter(self._raw)
        while True:
            with _errors_of_httpx2(), limits(self._call):
                chunk = next(chunks, None)
            if chunk is None:
                break
            if self._unpack:
                chunk = _unpacked(self._unpack, chunk, self._limit - size + 1)
            size += len(chunk)
            if size > self._limit:
                raise ResponseTooLarge(f"the answer is larger than {self._limit} bytes")
            yield chunk
        if self._unpack and (not self._unpack.eof or self._unpack.unused_data):
            raise httpx2.DecodingError("the compressed answer ends too early, or goes on behind its end")

    def close(self) -> None:
        close = getattr(self._raw, "close", None)
        if close is not None:
            with limits(self._call):
                close()


def _unpacked(unpack: zlib._Decompress, chunk: bytes, at_most: int) -> bytes:
    try:
        return unpack.decompress(chunk, at_most)
    except zlib.error as error:
        raise httpx2.DecodingError(str(error)) from error


def _encoding(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return next((value.strip().lower() for name, value in headers if name.lower() == b"content-encoding"), b"")


@contextmanager
def _errors_of_httpx2() -> Iterator[None]:
    """Raise httpcore2's errors as httpx2's of the same name, the most specific one, as httpx2's own transport does."""
    try:
        yield
    except _LOW_LEVEL as error:
        raise _same_of_httpx2(type(error))(str(error)) from error


def _same_of_httpx2(kind: type[Exception]) -> type[httpx2.TransportError]:
    """The most specific error of httpx2 that has the name of `kind` or of one of its bases."""
    for base in kind.__mro__:
        same = getattr(httpx2, base.__name__, None)
        if isinstance(same, type) and issubclass(same, httpx2.TransportError):
            return same
    return httpx2.TransportError
