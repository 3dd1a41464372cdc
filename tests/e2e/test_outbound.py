"""What is called when an address was checked: that address, under the name that it was asked for by, and no proxy."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from shared.clients.guard import Guard
from shared.errors import FailureKind
from shared.knowledge.people_source import fetch
from shared.webhooks.sending import Answer, Sender, Target
from tests.fakes.faulty_server import FaultyServer, answer, faulty, replies, tls_pair

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
NAME = "billing.example.org"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
CSV = answer(200, b"naam;mobiel\nKim;0612345679\n", Content_Type="text/csv")


def send(url: str, sender: Sender) -> Answer:
    target = Target(url, secrets=[SECRET], timeout_seconds=20.0)
    return sender.send(target, b"{}", message_id="evt_1", idempotency_key="key-1")


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS says that NAME is here."""
    found = socket.getaddrinfo

    def here(host: Any, *arguments: Any, **more: Any) -> Any:
        return found("127.0.0.1" if host == NAME else host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", here)


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty(replies(answer(200))) as proxy, faulty(replies(answer(200))) as server, faulty(replies(CSV)) as people:
        for name in PROXIES:
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        guard = Guard(("127.0.0.1",))
        assert send(server.url, Sender(guard)).failure is None
        assert fetch(f"{people.url}/people.csv", guard)[0] == "people.csv"
        assert (proxy.connections, server.connections, people.connections) == (0, 1, 1)


@pytest.mark.usefixtures("named")
def test_the_name_is_kept_when_the_address_that_was_checked_is_connected_to(tmp_path: Path) -> None:
    context, trusting = tls_pair(tmp_path)
    asked_for: list[str | None] = []
    context.sni_callback = lambda _, name, __: asked_for.append(name)
    with FaultyServer((replies(answer(200)),), tls=context) as server:
        url = f"https://{NAME}:{server.port}/hook"
        failure = send(url, Sender(Guard((NAME,)), trusting)).failure
        assert failure is not None, "the certificate is the address's, not the name's"
        assert (failure.kind, failure.error_class) == (FailureKind.TRANSIENT, "connect")
        careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
        assert send(url, Sender(Guard((NAME,)), careless)).failure is None
        (seen,) = server.seen
    assert asked_for == [NAME, NAME]
    assert seen.headers["host"] == f"{NAME}:{server.port}"
