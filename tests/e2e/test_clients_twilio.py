"""TwilioLine, through the real `twilio` library, against servers that answer well, badly or not at all."""

from __future__ import annotations

import base64
import io
import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from twilio.base.exceptions import TwilioRestException, TwilioServiceException  # type: ignore[import-untyped]

from shared.clients.deadline import boot_clock
from shared.clients.twilio import Listed, Listing, Template, TooLate, TwilioLine
from shared.clients.twilio_http import open_call
from shared.errors import Failure, FailureKind, HeldError, TransientError, classify, shorten
from tests.fakes.eventually import eventually
from tests.fakes.faulty_server import (
    Plan,
    answer,
    close_after_reading,
    close_at_once,
    closed_port,
    drips,
    faulty,
    replies,
    reply_and_close,
    silent,
)
from tests.fakes.settings import settings

SHORT = 0.5  # seconds; only where the time has to run out
SID = "SM" + "1" * 32
CALLBACK = "https://antwoord.example.org/api/twilio/status?message=1&try=1"
CREATED = {"sid": SID, "status": "queued", "body": "x", "date_created": "Fri, 24 May 2019 17:44:46 +0000"}


def line(url: str, seconds: float = 10.0) -> TwilioLine:
    return TwilioLine(settings(TWILIO_API_BASE_URL=url), send_seconds=seconds, typing_seconds=seconds)


def send(url: str, seconds: float = 10.0, **changed: Any) -> str:
    told = {"to": "whatsapp:+31612345678", "body": "Hoi & dag +1 ‹ü› 👋", "status_callback": CALLBACK}
    return line(url, seconds).send(**(told | changed))


def fails(plan: Plan, seconds: float = 10.0) -> tuple[Exception, Failure]:
    """What a send against one such server becomes, on the one try that is made."""
    with faulty(plan) as server:
        began = time.monotonic()
        with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is what the tests look at
            send(server.url, seconds)
        assert time.monotonic() - began < seconds + 9
        assert eventually(lambda: server.connections) == 1
        assert len(server.seen) <= 1
    assert isinstance(caught.value, Exception)
    return caught.value, classify(caught.value, idempotent=False)


def test_a_message() -> None:
    with faulty(replies(answer(201, CREATED))) as server:
        assert send(server.url) == SID
        [seen] = server.seen
    assert (seen.method, seen.path) == ("POST", f"/2010-04-01/Accounts/AC{'0' * 32}/Messages.json")
    assert seen.form == {
        "To": "whatsapp:+31612345678",
        "From": "whatsapp:+31201234567",
        "Body": "Hoi & dag +1 ‹ü› 👋",
        "StatusCallback": CALLBACK,
    }
    scheme, _, secret = seen.headers["authorization"].partition(" ")
    assert (scheme, base64.b64decode(secret).decode()) == ("Basic", f"AC{'0' * 32}:twilio-token-0123456789")


@pytest.mark.parametrize("to", ["+31612345678", "whatsapp:+31612345678", "NL.0123456789"])
def test_the_address_gets_its_prefix(to: str) -> None:
    with faulty(replies(answer(201, CREATED))) as server:
        send(server.url, to=to)
        assert server.seen[0].form["To"] == "whatsapp:" + to.removeprefix("whatsapp:")


def test_no_connection_is_used_twice() -> None:
    with faulty(replies(answer(201, CREATED))) as server:
        sender = line(server.url)
        for _ in range(3):
            sender.send(to="+31612345678", body="x", status_callback=CALLBACK)
            sender.typing(SID)
        assert server.connections == 6
        assert {seen.headers["connection"] for seen in server.seen} == {"close"}
        eventually(lambda: server.left == 6)


def test_a_closed_line_opens_again() -> None:
    with faulty(replies(answer(201, CREATED))) as server:
        sender = line(server.url)
        sender.prepare()
        sender.close()
        sender.send(to="+31612345678", body="x", status_callback=CALLBACK)
        sender.close()


def test_typing() -> None:
    with faulty(replies(answer(200, {"success": True}))) as server:
        line(server.url).typing(SID)
        [seen] = server.seen
    assert (seen.method, seen.path) == ("POST", "/v2/Indicators/Typing.json")
    assert seen.form == {"channel": "whatsapp", "messageId": SID}


@pytest.mark.parametrize(
    "plan",
    [silent, close_at_once, drips(b"x", 0.02, at_once=b"HTTP/1.1 200 OK\r\n"), replies(answer(400, {"code": 20001})),
     replies(answer(200, b"<html>")), replies(answer(500, b""))],
)  # fmt: skip
def test_typing_never_raises_and_ends(plan: Plan, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "antwoord")
    with faulty(plan) as server:
        began = time.monotonic()
        TwilioLine(settings(TWILIO_API_BASE_URL=server.url), typing_seconds=SHORT).typing(SID)
        assert time.monotonic() - began < 9
    [record] = [record for record in caplog.records if record.name == "antwoord"]
    assert record.levelno == logging.DEBUG
    assert "typing_failed" in record.getMessage()


