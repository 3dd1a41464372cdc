"""A Postgres that speaks TLS: the embedded one cannot, so this stands before it, with a certificate of a self-made authority."""

from __future__ import annotations

import contextlib
import datetime
import socket
import socketserver
import ssl
import threading
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

TLS_REQUEST = bytes.fromhex("00000008 04d2162f")
GSS_REQUEST = bytes.fromhex("00000008 04d21630")


class Authority:
    """Signs certificates; `file` holds its own, as a client wants it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        own = _built(self._name, self._name, self._key, self._key, x509.BasicConstraints(ca=True, path_length=0))
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def certify(self, host: str) -> Path:
        """A file with a key and its certificate for `host`."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _built(_named(host), self._name, key, self._key, x509.SubjectAlternativeName([x509.DNSName(host)]))
        path = self._folder / f"{host}.key.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + signed.public_bytes(serialization.Encoding.PEM)
        )
        return path


class TlsFront(socketserver.ThreadingTCPServer):
    """Takes TLS on a port of 127.0.0.1 and hands what is in it to the Postgres behind a unix socket; a context manager."""

    daemon_threads = True

    def __init__(self, certificate: Path, behind: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._behind = behind
        self.handshakes = 0
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.port = int(self.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def finish_request(self, request: object, client_address: object) -> None:
        """One connection: the two requests in the clear, TLS, and bytes both ways until one side ends."""
        del client_address
        assert isinstance(request, socket.socket)
        with contextlib.suppress(OSError):  # a client that refuses the certificate hangs up
            while (asked := request.recv(8)) == GSS_REQUEST:
                request.sendall(b"N")
            if asked != TLS_REQUEST:
                return
            request.sendall(b"S")
            with self._context.wrap_socket(request, server_side=True) as outer, socket.socket(socket.AF_UNIX) as inner:
                self.handshakes += 1
                inner.connect(str(self._behind))
                back = threading.Thread(target=_pass_on, args=(inner, outer), daemon=True)
                back.start()
                _pass_on(outer, inner)
                back.join(30)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _built(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    )
    return builder.sign(signer, hashes.SHA256())
