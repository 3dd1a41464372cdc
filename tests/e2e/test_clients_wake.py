"""StorageWake, through the real storage client, against a queue that answers, is missing, hangs or is away."""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.sax.saxutils import unescape

import pytest

from shared.clients.wake import IMMEDIATE_WAITING_AT_MOST, WAITING_AT_MOST, NoWake, StorageWake, Wake, open_wake
from tests.fakes.eventually import eventually
from tests.fakes.faulty_server import (
    FaultyServer,
    Plan,
    Seen,
    answer,
    close_after_reading,
    close_at_once,
    closed_port,
    drips,
    faulty,
    replies,
    silent,
)
from tests.fakes.settings import settings

KEY = base64.b64encode(b"storage-key").decode()
MESSAGE = (
    b'<?xml version="1.0" encoding="utf-8"?><QueueMessagesList><QueueMessage><MessageId>1</MessageId>'
    b"<InsertionTime>Fri, 09 Oct 2026 21:04:30 GMT</InsertionTime><ExpirationTime>Fri, 16 Oct 2026 21:04:30 GMT"
    b"</ExpirationTime><PopReceipt>p</PopReceipt><TimeNextVisible>Fri, 09 Oct 2026 23:29:20 GMT</TimeNextVisible>"
    b"</QueueMessage></QueueMessagesList>"
)
PUT = answer(201, MESSAGE, Content_Type="application/xml")
WEEK = 7 * 24 * 3600
SHORT = 0.5  # seconds; only where the time has to run out


def storage_error(status: int, code: str) -> bytes:
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{code}.</Message></Error>'
    return answer(status, body.encode(), Content_Type="application/xml", x_ms_error_code=code)


MISSING = storage_error(404, "QueueNotFound")


def connection_string(port: int) -> str:
    return (
        f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={KEY};"
        f"QueueEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    )


@contextmanager
def waking(
    *plans: Plan, timeout_seconds: float = 20.0, stuck_seconds: float = 10.0
) -> Iterator[tuple[StorageWake, FaultyServer]]:
    with faulty(*plans) as server:
        wake = StorageWake(connection_string(server.port), timeout_seconds=timeout_seconds, stuck_seconds=stuck_seconds)
        yield wake, server
        wake.close(timeout=0.1)


def puts(server: FaultyServer) -> list[Seen]:
    return [seen for seen in server.seen if seen.method == "POST"]


def option(seen: Seen, name: str) -> int:
    found = re.search(rf"[?&]{name}=(\d+)(?:&|$)", seen.path)
    assert found, seen.path
    return int(found[1])


def text(seen: Seen) -> str:
    found = re.search(r"<MessageText>(.*)</MessageText>", seen.body.decode())
    assert found
    return base64.b64decode(unescape(found[1])).decode()


def test_a_hint() -> None:
    with waking(replies(PUT)) as (wake, server):
        wake.wake()
        eventually(lambda: wake.sent == 1)
        [seen] = server.seen
    assert seen.path.startswith("/devstoreaccount1/wake/messages?")
    assert text(seen) == "wake"
    assert (option(seen, "visibilitytimeout"), option(seen, "messagettl")) == (0, WEEK)
    assert "devstoreaccount1" in seen.headers["authorization"]
    assert (wake.sent, wake.failed, wake.dropped) == (1, 0, 0)


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [(-5, 0), (0, 0), (0.9, 1), (1.5, 2), (10, 10), (300, 300), (WEEK, WEEK - 1), (1e12, WEEK - 1)],
)
def test_the_delay_in_whole_seconds(delay: float, seconds: int) -> None:
    with waking(replies(PUT)) as (wake, server):
        wake.wake(delay)
        eventually(lambda: wake.sent == 1)
        assert option(server.seen[0], "visibilitytimeout") == seconds


def test_a_hint_that_waited_is_delayed_by_what_is_left() -> None:
    with waking(silent, replies(PUT), timeout_seconds=1.2) as (wake, server):
        wake.wake()  # holds the thread for 1.2 s
        wake.wake(20.0)
        eventually(lambda: wake.sent == 1)
        assert 1 <= option(puts(server)[-1], "visibilitytimeout") <= 19


def test_nothing_is_started_or_loaded_before_the_first_hint() -> None:
    with faulty(replies(PUT)) as server:
        before = set(threading.enumerate())
        wake = StorageWake(connection_string(server.port))
        wake.close()
        assert set(threading.enumerate()) <= before  # one of an earlier test may end just now
        assert server.connections == 0


def test_a_queue_that_is_missing_is_made() -> None:
    with waking(replies(MISSING, answer(201, b""), PUT)) as (wake, server):
        wake.wake()
        eventually(lambda: wake.sent == 1)
        assert [(seen.method, seen.path.split("?")[0]) for seen in server.seen] == [
            ("POST", "/devstoreaccount1/wake/messages"),
            ("PUT", "/devstoreaccount1/wake"),
            ("POST", "/devstoreaccount1/wake/messages"),
        ]


def test_a_queue_that_somebody_else_just_made() -> None:
    with waking(replies(MISSING, storage_error(409, "QueueAlreadyExists"), PUT)) as (wake, _):
        wake.wake()
        eventually(lambda: wake.sent == 1)


def test_a_queue_that_stays_missing_is_made_once_a_hint() -> None:
    with waking(replies(MISSING, answer(201, b""), MISSING, PUT)) as (wake, server):
        wake.wake()
        eventually(lambda: wake.failed == 1)
        assert len(server.seen) == 3
        wake.wake()
        eventually(lambda: wake.sent == 1)