def test_typing_where_nobody_is() -> None:
    line(f"http://127.0.0.1:{closed_port()}").typing(SID)


def error_body(code: int, status: int = 400) -> dict[str, Any]:
    return {"code": code, "message": "The 'To' number is not valid.", "more_info": "https://x", "status": status}


PROBLEM = {"type": "https://x/63016", "title": "Outside the window", "status": 400, "code": 63016, "detail": "Use one."}


@pytest.mark.parametrize(
    ("data", "kind", "error_class", "code"),
    [
        (answer(400, error_body(21211)), FailureKind.PERMANENT, "rejected", 21211),
        (answer(400, error_body(63016)), FailureKind.PERMANENT, "rejected", 63016),
        (answer(400, PROBLEM), FailureKind.PERMANENT, "rejected", 63016),
        (answer(404, error_body(20404, 404)), FailureKind.PERMANENT, "rejected", 20404),
        (answer(400, b"<html>"), FailureKind.PERMANENT, "rejected", None),
        (answer(400, [1]), FailureKind.PERMANENT, "rejected", None),
        (answer(301, b"", Location="/elsewhere"), FailureKind.PERMANENT, "rejected", None),
        (answer(401, error_body(20003, 401)), FailureKind.CREDENTIAL, "credential", 20003),
        (answer(403, error_body(20005, 403)), FailureKind.CREDENTIAL, "credential", 20005),
        (answer(429, error_body(20429, 429)), FailureKind.TRANSIENT, "throttled", 20429),
        (answer(500, error_body(20500, 500)), FailureKind.AMBIGUOUS, "unavailable", 20500),
        (answer(503, b"<html>", Retry_After="3"), FailureKind.AMBIGUOUS, "unavailable", None),
        (answer(504, b""), FailureKind.AMBIGUOUS, "unavailable", None),
        (answer(408, b""), FailureKind.AMBIGUOUS, "unavailable", None),
        (answer(500, error_body(21211, 400)), FailureKind.AMBIGUOUS, "unavailable", 21211),
        (answer(500, PROBLEM), FailureKind.AMBIGUOUS, "unavailable", 63016),
    ],
)
def test_refusals(data: bytes, kind: FailureKind, error_class: str, code: int | None) -> None:
    error, failure = fails(replies(data))
    assert isinstance(error, TwilioRestException | TwilioServiceException)
    assert (failure.kind, failure.error_class, failure.http_status) == (kind, error_class, int(data[9:12]))
    assert error.code == code
    assert code is None or f"(Twilio {code})" in failure.text


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), ("0.5", 0.5), ("99999999", 900), ("Fri, 31 Dec 9999 23:59:59 GMT", 900)],
)
def test_throttled_with_a_time_to_come_back(value: str, seconds: float) -> None:
    _, failure = fails(replies(answer(429, error_body(20429, 429), Retry_After=value)))
    assert (failure.kind, failure.retry_after) == (FailureKind.THROTTLED, seconds)


def test_throttled_with_an_absurd_time() -> None:
    _, failure = fails(replies(answer(429, error_body(20429, 429), Retry_After="when pigs fly")))
    assert (failure.kind, failure.retry_after) == (FailureKind.TRANSIENT, None)


@pytest.mark.parametrize(
    "data",
    [
        answer(201, b"{", Content_Type="application/json"),
        answer(201, b"<html>ok</html>"),
        answer(201, b""),
        answer(204, b"", Content_Length=""),
        answer(200, {}),
        answer(201, {"sid": None}),
        answer(201, {"sid": ""}),
        answer(201, {"sid": 5}),
        answer(201, {"sid": "S" * 65}),
        answer(201, [CREATED]),
        answer(201, b"\xff\xff"),
    ],
    ids=lambda data: repr(data[-20:]),
)
def test_a_success_that_cannot_be_read_is_ambiguous(data: bytes) -> None:
    error, failure = fails(replies(data))
    assert isinstance(error, HeldError)
    assert (failure.kind, failure.error_class) == (FailureKind.AMBIGUOUS, "broken_answer")
    assert data[9:12].decode() in failure.text


