"""DeadlineTransport against servers that go wrong: every call ends in time, with the error that says what happened."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial

import httpx2
import pytest

from shared.clients.deadline import TooLate, boot_clock, deadline
from shared.clients.http import DeadlineTransport
from shared.errors import FailureKind, classify
from tests.fakes.calls import get, plain, takes
from tests.fakes.eventually import eventually
from tests.fakes.faulty_server import (
    FaultyServer,
    Plan,
    Visit,
    answer,
    close_after_reading,
    close_at_once,
    closed_port,
    deaf,
    drips,
    faulty,
    replies,
    reply_and_close,
    silent,
    tls_pair,
)

SHORT = 0.5  # seconds: the request itself is out by then, also on a busy machine
LARGE = b"x" * 30_000_000  # more than the buffers of a connection hold


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return tls_pair(tmp_path_factory.mktemp("tls"))


def test_an_answer() -> None:
    with faulty(replies(answer(200, b"hello"))) as server:
        assert get(server.url + "/path?q=1") == b"hello"
        [seen] = server.seen
        assert (seen.method, seen.path) == ("GET", "/path?q=1")
        assert seen.headers["accept-encoding"] == "identity"


def test_an_answer_over_tls(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    with faulty(replies(answer(200, b"hello")), tls=tls[0]) as server:
        assert get(server.url, trust=tls[1]) == b"hello"


def test_the_default_context_trusts_no_stranger(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    with faulty(replies(answer(200, b"hello")), tls=tls[0]) as server:
        with (
            httpx2.Client(transport=DeadlineTransport()) as client,
            pytest.raises(httpx2.ConnectError, match="certificate"),
        ):
            client.get(server.url)
        assert not server.seen


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (close_at_once, (httpx2.ReadError, httpx2.RemoteProtocolError)),
        (close_after_reading, httpx2.RemoteProtocolError),
        (reply_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), httpx2.RemoteProtocolError),
        (reply_and_close(b"HTTP/1.1 200 OK\r\nContent-"), httpx2.RemoteProtocolError),
        (reply_and_close(b"this is no HTTP\r\n\r\n"), httpx2.RemoteProtocolError),
        (reply_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), httpx2.RemoteProtocolError),
        (reply_and_close(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000), httpx2.RemoteProtocolError),
    ],
)
def test_what_breaks_after_the_request_is_ambiguous(plan: Plan, error: type[Exception]) -> None:
    with faulty(plan) as server, pytest.raises(error) as caught:
        get(server.url)
    assert classify(caught.value, idempotent=False).kind is FailureKind.AMBIGUOUS
    assert classify(caught.value).kind is FailureKind.TRANSIENT
    assert classify(caught.value).error_class == "dropped"


def test_what_never_connects_was_surely_not_acted_on() -> None:
    for url in (f"http://127.0.0.1:{closed_port()}", "http://does-not-exist.invalid", f"http://{'a' * 70}.example"):
        with pytest.raises(httpx2.ConnectError) as caught, deadline(30):
            get(url)
        failure = classify(caught.value, idempotent=False)
        assert (failure.kind, failure.error_class) == (FailureKind.TRANSIENT, "connect")


def test_no_connection_is_made_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        waiting = []
        for _ in range(3):  # fill the backlog: from then on the kernel answers nobody
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
            waiting.append(filler)
        with takes(SHORT, 10), pytest.raises(httpx2.ConnectTimeout) as caught, deadline(SHORT):
            get(f"http://127.0.0.1:{port}")
        for filler in waiting:
            filler.close()
    assert classify(caught.value, idempotent=False).error_class == "connect"


@pytest.mark.parametrize(
    "plan",
    [
        silent,
        drips(b"X-Slow: 1\r\n", 0.02, at_once=b"HTTP/1.1 200 OK\r\n"),
        drips(b"HTTP/1.1 100 Continue\r\n\r\n", 0.005),
        drips(b"x", 0.02, at_once=b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
        drips(b"1\r\nx\r\n", 0.02, at_once=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ],
)
def test_a_slow_answer_cannot_stretch_the_call(plan: Plan) -> None:
    with faulty(plan) as server, takes(SHORT, 10):
        with pytest.raises(httpx2.ReadTimeout) as caught, deadline(SHORT):
            get(server.url)
        eventually(lambda: server.left == 1)  # and the connection is closed
    failure = classify(caught.value, idempotent=False)
    assert (failure.kind, failure.error_class) == (FailureKind.AMBIGUOUS, "timeout")


def test_a_server_that_does_not_read_cannot_stretch_the_call() -> None:
    with faulty(deaf) as server, takes(SHORT, 10):
        client = httpx2.Client(transport=DeadlineTransport(ssl_context=plain()), timeout=20)
        with pytest.raises(httpx2.WriteTimeout) as caught, deadline(SHORT):
            client.post(server.url, content=LARGE)
    assert classify(caught.value, idempotent=False).kind is FailureKind.AMBIGUOUS


def test_a_server_that_reads_slowly_cannot_stretch_the_call() -> None:
    def sips(visit: Visit) -> None:
        visit.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        while not visit.server.stopped.wait(0.02):
            visit.connection.recv(100_000)

    with faulty(sips) as server, takes(SHORT, 10):
        client = httpx2.Client(transport=DeadlineTransport(ssl_context=plain()), timeout=20)
        with pytest.raises(httpx2.WriteTimeout), deadline(SHORT):
            client.post(server.url, content=LARGE)


def all_left(server: FaultyServer) -> bool:
    return server.left == server.connections


def never_speaks(_: socket.socket, stopped: threading.Event) -> None:
    stopped.wait()


def drips_a_record(connection: socket.socket, stopped: threading.Event) -> None:
    """The head of a TLS record that promises 16 KiB, then its bytes one by one."""
    connection.sendall(b"\x16\x03\x03\x40\x00\x02")
    while not stopped.wait(0.02):
        connection.sendall(b"\0")


@pytest.mark.parametrize("handshake", [never_speaks, drips_a_record])
def test_a_handshake_that_never_ends(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], handshake: Callable[[socket.socket, threading.Event], None]
) -> None:
    with (
        FaultyServer((silent,), tls[0], handshake) as server,
        takes(SHORT, 10),
        pytest.raises(httpx2.ConnectTimeout) as caught,
        deadline(SHORT),
    ):
        get(server.url, trust=tls[1])
    assert classify(caught.value, idempotent=False).error_class == "connect"


def test_a_handshake_that_fails(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    def no_tls(visit: Visit) -> None:
        visit.connection.sendall(b"220 this is a mail server\r\n")

    with faulty(no_tls) as server, pytest.raises(httpx2.ConnectError) as caught:
        get(server.url.replace("http:", "https:"), trust=tls[1])
    assert classify(caught.value, idempotent=False).error_class == "connect"


def test_limits_hold_without_a_deadline_and_the_earlier_of_two_wins() -> None:
    with faulty(silent) as server:
        transport = DeadlineTransport(call_seconds=SHORT, ssl_context=plain())
        with takes(SHORT, 10), pytest.raises(httpx2.ReadTimeout):
            httpx2.Client(transport=transport, timeout=20).get(server.url)
        with takes(SHORT, 10), pytest.raises(httpx2.ReadTimeout), deadline(SHORT), deadline(20):
            get(server.url)
        with takes(SHORT, 10), pytest.raises(httpx2.ReadTimeout), deadline(20):
            httpx2.Client(transport=DeadlineTransport(ssl_context=plain()), timeout=SHORT).get(server.url)


def test_keep_alive_and_a_connection_for_each_call() -> None:
    for keep_alive, connections in ((True, 1), (False, 3)):
        with faulty(replies(answer(200, b"hello"))) as server:
            transport = DeadlineTransport(keep_alive=keep_alive, ssl_context=plain())
            with httpx2.Client(transport=transport) as client:
                for _ in range(3):
                    with deadline(30):
                        client.get(server.url)
                assert server.connections == connections
                assert (server.seen[0].headers["connection"] == "close") is not keep_alive
            eventually(partial(all_left, server))


def test_a_kept_connection_that_the_server_closed_is_not_used() -> None:
    with faulty(reply_and_close(answer(200, b"one")), replies(answer(200, b"two"))) as server:
        client = httpx2.Client(transport=DeadlineTransport(ssl_context=plain()))
        assert client.get(server.url).content == b"one"
        eventually(lambda: server.left == 1)
        assert client.get(server.url).content == b"two"


def test_too_late_before_the_first_byte() -> None:
    with faulty(silent) as server:
        with pytest.raises(TooLate) as caught, deadline(5, not_after=boot_clock() - 0.001) as call:
            get(server.url)
        assert not call.started
        eventually(lambda: server.left == 1)
        assert (server.connections, server.bytes_read) == (1, 0)
    assert classify(caught.value, idempotent=False).kind is FailureKind.TRANSIENT


def test_too_late_after_a_slow_handshake(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    def slowly(_: socket.socket, stopped: threading.Event) -> None:
        stopped.wait(SHORT)

    with FaultyServer((silent,), tls[0], slowly) as server:
        with pytest.raises(TooLate), deadline(5, not_after=boot_clock() + SHORT / 2):
            get(server.url, trust=tls[1])
        eventually(lambda: server.left == 1)
        assert server.bytes_read == 0


def test_too_late_on_a_kept_connection() -> None:
    with faulty(replies(answer(200, b"hello"))) as server:
        client = httpx2.Client(transport=DeadlineTransport(ssl_context=plain()))
        with deadline(30, not_after=boot_clock() + 30) as call:
            client.get(server.url)
        assert call.started
        with pytest.raises(TooLate), deadline(5, not_after=boot_clock() - 1):
            client.get(server.url)
        for outer, inner in ((boot_clock() - 1, boot_clock() + 5), (boot_clock() + 5, boot_clock() - 1)):
            with deadline(5, not_after=outer), pytest.raises(TooLate), deadline(5, not_after=inner):
                client.get(server.url)
        with deadline(5, not_after=boot_clock() - 1), pytest.raises(TooLate), deadline(5):
            client.get(server.url)
        assert len(server.seen) == 1


def answers_after(moment: float) -> Plan:
    """A server that answers when this moment of `boot_clock` is over."""

    def plan(visit: Visit) -> None:
        while visit.read():
            visit.server.stopped.wait(max(moment - boot_clock(), 0) + 0.01)
            visit.connection.sendall(answer(200, b"late"))

    return plan


def test_in_time_although_the_answer_comes_later() -> None:
    not_after = boot_clock() + SHORT
    with faulty(answers_after(not_after)) as server, deadline(30, not_after=not_after):
        assert get(server.url) == b"late"


def test_each_request_of_a_call_is_checked() -> None:
    not_after = boot_clock() + SHORT
    with faulty(answers_after(not_after)) as server, deadline(30, not_after=not_after) as call:
        client = httpx2.Client(transport=DeadlineTransport(ssl_context=plain()))
        client.get(server.url)
        with pytest.raises(TooLate):
            client.get(server.url)
        assert len(server.seen) == 1
        assert call.started


def test_no_time_left_means_that_nothing_was_sent() -> None:
    with faulty(replies(answer(200, b"hello"))) as server:
        client = httpx2.Client(transport=DeadlineTransport(ssl_context=plain()))
        for kept in (False, True):
            with pytest.raises(httpx2.ConnectTimeout) as caught, deadline(-1) as call:
                client.get(server.url)
            assert not call.started
            assert classify(caught.value, idempotent=False).error_class == "connect"
            assert len(server.seen) == int(kept)
            client.get(server.url)


def test_the_clock_goes_forward() -> None:
    first = boot_clock()
    assert 0 <= boot_clock() - first < 60
    assert boot_clock() >= time.monotonic() - 1  # it counts at least what the other one counts
