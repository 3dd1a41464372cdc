"""DeadlineTransport and the bodies of answers: read in time, limited in size, also when they are compressed."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import httpx2
import pytest

from shared.clients.deadline import deadline
from shared.clients.http import DeadlineTransport, ResponseTooLarge
from shared.errors import FailureKind, classify
from tests.fakes.calls import get, plain, takes
from tests.fakes.eventually import eventually
from tests.fakes.faulty_server import Visit, answer, drips, faulty, replies

SHORT = 0.5


def test_the_body_is_read_within_the_limits_of_its_own_call() -> None:
    with faulty(drips(b"x", 0.02, at_once=b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")) as server:
        client = httpx2.Client(transport=DeadlineTransport(ssl_context=plain()), timeout=20)
        with deadline(SHORT), client.stream("GET", server.url) as response:
            pass
        with takes(SHORT, 10):
            with deadline(SHORT):
                stream = client.stream("GET", server.url)
                response = stream.__enter__()
            with pytest.raises(httpx2.ReadTimeout):  # outside the block, still within its limits
                response.read()
            stream.__exit__(None, None, None)


def test_a_body_at_and_over_the_limit() -> None:
    with faulty(replies(answer(200, b"x" * 1000), answer(200, b"x" * 1001))) as server:
        client = httpx2.Client(transport=DeadlineTransport(body_limit=1000, ssl_context=plain()))
        assert len(client.get(server.url).content) == 1000
        with pytest.raises(ResponseTooLarge, match="1000 bytes") as caught:
            client.get(server.url)
        assert classify(caught.value, idempotent=False).kind is FailureKind.AMBIGUOUS
        assert classify(caught.value).error_class == "broken_answer"
        eventually(lambda: server.left == 1)


def test_an_endless_body_ends_at_the_limit() -> None:
    def endless(visit: Visit) -> None:
        visit.read()
        visit.connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            visit.connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")

    with faulty(endless) as server, takes(0, 20), pytest.raises(ResponseTooLarge):
        get(server.url, body_limit=1_000_000)


def test_a_compressed_body_is_limited_by_what_it_unpacks_to() -> None:
    small, bomb = b"hello" * 20, gzip.compress(b"\0" * 50_000_000)
    plans = replies(
        answer(200, gzip.compress(small), Content_Encoding="gzip"),
        answer(200, zlib.compress(small), Content_Encoding="deflate"),
        answer(200, bomb, Content_Encoding="GZIP"),
    )
    with faulty(plans) as server:
        client = httpx2.Client(transport=DeadlineTransport(body_limit=100_000, ssl_context=plain()))
        assert client.get(server.url).content == small
        assert client.get(server.url).content == small
        tracemalloc.start()
        with pytest.raises(ResponseTooLarge):
            client.get(server.url)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(bomb) < 100_000
    assert peak < 2_000_000


@pytest.mark.parametrize("body", [b"this is no gzip", gzip.compress(b"hello")[:-4]], ids=["none", "cut"])
def test_a_compressed_body_that_is_broken(body: bytes) -> None:
    plan = replies(answer(200, body, Content_Encoding="gzip"))
    with faulty(plan) as server, pytest.raises(httpx2.DecodingError) as caught:
        get(server.url)
    assert classify(caught.value, idempotent=False).kind is FailureKind.AMBIGUOUS