@pytest.mark.parametrize(
    ("plan", "error_class"),
    [
        (close_at_once, "dropped"),
        (close_after_reading, "dropped"),
        (silent, "timeout"),
        (drips(b"X-Slow: 1\r\n", 0.02, at_once=b"HTTP/1.1 201 Created\r\n"), "timeout"),
        (drips(b"x", 0.02, at_once=b"HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n"), "timeout"),
        (reply_and_close(answer(201, CREATED)[:-20]), "dropped"),
        (reply_and_close(answer(400, error_body(21211))[:-20]), "dropped"),
        (replies(answer(201, b"no gzip", Content_Encoding="gzip")), "broken_answer"),
        (replies(answer(201, b" " * 5_000_000)), "broken_answer"),
    ],
)
def test_what_may_have_been_acted_on(plan: Plan, error_class: str) -> None:
    _, failure = fails(plan, SHORT if error_class == "timeout" else 10.0)
    assert (failure.kind, failure.error_class) == (FailureKind.AMBIGUOUS, error_class)


def test_nobody_there_means_surely_not_sent() -> None:
    with pytest.raises(Exception, match="refused") as caught:
        send(f"http://127.0.0.1:{closed_port()}")
    failure = classify(caught.value, idempotent=False)
    assert (failure.kind, failure.error_class) == (FailureKind.TRANSIENT, "connect")


def test_text_that_cannot_be_sent_was_surely_not_sent() -> None:
    with faulty(replies(answer(201, CREATED))) as server:
        with pytest.raises(TransientError) as caught:
            send(server.url, body="\ud800")
        assert server.connections == 0
    assert caught.value.error_class == "not_sent"


def test_too_late() -> None:
    with faulty(replies(answer(201, CREATED))) as server:
        with pytest.raises(TooLate) as caught:
            send(server.url, not_after=boot_clock() - 0.01)
        eventually(lambda: server.left == 1)
        assert server.bytes_read == 0
        assert send(server.url, not_after=boot_clock() + 5) == SID
    assert classify(caught.value, idempotent=False).kind is FailureKind.TRANSIENT


