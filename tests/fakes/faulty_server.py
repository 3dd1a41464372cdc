"""A server on loopback that goes wrong as a test plans it: raw sockets, so that every kind of fault can be made.

A plan is a function that is given one connection, at the moment it was accepted. The first connection gets the first
plan, and so on; the last plan serves all that come after.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Plan = Callable[["Visit"], None]


@dataclass(frozen=True)
class Seen:
    """One request that a server has read."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Visit:
    """One connection, as a plan sees it."""

    connection: socket.socket
    server: FaultyServer
    buffer: bytes = b""

    def read(self) -> Seen:
        """Read one whole request. Raises ConnectionError if the client goes away before its end."""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        while len(self.buffer) < length:
            self._more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        method, path, _ = first.split(" ")
        seen = Seen(method, path, headers, body)
        self.server.seen.append(seen)
        return seen

    def _more(self) -> None:
        data = self.connection.recv(65536)
        if not data:
            raise ConnectionError("the client left")
        self.server.bytes_read += len(data)
        self.buffer += data

    def drain(self) -> None:
        """Read and count whatever comes, until the client leaves."""
        while True:
            self._more()


@dataclass
class FaultyServer:
    """Listens on 127.0.0.1 from the moment it is made; a context manager."""

    plans: tuple[Plan, ...]
    tls: ssl.SSLContext | None = None
    before_tls: Callable[[socket.socket, threading.Event], None] | None = None
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    left: int = 0  # connections that are over
    bytes_read: int = 0

    def __post_init__(self) -> None:
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                connection.close()

    def _listen(self) -> None:
        while not self.stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                plan = self.plans[min(self.connections, len(self.plans) - 1)]
                self.connections += 1
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection, plan), daemon=True).start()

    def _serve(self, connection: socket.socket, plan: Plan) -> None:
        raw = connection
        try:
            if self.before_tls is not None:
                self.before_tls(connection, self.stopped)
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            plan(Visit(connection, self))
        except OSError:
            pass  # the client left, or the test is over
        finally:
            connection.close()
            with self._lock:
                self._open.discard(raw)
                self.left += 1


def faulty(*plans: Plan, tls: ssl.SSLContext | None = None) -> FaultyServer:
    return FaultyServer(plans, tls)


def answer(status: int, body: object = b"", **headers: str) -> bytes:
    """The bytes of a response. A body that isn't bytes becomes JSON; `_` in a header's name is a hyphen."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "text/plain" if isinstance(body, bytes) else "application/json"
    lines = {"Content-Type": kind, "Content-Length": str(len(data))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode() + data


def replies(*answers: bytes | Callable[[Seen], bytes]) -> Plan:
    """Answer the requests of one connection one after another, the last answer again and again."""

    def plan(visit: Visit) -> None:
        number = 0
        while True:
            seen = visit.read()
            chosen = answers[min(number, len(answers) - 1)]
            number += 1
            visit.connection.sendall(chosen if isinstance(chosen, bytes) else chosen(seen))

    return plan


def reply_and_close(data: bytes) -> Plan:
    """Read, answer with exactly these bytes, and close."""

    def plan(visit: Visit) -> None:
        visit.read()
        visit.connection.sendall(data)

    return plan


def close_at_once(visit: Visit) -> None:
    """Close with a reset, as a crashed process does, when the request is there and nothing of it was read."""
    visit.connection.recv(1, socket.MSG_PEEK)
    visit.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def close_after_reading(visit: Visit) -> None:
    visit.read()


def silent(visit: Visit) -> None:
    """Read a request, say nothing."""
    visit.read()
    visit.drain()


def deaf(visit: Visit) -> None:
    """Read nothing, say nothing."""
    visit.server.stopped.wait()


def drips(data: bytes, seconds: float, *, at_once: bytes = b"") -> Plan:
    """Read, send `at_once`, then `data` byte by byte with a pause of `seconds` between, over and over."""

    def plan(visit: Visit) -> None:
        visit.read()
        visit.connection.sendall(at_once)
        while True:
            for index in range(len(data)):
                if visit.server.stopped.wait(seconds):
                    return
                visit.connection.sendall(data[index : index + 1])

    return plan


def closed_port() -> int:
    """A port of 127.0.0.1 where nobody listens, nor will while this process runs: it is taken, by a socket that does not."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    port = int(held.getsockname()[1])
    held.detach()  # it stays open
    return port


def tls_pair(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context for 127.0.0.1 with a certificate of its own, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "faulty server")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=str(pem))
