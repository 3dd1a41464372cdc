"""Sockets that keep a call's limits: the network backend under DeadlineTransport.

Why not httpcore2's own: there each address that is tried, each read and each part of a write gets the whole timeout
anew, so that a server that drips bytes keeps a call for as long as it likes.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore2

from shared.clients.deadline import Call, TooLate, boot_clock, current_call
from shared.clients.guard import Guard

_CALL_SECONDS_WITHOUT_LIMITS = 30.0


def _call() -> Call:
    return current_call() or Call(boot_clock() + _CALL_SECONDS_WITHOUT_LIMITS)


class DeadlineBackend(httpcore2.NetworkBackend):
    """Opens TCP connections within the limits of the current call, to addresses that the guard admits, if there is one."""

    def __init__(self, guard: Guard | None = None) -> None:
        self._guard = guard

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,  # noqa: ARG002  # the interface has it; no call of ours uses it
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore2.NetworkStream:
        """Connect to the first address that answers; the addresses share the time.

        Looking up the name cannot be limited: the system's resolver has its own limits (commonly 5 s a server and
        try). A look-up that ate the time makes the call end right after it.
        """
        call = _call()
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(str(error)) from error
        if self._guard:
            for *_, address in addresses:  # one that may not be reached spoils them all: such a name is no accident
                self._guard.check_address(host, port, str(address[0]))
        ends_at = boot_clock() + call.left(timeout)
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for index, (family, kind, protocol, _, address) in enumerate(addresses):
            share = (ends_at - boot_clock()) / (len(addresses) - index)
            if share <= 0:
                raise httpcore2.ConnectTimeout("no connection within the time") from failure
            opened = socket.socket(family, kind, protocol)
            try:
                opened.settimeout(share)
                opened.connect(address)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                opened.close()
                name = httpcore2.ConnectTimeout if isinstance(error, TimeoutError) else httpcore2.ConnectError
                failure = name(str(error))
                failure.__cause__ = error
            else:
                return DeadlineStream(opened)
        raise failure


class DeadlineStream(httpcore2.NetworkStream):
    """A connection. Each operation takes what the caller allows or what is left of the call, the lesser."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = _call().left(timeout)
        if left <= 0:
            raise httpcore2.ReadTimeout("no whole answer within the call's time")
        try:
            self._socket.settimeout(left)
            return self._socket.recv(max_bytes)
        except TimeoutError as error:
            raise httpcore2.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore2.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        call = _call()
        if call.at_first_write and buffer:
            _may_start(call)
        rest = memoryview(buffer)
        try:
            while rest:
                left = call.left(timeout)
                if left <= 0:
                    raise httpcore2.WriteTimeout("the request was not taken within the call's time")
                self._socket.settimeout(left)
                rest = rest[self._socket.send(rest) :]
        except TimeoutError as error:
            raise httpcore2.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from error

    def close(self) -> None:
        self._socket.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        """The handshake as a whole keeps the limit: a socket's timeout is one deadline for it."""
        left = _call().left(timeout)
        try:
            if left <= 0:
                raise TimeoutError("no time was left for the TLS handshake")  # noqa: TRY301
            self._socket.settimeout(left)
            return DeadlineStream(ssl_context.wrap_socket(self._socket, server_hostname=server_hostname))
        except TimeoutError as error:
            self.close()
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:  # a bad certificate and everything else that TLS raises are OSErrors
            self.close()
            raise httpcore2.ConnectError(str(error)) from error

    def get_extra_info(self, info: str) -> Any:
        match info:
            case "ssl_object":
                return self._socket if isinstance(self._socket, ssl.SSLSocket) else None
            case "socket":
                return self._socket
            case "client_addr":
                return self._socket.getsockname()
            case "server_addr":
                return self._socket.getpeername()
            case "is_readable":  # asked of an idle connection: readable means that the server closed it
                return self._socket.fileno() < 0 or bool(_poll(self._socket))
        return None


def _may_start(call: Call) -> None:
    """Right before a request's first byte, with the connection open: may it still leave?"""
    if call.not_after is not None and boot_clock() > call.not_after:
        raise TooLate("the moment to send had passed when the connection was open; nothing was sent")
    if call.left() <= 0:
        raise httpcore2.ConnectTimeout("the connection took all of the call's time; nothing was sent")
    call.at_first_write = False
    call.started = True


def _poll(connection: socket.socket) -> list[tuple[int, int]]:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return poll.poll(0)
