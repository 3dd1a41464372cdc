"""One request to an endpoint against servers that go wrong: what is sent, within which limits, and what is made of the answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from shared.clients.guard import Guard
from shared.errors import FailureKind, RequestRefused, protect
from shared.signature import verify_standard, verify_timestamped
from shared.webhooks.sending import Answer, Replay, Sender, Target, failure_of
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
    reply_and_close,
    silent,
    tls_pair,
)

NEW, OLD = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "an-older-secret-of-another-kind"
BODY = b'{"n":1}'
LOOPBACK = Guard(("127.0.0.1",))


def send(url: str, sender: Sender | None = None, **changes: Any) -> Answer:
    """One delivery; `changes` are fields of its target."""
    fields: dict[str, Any] = {"secrets": [NEW], "timeout_seconds": 20.0} | changes
    target = Target(url, **fields)
    return (sender or Sender(LOOPBACK)).send(target, BODY, message_id="evt_1", idempotency_key="key-1")


def sent(**changes: Any) -> Seen:
    with faulty(replies(answer(200))) as server:
        assert send(f"{server.url}/hook?a=1", **changes).failure is None
        (seen,) = server.seen
    return seen


def test_it_is_signed_for_every_secret_that_is_valid_in_both_ways() -> None:
    seen = sent(secrets=[NEW, OLD], signature_header="X-Acme-Signature", headers={"X-Tenant": "north"})
    assert (seen.method, seen.path, seen.body) == ("POST", "/hook?a=1", BODY)
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["x-tenant"] == "north"
    assert seen.headers["webhook-id"] == seen.headers["x-webhook-id"] == "evt_1"
    assert seen.headers["x-idempotency-key"] == "key-1"
    assert not [name for name in seen.headers if name.startswith("x-replay")]
    for secret in (NEW, OLD):
        verify_standard(
            message_id=seen.headers["webhook-id"], timestamp=seen.headers["webhook-timestamp"],
            signature=seen.headers["webhook-signature"], body=BODY, secrets=[secret], now=time.time(),
        )  # fmt: skip
        verify_timestamped(signature=seen.headers["x-acme-signature"], body=BODY, secrets=[secret], now=time.time())
    with pytest.raises(RequestRefused):
        verify_timestamped(
            signature=seen.headers["x-acme-signature"], body=BODY, secrets=["another-secret"], now=time.time()
        )


def test_a_replay_says_so() -> None:
    seen = sent(replay=Replay("r-1", 2, 1750861210))
    found = {name: seen.headers[name] for name in ("x-replay-id", "x-replay-attempt", "x-original-timestamp")}
    assert found == {"x-replay-id": "r-1", "x-replay-attempt": "2", "x-original-timestamp": "1750861210"}


STATUSES = {
    **dict.fromkeys((200, 201, 202, 204, 299), None),
    **dict.fromkeys((300, 301, 302, 303, 304, 305, 307, 308), (FailureKind.PERMANENT, "rejected")),
    **dict.fromkeys((400, 401, 402, 403, 404, 405, 406, 413, 422, 451, 499), (FailureKind.PERMANENT, "rejected")),
    **dict.fromkeys((408, 409, 425, 500, 501, 502, 503, 504, 507, 599), (FailureKind.TRANSIENT, "unavailable")),
    410: (FailureKind.PERMANENT, "gone"),
    429: (FailureKind.TRANSIENT, "throttled"),
}


@pytest.mark.parametrize("status", STATUSES)
def test_what_a_status_means(status: int) -> None:
    failure = failure_of(status, None)
    assert (failure and (failure.kind, failure.error_class)) == STATUSES[status]
    assert failure is None or (failure.http_status == status and str(status) in failure.text)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_a_redirect_is_one_that_names_where_it_leads(status: int) -> None:
    with faulty(replies(answer(status, Location="https://elsewhere.example.org/"), answer(status))) as server:
        sender = Sender(LOOPBACK)
        named, unnamed = (send(server.url, sender).failure for _ in range(2))
    assert named is not None
    assert unnamed is not None
    assert (named.kind, unnamed.kind) == (FailureKind.PERMANENT, FailureKind.PERMANENT)
    assert named.error_class == ("rejected" if status == 304 else "redirected")
    assert ("change the endpoint's URL to where it leads" in named.text) == (status != 304)
    assert (unnamed.error_class, unnamed.text) == ("rejected", f"HTTP {status} {HTTPStatus(status).phrase}")


FAULTS: dict[str, tuple[Plan, str]] = {
    "silence": (silent, "timeout"),
    "a drip of headers": (drips(b"X-A: b\r\n", 0.02, at_once=b"HTTP/1.1 200 OK\r\n"), "timeout"),
    "a reset": (close_at_once, "dropped"),
    "closed without an answer": (close_after_reading, "dropped"),
    "half a status line": (reply_and_close(b"HTTP/1.1 20"), "dropped"),
    "no HTTP": (reply_and_close(b"SSH-2.0-OpenSSH_9.6\r\n"), "dropped"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_breaks_without_a_status_may_be_tried_again(fault: str) -> None:
    plan, error_class = FAULTS[fault]
    with faulty(plan) as server:
        found = send(server.url, timeout_seconds=0.5 if error_class == "timeout" else 10.0)
    assert found.http_status is None
    assert found.failure is not None
    assert (found.failure.kind, found.failure.error_class) == (FailureKind.TRANSIENT, error_class)
    assert found.duration_ms < 10_000  # the drip would go on for ever


UNREACHABLE: dict[str, Callable[[], str]] = {
    "nobody listens": lambda: f"http://127.0.0.1:{closed_port()}/",
    "no such name": lambda: "https://nowhere.invalid/",
}


@pytest.mark.parametrize("reason", UNREACHABLE)
def test_what_was_never_connected_may_be_tried_again(reason: str) -> None:
    failure = send(UNREACHABLE[reason]()).failure
    assert failure is not None
    assert (failure.kind, failure.error_class) == (FailureKind.TRANSIENT, "connect")


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    context, trusting = tls_pair(tmp_path)
    with FaultyServer((replies(answer(200)),), tls=context) as server:
        failure = send(server.url).failure
        assert failure is not None
        assert (failure.kind, failure.error_class) == (FailureKind.TRANSIENT, "connect")
        assert send(server.url, Sender(LOOPBACK, trusting)).failure is None


def test_a_redirect_is_not_followed() -> None:
    with faulty(replies(answer(200))) as other, faulty(replies(answer(307, Location=f"{other.url}/"))) as server:
        failure = send(server.url).failure
        assert failure is not None
        assert "redirects are not followed" in failure.text
        assert not other.seen


@pytest.mark.parametrize(("status", "is_accepted"), [(200, True), (500, False)])
@pytest.mark.parametrize("kind", ["endless", "dripping", "cut off"])
def test_what_goes_wrong_behind_the_status_changes_nothing_of_it(status: int, is_accepted: bool, kind: str) -> None:
    head = f"HTTP/1.1 {status} Said\r\nContent-Length: 10000000\r\n\r\nbeginning".encode()
    plans = {
        "endless": reply_and_close(head + b"x" * 200_000),
        "dripping": drips(b"x", 0.02, at_once=head),
        "cut off": reply_and_close(head),
    }
    with faulty(*[plans[kind]] * 3) as server:
        for seconds in (1.0, 2.0, 4.0) if kind == "dripping" else (10.0,):
            found = send(server.url, timeout_seconds=seconds)
            if found.http_status is not None:  # a machine that stands still may not come as far as the status in time
                break
    assert found.http_status == status
    assert (found.failure is None) is is_accepted
    assert found.text.startswith("beginning")
    assert len(found.text) <= 500
    assert found.duration_ms < 10_000


def test_retry_after_is_obeyed_up_to_a_quarter_of_an_hour() -> None:
    with faulty(replies(answer(503, Retry_After="7"), answer(429, Retry_After="99999"))) as server:
        sender = Sender(LOOPBACK)  # the same connection, so the next answer
        waits = [failure.retry_after for _ in range(2) if (failure := send(server.url, sender).failure)]
    assert waits == [7.0, 900.0]


def test_the_text_of_an_answer_is_storable_and_gives_no_secret_away() -> None:
    protect(["a-setting-of-ours"])
    said = f"you said {NEW} and {NEW[6:]} and bearer-of-tenant and a-setting-of-ours\0\ud800".encode(
        "utf-8", "surrogatepass"
    )
    with faulty(replies(answer(400, said))) as server:
        found = send(server.url, headers={"X-Token": "bearer-of-tenant"})
    assert found.text.startswith("you said *** and *** and *** and ***")
    found.text.encode()
    assert "\0" not in found.text


@pytest.mark.parametrize("said", [
    '{"key": "whsec_MDEy\\/MzQ1+Njc4OWFiY2RlZg"}', "?key=whsec_MDEy%2FMzQ1%2BNjc4OWFiY2RlZg", "<b>MDEy/MzQ1+Njc4OWFiY2RlZg</b>",
    "<b>one&amp;&lt;two&gt;three</b>", "not T0ken-of-tenant",
], ids=["json", "address", "bare", "page", "without its scheme"])  # fmt: skip
def test_a_secret_is_struck_out_however_it_is_spelled(said: str) -> None:
    headers = {"Authorization": "Bearer T0ken-of-tenant", "X-Key": "one&<two>three"}
    with faulty(replies(answer(403, said.encode()))) as server:
        found = send(server.url, secrets=["whsec_MDEy/MzQ1+Njc4OWFiY2RlZg"], headers=headers)
    assert "***" in found.text
    assert not [part for part in ("MzQ1", "two", "T0ken") if part in found.text]


def test_cookies_are_not_kept_and_a_connection_is() -> None:
    sender = Sender(LOOPBACK)
    with faulty(replies(answer(200, b"ok", Set_Cookie="who=1"))) as server:
        assert [send(server.url, sender).http_status for _ in range(3)] == [200] * 3
        assert server.connections == 1
        assert not any("cookie" in seen.headers for seen in server.seen)
    sender.close()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "https://169.254.169.254/x", "http://example.org/", "https://[::1]/"]
)
def test_the_guard_refuses_for_good(url: str) -> None:
    failure = send(url, Sender(Guard())).failure
    assert failure is not None
    assert (failure.kind, failure.error_class) == (FailureKind.PERMANENT, "address_refused")


def test_what_a_name_leads_to_is_checked_where_it_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that was public when the endpoint was made, and leads inside now."""
    found = socket.getaddrinfo

    def leads_inside(host: Any, *arguments: Any, **named: Any) -> Any:
        return found("127.0.0.1" if host == "rebinding.example.org" else host, *arguments, **named)

    with faulty(replies(answer(200))) as server:
        monkeypatch.setattr(socket, "getaddrinfo", leads_inside)
        failure = send(f"https://rebinding.example.org:{server.port}/", Sender(Guard())).failure
        assert failure is not None
        assert (failure.kind, failure.error_class) == (FailureKind.PERMANENT, "address_refused")
        assert server.connections == 0