@pytest.mark.parametrize(
    "plan",
    [
        close_at_once,
        close_after_reading,
        silent,
        replies(storage_error(403, "AuthenticationFailed")),
        replies(storage_error(404, "ResourceNotFound")),
        replies(storage_error(500, "InternalError")),
        replies(storage_error(503, "ServerBusy")),
        replies(answer(201, b"<html", Content_Type="application/xml")),
        replies(answer(201, b"")),
    ],
)
def test_faults_are_swallowed_and_counted_without_a_retry(plan: Plan) -> None:
    with waking(plan, timeout_seconds=SHORT if plan is silent else 20.0) as (wake, server):
        wake.wake()
        eventually(lambda: wake.failed == 1)
        assert (eventually(lambda: server.connections), wake.sent) == (1, 0)
        assert len(server.seen) <= 1


def test_it_goes_on_after_faults() -> None:
    with waking(close_at_once, silent, replies(storage_error(503, "ServerBusy"), PUT), timeout_seconds=2.0) as (
        wake,
        _,
    ):
        for _ in range(4):
            wake.wake()
        eventually(lambda: wake.sent == 1)
        assert wake.failed == 3


def test_nobody_there_and_settings_that_are_wrong() -> None:
    for text in (connection_string(closed_port()), "this is no connection string", "AccountName=a;AccountKey=%%%"):
        wake = StorageWake(text, timeout_seconds=0.2)
        wake.wake()
        eventually(lambda wake=wake: wake.failed == 1)  # type: ignore[misc]
        wake.close()


def test_waking_never_waits_and_the_backlog_is_bounded() -> None:
    with waking(silent, timeout_seconds=20) as (wake, server):
        wake.wake()
        eventually(lambda: len(server.seen) == 1)
        began = time.monotonic()
        for _ in range(IMMEDIATE_WAITING_AT_MOST + 5):
            wake.wake()
        assert wake.dropped == 5
        for _ in range(WAITING_AT_MOST):
            wake.wake(60)
        assert wake.dropped == 5 + IMMEDIATE_WAITING_AT_MOST
        assert time.monotonic() - began < 10  # one that waited would wait for twenty
        began = time.monotonic()
        wake.close(timeout=0.1)
        assert time.monotonic() - began < 10


def test_close_sends_what_waits_and_what_comes_later_is_dropped() -> None:
    with waking(replies(PUT)) as (wake, server):
        for _ in range(20):
            wake.wake()
        began = time.monotonic()
        wake.close(timeout=30)
        assert time.monotonic() - began < 20  # the thread ended; nobody waited the timeout out
        assert (wake.sent, len(puts(server))) == (20, 20)
        wake.wake()
        wake.close()
        assert (wake.sent, wake.dropped) == (20, 1)


def test_a_thread_that_a_dripping_server_holds_is_replaced() -> None:
    drip = drips(b"x", 0.02, at_once=b"HTTP/1.1 201 Created\r\nContent-Length: 100000\r\n\r\n")
    with waking(drip, replies(PUT), stuck_seconds=0.1) as (wake, server):
        wake.wake()
        eventually(lambda: len(server.seen) == 1)
        threading.Event().wait(0.15)  # the time after which it counts as stuck
        wake.wake()
        eventually(lambda: wake.sent == 1)
        assert wake.failed == 0
    eventually(lambda: wake.failed == 1)  # the server is gone, and with it the thread that it held


def test_one_warning_a_minute_without_the_key(caplog: pytest.LogCaptureFixture) -> None:
    with waking(replies(storage_error(403, "AuthenticationFailed"))) as (wake, _):
        for _ in range(5):
            wake.wake()
        eventually(lambda: wake.failed == 5)
    ours = [record for record in caplog.records if record.name == "antwoord" and record.levelno >= logging.WARNING]
    [record] = [record for record in ours if "wake_failed" in record.getMessage()]
    said: dict[str, Any] = json.loads(record.getMessage())
    assert said["event"] == "wake_failed"
    assert "AuthenticationFailed" in said["error"]
    assert KEY not in caplog.text


def test_the_apps_own_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK sends tokens over https only, so that here nothing is sent; but the token was asked for."""
    token = {"access_token": "t", "expires_on": str(int(time.time()) + 86400), "resource": "x", "token_type": "Bearer"}
    with faulty(replies(answer(200, token))) as identity:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{identity.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header-secret")
        wake = StorageWake(service_uri=f"https://127.0.0.1:{closed_port()}", timeout_seconds=0.2)
        wake.wake()
        eventually(lambda: wake.failed == 1)
        assert "resource=https://storage.azure.com" in identity.seen[0].path
        wake.close()


def test_the_settings_choose() -> None:
    def service_uri(wake: Wake) -> str | None:
        assert isinstance(wake, StorageWake)
        return wake._service_uri

    assert isinstance(open_wake(settings()), NoWake)
    assert service_uri(open_wake(settings(AzureWebJobsStorage=connection_string(1)))) is None
    by_name = settings(AzureWebJobsStorage__accountName="account")
    assert service_uri(open_wake(by_name)) == "https://account.queue.core.windows.net"
    both = settings(AzureWebJobsStorage__accountName="a", AzureWebJobsStorage__queueServiceUri="https://q.example")
    assert service_uri(open_wake(both)) == "https://q.example"


def test_no_wake_does_nothing() -> None:
    wake: Wake = NoWake()
    wake.wake(5)
    wake.close()