@pytest.mark.parametrize(
    ("base", "hosts"),
    [
        (None, ("https://api.twilio.com", "https://messaging.twilio.com")),
        ("http://127.0.0.1:8001", ("http://127.0.0.1:8001", "http://127.0.0.1:8001")),
    ],
)
def test_the_base_url_takes_the_place_of_both_hosts(base: str | None, hosts: tuple[str, str]) -> None:
    asked: list[str] = []

    def take(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        page = {"messages": [], "page": 0, "page_size": 2}
        return httpx2.Response(200, json=page if request.method == "GET" else CREATED)

    with httpx2.Client(transport=httpx2.MockTransport(take)) as client:
        twilio, _ = open_call(client, base, "AC1", "token")
        twilio.messages.create(to="whatsapp:+1", from_="whatsapp:+2", body="x")
        twilio.messaging.v2.typing_indicator.create(channel="whatsapp", message_id=SID)
        twilio.messages.get_page("https://api.twilio.com/2010-04-01/Accounts/AC1/Messages.json?To=a%20b&PageSize=2")
    assert asked == [
        f"{hosts[0]}/2010-04-01/Accounts/AC1/Messages.json",
        f"{hosts[1]}/v2/Indicators/Typing.json",
        f"{hosts[0]}/2010-04-01/Accounts/AC1/Messages.json?To=a%20b&PageSize=2",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_error_text_is_the_same_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    error = TwilioRestException(400, "/Messages.json", "Unable to create record: bad number", 21211, "POST")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert "\x1b" in str(error)
    assert shorten(error) == "TwilioRestException: HTTP 400 (Twilio 21211): Unable to create record: bad number"


def test_no_text_and_no_token_reach_the_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with faulty(replies(answer(201, CREATED)), replies(answer(400, error_body(21211)))) as server:
        sender = line(server.url)
        sender.send(to="+31612345678", body="heel geheim", status_callback=CALLBACK)
        with pytest.raises(TwilioRestException):
            sender.send(to="+31612345678", body="heel geheim", status_callback=CALLBACK)
    assert caplog.records
    for secret in ("geheim", "twilio-token", base64.b64encode(b"AC0000").decode()[:6]):
        assert secret not in caplog.text


SINCE = datetime(2026, 3, 1, 11, 58, tzinfo=UTC)


def listed(sid: str, minute: int, **changed: Any) -> dict[str, Any]:
    """A message as the list shows it, created at so many minutes after 11."""
    return {
        "sid": sid, "body": f"tekst {sid}", "status": "delivered", "error_code": None,
        "date_created": f"Sun, 01 Mar 2026 11:{minute:02d}:00 +0000",
    } | changed  # fmt: skip


def page(*messages: dict[str, Any], more: str | None = None, **headers: str) -> bytes:
    body = {"messages": list(messages), "page": 0, "page_size": 50, "next_page_uri": more}
    return answer(200, body, **({"Date": "Sun, 01 Mar 2026 12:00:00 GMT"} | headers))


NEXT = f"/2010-04-01/Accounts/AC{'0' * 32}/Messages.json?PageSize=50&Page=1&PageToken=PASM2"


def test_a_list_says_what_was_sent_and_what_time_it_is() -> None:
    with faulty(
        replies(page(listed("SM2", 59), listed("SM1", 58, error_code=63024, status="Undelivered", body=None)))
    ) as server:
        found = line(server.url).find(to="+31612345678", since=SINCE)
        [seen] = server.seen
    assert (seen.method, urlsplit(seen.path).path) == ("GET", f"/2010-04-01/Accounts/AC{'0' * 32}/Messages.json")
    asked = dict(parse_qsl(urlsplit(seen.path).query))
    assert asked == {"To": "whatsapp:+31612345678", "From": "whatsapp:+31201234567", "PageSize": "50"}
    assert found == Listing(
        (
            Listed("SM2", "tekst SM2", datetime(2026, 3, 1, 11, 59, tzinfo=UTC), "delivered"),
            Listed("SM1", "", datetime(2026, 3, 1, 11, 58, tzinfo=UTC), "undelivered", "63024"),
        ),
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        reaches=True,
    )


def test_a_list_of_all_addresses() -> None:
    with faulty(replies(page())) as server:
        assert line(server.url).find(to=None, since=SINCE).messages == ()
        assert "To=" not in server.seen[0].path


def test_a_list_is_read_as_far_back_as_is_asked() -> None:
    with faulty(replies(page(listed("SM2", 59), more=NEXT)), replies(page(listed("SM1", 57), more=NEXT))) as server:
        found = line(server.url).find(to="+31612345678", since=SINCE)
        assert [seen.path for seen in server.seen][1:] == [NEXT]
    assert ([message.sid for message in found.messages], found.reaches) == (["SM2", "SM1"], True)


def test_a_list_that_goes_on_and_on_does_not_reach() -> None:
    with faulty(replies(page(listed("SM2", 59), more=NEXT))) as server:
        found = line(server.url).find(to="+31612345678", since=SINCE)
        assert len(server.seen) == 4
    assert not found.reaches


@pytest.mark.parametrize(
    ("data", "kind", "error_class"),
    [
        (page(Date=""), FailureKind.TRANSIENT, "no_date"),
        (page(Date="gisteren"), FailureKind.TRANSIENT, "no_date"),
        (answer(200, b"<html>", Date="Sun, 01 Mar 2026 12:00:00 GMT"), FailureKind.TRANSIENT, "broken_answer"),
        (answer(200, {"x": 1}, Date="Sun, 01 Mar 2026 12:00:00 GMT"), FailureKind.TRANSIENT, "broken_answer"),
        (page(listed("", 59)), FailureKind.TRANSIENT, "broken_answer"),
        (page(listed("SM1", 59, date_created=None)), FailureKind.TRANSIENT, "broken_answer"),
        (page(listed("SM1", 59, date_created="gisteren")), FailureKind.TRANSIENT, "broken_answer"),
        (answer(401, error_body(20003, 401)), FailureKind.CREDENTIAL, "credential"),
        (answer(429, error_body(20429, 429), Retry_After="7"), FailureKind.THROTTLED, "throttled"),
        (answer(500, error_body(20500, 500)), FailureKind.TRANSIENT, "unavailable"),
        (answer(404, error_body(20404, 404)), FailureKind.PERMANENT, "rejected"),
    ],
    ids=["no-date", "bad-date", "html", "json", "no-sid", "no-creation", "bad-creation", "401", "429", "500", "404"],
)
def test_a_list_that_cannot_be_had_or_read(data: bytes, kind: FailureKind, error_class: str) -> None:
    with faulty(replies(data)) as server, pytest.raises(Exception) as caught:  # noqa: PT011  # what it becomes is looked at
        line(server.url).find(to="+31612345678", since=SINCE)
    failure = classify(caught.value)
    assert (failure.kind, failure.error_class) == (kind, error_class)


@pytest.mark.parametrize(
    ("plan", "error_class"), [(silent, "timeout"), (close_at_once, "dropped"), (drips(b"x", 0.02), "dropped")]
)
def test_a_list_that_breaks_off(plan: Plan, error_class: str) -> None:
    with faulty(plan) as server, pytest.raises(Exception) as caught:  # noqa: PT011  # what it becomes is looked at
        TwilioLine(settings(TWILIO_API_BASE_URL=server.url), find_seconds=SHORT).find(to="+31612345678", since=SINCE)
    failure = classify(caught.value)
    assert failure.kind is FailureKind.TRANSIENT
    assert failure.error_class in (error_class, "timeout")


def test_a_template_takes_the_place_of_the_body() -> None:
    with faulty(replies(answer(201, CREATED))) as server:
        assert send(server.url, template=Template("HX1", {"1": "Hoi “jij”"})) == SID
        form = server.seen[0].form
    assert "Body" not in form
    assert (form["ContentSid"], json.loads(form["ContentVariables"])) == ("HX1", {"1": "Hoi “jij”"})
