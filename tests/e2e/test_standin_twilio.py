"""The Twilio stand-in, through Twilio's own client and request validator."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests
from starlette.datastructures import ImmutableMultiDict
from twilio.base.exceptions import TwilioRestException  # type: ignore[import-untyped]
from twilio.request_validator import RequestValidator  # type: ignore[import-untyped]

from local.standins.twilio import TwilioStandIn
from local.standins.twilio_callbacks import Step
from tests.e2e.receiver import Received, Receiver
from tests.e2e.twilio_client import client_of
from tests.fakes.eventually import eventually
from tests.fakes.faulty_server import closed_port

EMPLOYEE = "whatsapp:+319700000001"


@pytest.fixture(scope="module")
def app() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def twilio(app: Receiver) -> Iterator[TwilioStandIn]:
    steps = (Step("sent", 0.02), Step("delivered", 0.02), Step("read", 0.05))
    with TwilioStandIn(webhook_url=app.inbound_url, steps=steps) as standin:
        yield standin


@pytest.fixture
def client(twilio: TwilioStandIn, app: Receiver) -> Any:
    twilio.faults.clear()
    app.inbox.inbound.clear()
    app.inbox.status.clear()
    return client_of(twilio.url, twilio.account_sid, twilio.auth_token)


def send(client: Any, twilio: TwilioStandIn, body: str = "Dag!", **more: Any) -> Any:
    return client.messages.create(to=more.pop("to", EMPLOYEE), from_=twilio.whatsapp_from, body=body, **more)


def is_signed(received: Received, token: str) -> bool:
    valid = RequestValidator(token).validate(received.url, ImmutableMultiDict(received.pairs), received.signature)
    return bool(valid)


def test_a_message_is_accepted_and_its_states_are_posted_in_order(
    client: Any, twilio: TwilioStandIn, app: Receiver
) -> None:
    message = send(client, twilio, "Bedrag: € 0,23 + 5%", status_callback=app.status_url)
    assert (message.status, message.direction, message.body) == ("queued", "outbound-api", "Bedrag: € 0,23 + 5%")
    assert message.sid.startswith("SM")
    assert len(message.sid) == 34
    eventually(lambda: len(app.inbox.status) == 3)
    assert [item.form["MessageStatus"] for item in app.inbox.status] == ["sent", "delivered", "read"]
    for item in app.inbox.status:
        assert item.url == app.status_url
        assert item.form["MessageSid"] == message.sid
        assert is_signed(item, twilio.auth_token)
        assert not is_signed(item, "another token")
    fetched = client.messages(message.sid).fetch()
    assert (fetched.status, fetched.to) == ("read", EMPLOYEE)
    assert fetched.date_sent >= fetched.date_created


def test_an_undelivered_message_says_its_code(client: Any, twilio: TwilioStandIn, app: Receiver) -> None:
    twilio.delivery_errors["whatsapp:+319700000009"] = 63024
    send(client, twilio, to="whatsapp:+319700000009", status_callback=app.status_url)
    eventually(lambda: len(app.inbox.status) == 2)
    last = app.inbox.status[-1].form
    assert (last["MessageStatus"], last["ErrorCode"]) == ("undelivered", "63024")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"to": ""}, 400, 21604),
        ({"body": "a" * 1601}, 400, 21617),
        ({"body": "😀" * 801}, 400, 21617),
        ({"body": ""}, 400, 21602),
        ({"to": "whatsapp:+31 6"}, 400, 21211),
        ({"from_": "whatsapp:+31999999999"}, 400, 63007),
        ({"to": "whatsapp:+319700000008"}, 400, 21610),
    ],
)
def test_requests_are_checked(
    client: Any, twilio: TwilioStandIn, change: dict[str, str], status: int, code: int
) -> None:
    twilio.opted_out.add("whatsapp:+319700000008")
    before = len(twilio.sent)
    given = {"to": EMPLOYEE, "from_": twilio.whatsapp_from, "body": "Dag"} | change
    with pytest.raises(TwilioRestException) as refused:
        client.messages.create(**given)
    assert (refused.value.status, refused.value.code) == (status, code)
    assert len(twilio.sent) == before


def test_1600_units_are_accepted(client: Any, twilio: TwilioStandIn) -> None:
    assert send(client, twilio, "😀" * 800).body == "😀" * 800


def test_a_wrong_token_is_refused(twilio: TwilioStandIn) -> None:
    with pytest.raises(TwilioRestException) as refused:
        send(client_of(twilio.url, twilio.account_sid, "wrong"), twilio)
    assert (refused.value.status, refused.value.code) == (401, 20003)


def test_the_list_filters_and_pages(client: Any, twilio: TwilioStandIn) -> None:
    to = "whatsapp:+319700000077"
    sids = [send(client, twilio, f"nummer {number}", to=to).sid for number in range(7)]
    found = client.messages.list(to=to, from_=twilio.whatsapp_from, page_size=3)
    assert [message.sid for message in found] == sids[::-1], "newest first, over three pages"
    assert client.messages.list(to=to, from_="whatsapp:+31999999999") == []
    now = datetime.now(UTC)
    assert len(client.messages.list(to=to, date_sent_after=now - timedelta(minutes=1))) == 7
    assert client.messages.list(to=to, date_sent_after=now + timedelta(minutes=1)) == []
    assert client.messages.list(to=to, date_sent_before=now - timedelta(minutes=1)) == []
    assert len(client.messages.list(to=to, date_sent=now, limit=4)) == 4
    page = client.messages.page(to=to, page_size=3)
    assert page.next_page_url is not None
    shown_at = email.utils.parsedate_to_datetime(client.http_client.last_headers["date"]).timestamp()
    assert abs(shown_at - time.time()) < 20


def test_an_inbound_message_is_posted_as_whatsapp_does(client: Any, twilio: TwilioStandIn, app: Receiver) -> None:
    sid = twilio.receive("+319700000001", "Hoi, één vraag: 5 + 5 = ?", profile_name="Sam", extra={"NewField": ""})
    form = app.inbox.inbound[0].form
    assert is_signed(app.inbox.inbound[0], twilio.auth_token)
    assert (form["MessageSid"], form["SmsMessageSid"], form["SmsSid"]) == (sid, sid, sid)
    assert (form["From"], form["To"], form["WaId"]) == (EMPLOYEE, twilio.whatsapp_from, "319700000001")
    assert (form["Body"], form["NumMedia"], form["ProfileName"]) == ("Hoi, één vraag: 5 + 5 = ?", "0", "Sam")
    assert form["NewField"] == ""
    fetched = client.messages(sid).fetch()
    assert (fetched.direction, fetched.status) == ("inbound", "received")


def test_a_photo_has_no_text(twilio: TwilioStandIn, app: Receiver, client: Any) -> None:
    sid = twilio.receive("+319700000001", "", media_url=f"{twilio.url}/photo.jpg", media_type="image/jpeg")
    received = app.inbox.inbound[0]
    assert is_signed(received, twilio.auth_token)
    assert sid.startswith("MM")
    assert (received.form["Body"], received.form["NumMedia"], received.form["MessageType"]) == ("", "1", "image")
    assert received.form["MediaContentType0"] == "image/jpeg"


def test_an_inbound_message_is_tried_three_times(twilio: TwilioStandIn, app: Receiver, client: Any) -> None:
    app.answers[:] = [503, 500]
    sid = twilio.receive("+319700000001", "Hoi")
    assert len(app.inbox.inbound) == 3
    message = twilio.messages.find(sid)
    assert message is not None
    assert message.webhook == "answered"
    assert [item.status for item in twilio.posted if item.sid == sid] == [503, 500, 200]
    app.answers[:] = [403]
    refused = twilio.messages.find(twilio.receive("+319700000001", "Hoi"))
    assert refused is not None
    assert refused.webhook == "failed"
    assert len(app.inbox.inbound) == 4, "a refusal is not tried again"


def test_nobody_there_is_recorded(client: Any) -> None:
    with TwilioStandIn(webhook_url=f"http://127.0.0.1:{closed_port()}/api/twilio/inbound") as lonely:
        sid = lonely.receive("+319700000001", "Hoi")
        message = lonely.messages.find(sid)
        assert message is not None
        assert message.webhook == "failed"
        assert [item.status for item in lonely.posted] == [None, None, None]


def test_the_typing_indicator_marks_as_read(client: Any, twilio: TwilioStandIn) -> None:
    sid = twilio.receive("+319700000001", "Hoi")
    heard: list[str] = []
    twilio.messages.listeners.append(lambda what, message: heard.append(f"{what} {message.sid}"))
    assert client.messaging.v2.typing_indicator.create(channel="whatsapp", message_id=sid).success is True
    message = twilio.messages.find(sid)
    assert message is not None
    assert message.read
    assert f"typing {sid}" in heard
    with pytest.raises(TwilioRestException) as refused:
        client.messaging.v2.typing_indicator.create(channel="whatsapp", message_id="SM" + "0" * 32)
    assert refused.value.status == 404


def test_an_employee_writes_over_http(twilio: TwilioStandIn, app: Receiver, client: Any) -> None:
    answer = requests.post(f"{twilio.url}/phone/messages", json={"from": "+319700000002", "body": "Hoi"}, timeout=5)
    assert answer.status_code == 202
    eventually(lambda: app.inbox.inbound)
    assert app.inbox.inbound[0].form["MessageSid"] == answer.json()["sid"]
    assert requests.post(f"{twilio.url}/phone/messages", json=["x"], timeout=5).status_code == 400


def test_a_status_fault_does_nothing(client: Any, twilio: TwilioStandIn) -> None:
    before = len(twilio.sent)
    twilio.faults.add("create", "status", status=429, code=20429, headers={"Retry-After": "2"}, times=1)
    with pytest.raises(TwilioRestException) as refused:
        send(client, twilio)
    assert (refused.value.status, refused.value.code) == (429, 20429)
    assert client.http_client.last_headers["retry-after"] == "2"
    assert len(twilio.sent) == before
    send(client, twilio)
    assert len(twilio.sent) == before + 1, "the rule struck once"


def test_drops_before_and_after(client: Any, twilio: TwilioStandIn, app: Receiver) -> None:
    before = len(twilio.sent)
    twilio.faults.add("create", "drop_before", times=1)
    with pytest.raises(requests.ConnectionError):
        send(client, twilio, status_callback=app.status_url)
    assert len(twilio.sent) == before
    twilio.faults.add("create", "drop_after", times=1)
    with pytest.raises(requests.ConnectionError):
        send(client, twilio, status_callback=app.status_url)
    assert len(twilio.sent) == before + 1
    eventually(lambda: len(app.inbox.status) == 3)


def test_slow_drip_and_broken_answers(client: Any, twilio: TwilioStandIn) -> None:
    hasty = client_of(twilio.url, twilio.account_sid, twilio.auth_token, timeout=0.2)
    before = len(twilio.sent)
    twilio.faults.add("create", "slow", seconds=20, times=1)
    with pytest.raises(requests.Timeout):
        send(hasty, twilio)
    eventually(lambda: len(twilio.sent) == before + 1, what="what was done at once")
    twilio.faults.add("list", "broken_body", times=1)
    with pytest.raises(ValueError, match=r"Unterminated|Expecting|delimiter"):
        client.messages.list(limit=1)
    twilio.faults.add("fetch", "drip", seconds=0, times=1)
    assert client.messages(twilio.sent[-1].sid).fetch().sid == twilio.sent[-1].sid


def test_faults_and_requests_over_http(client: Any, twilio: TwilioStandIn) -> None:
    faults = f"{twilio.url}/_faults"
    rule = {"where": "*", "do": "status", "status": 500, "times": 2}
    made = requests.post(faults, json=rule, timeout=5)
    assert made.status_code == 201
    assert requests.get(faults, timeout=5).json() == made.json()
    with pytest.raises(TwilioRestException) as failed:
        send(client, twilio, "kwijt")
    assert failed.value.code == 20500
    assert requests.get(faults, timeout=5).json()[0]["times"] == 1
    assert requests.delete(faults, timeout=5).status_code == 204
    assert requests.get(faults, timeout=5).json() == []
    for wrong in (
        {"do": "explode"},
        {"do": "slow", "where": "moon"},
        {"do": "slow", "seconds": "x"},
        [1],
        {"x": 1},
        {"do": "slow", "times": 0},
    ):
        assert requests.post(faults, json=wrong, timeout=5).status_code == 400
    last = requests.get(f"{twilio.url}/_requests", timeout=5).json()[-1]
    assert (last["where"], last["method"], last["form"]["Body"]) == ("create", "POST", "kwijt")
    assert twilio.requests[-1].form["To"] == EMPLOYEE
