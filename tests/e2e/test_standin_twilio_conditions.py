"""How the Twilio stand-in behaves beside its faults: what its list shows and when, its clock, its callbacks and webhooks."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import requests
from twilio.base.exceptions import TwilioException, TwilioRestException  # type: ignore[import-untyped]

from local.standins.twilio import TwilioStandIn
from local.standins.twilio_admin import FOREIGN
from local.standins.twilio_callbacks import Step
from tests.e2e.receiver import Receiver
from tests.e2e.twilio_client import client_of
from tests.fakes.eventually import eventually
from tests.fakes.numbers import new_number

TEMPLATE = "HX" + "0a" * 16


@pytest.fixture(scope="module")
def app() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def twilio(app: Receiver) -> Iterator[TwilioStandIn]:
    steps = (Step("sent", 0.01), Step("delivered", 0.01), Step("read", 0.01))
    with TwilioStandIn(webhook_url=app.inbound_url, steps=steps) as standin:
        yield standin


@pytest.fixture
def client(twilio: TwilioStandIn, app: Receiver) -> Iterator[Any]:
    app.inbox.inbound.clear()
    app.inbox.status.clear()
    yield client_of(twilio.url, twilio.account_sid, twilio.auth_token)
    twilio.conditions.reset()
    twilio.faults.clear()
    twilio.opted_out.clear()


@pytest.fixture
def employee() -> str:
    return f"whatsapp:{new_number()}"


def send(client: Any, twilio: TwilioStandIn, to: str, body: str = "Dag!", **more: Any) -> Any:
    return client.messages.create(to=to, from_=twilio.whatsapp_from, body=body, **more)


def listed(client: Any, twilio: TwilioStandIn, to: str) -> list[str]:
    return [message.body for message in client.messages.list(to=to, from_=twilio.whatsapp_from)]


def statuses(app: Receiver, sid: str) -> list[str]:
    return [item.form["MessageStatus"] for item in list(app.inbox.status) if item.form["MessageSid"] == sid]


# ---- what the list shows


def test_a_lagging_list_shows_what_is_old_enough(client: Any, twilio: TwilioStandIn, employee: str) -> None:
    before = send(client, twilio, employee, "eerst").sid
    eventually(lambda: client.messages(before).fetch().status == "read")
    twilio.conditions.list_lag = 30.0
    assert listed(client, twilio, employee) == []
    twilio.messages.age(30)
    sid = send(client, twilio, employee, "daarna").sid
    assert listed(client, twilio, employee) == ["eerst"]
    assert client.messages(sid).fetch().body == "daarna", "the list lags, not the message"
    eventually(lambda: client.messages(sid).fetch().status == "read")
    requests.post(f"{twilio.url}/_age", json={"seconds": 30}, timeout=5).raise_for_status()
    assert listed(client, twilio, employee) == ["daarna", "eerst"]


def test_bodies_are_redacted_all_or_one(client: Any, twilio: TwilioStandIn, employee: str) -> None:
    first = send(client, twilio, employee, "eerst")
    second = send(client, twilio, employee, "daarna")
    first.update(body="")
    assert listed(client, twilio, employee) == ["daarna", ""]
    twilio.conditions.redacted = True
    assert listed(client, twilio, employee) == ["", ""]
    assert client.messages(second.sid).fetch().body == ""
    assert [message.body for message in twilio.sent[-1:]] == ["daarna"], "a test still sees what was sent"
    client.messages(second.sid).delete()
    assert len(listed(client, twilio, employee)) == 1
    with pytest.raises(TwilioRestException) as gone:
        client.messages(second.sid).fetch()
    assert (gone.value.status, gone.value.code) == (404, 20404)


def test_somebody_elses_message_is_in_the_list_and_not_ours(client: Any, twilio: TwilioStandIn, employee: str) -> None:
    sid = send(client, twilio, employee, "van ons").sid
    placed = twilio.place(employee, "van een ander")
    assert listed(client, twilio, employee) == ["van een ander", "van ons"]
    assert [message.sid for message in twilio.sent if message.to == employee] == [sid]
    assert client.messages(placed).fetch().direction == "outbound-api"
    other = f"whatsapp:{new_number()}"
    twilio.conditions.foreign = True
    assert listed(client, twilio, other) == [FOREIGN]
    assert listed(client, twilio, other) == [FOREIGN], "once"
    made = requests.post(f"{twilio.url}/_foreign", json={"to": other, "body": "nog een"}, timeout=5)
    assert made.status_code == 201
    assert listed(client, twilio, other)[0] == "nog een"


def test_a_template_is_listed_with_twilios_text(client: Any, twilio: TwilioStandIn, employee: str) -> None:
    send(client, twilio, employee, "ons eigen", content_sid=TEMPLATE, content_variables=json.dumps({"1": "200 uur"}))
    assert listed(client, twilio, employee) == ["Hoi! Hier is het antwoord op je vraag: 200 uur"]
    assert (twilio.sent[-1].content_sid, twilio.sent[-1].content_variables) == (TEMPLATE, '{"1": "200 uur"}')


@pytest.mark.parametrize(
    ("given", "code"),
    [({"content_sid": "HX1"}, 21655), ({"content_sid": TEMPLATE, "content_variables": "[1]"}, 21656)],
    ids=["sid", "variables"],
)
def test_a_template_is_checked(
    client: Any, twilio: TwilioStandIn, employee: str, given: dict[str, str], code: int
) -> None:
    with pytest.raises(TwilioRestException) as refused:
        send(client, twilio, employee, **given)
    assert (refused.value.status, refused.value.code) == (400, code)


def test_the_clock_may_be_wrong_everywhere_at_once(client: Any, twilio: TwilioStandIn, employee: str) -> None:
    twilio.conditions.clock_offset = 90.0
    message = send(client, twilio, employee)
    said = email.utils.parsedate_to_datetime(client.http_client.last_headers["date"]).timestamp()
    assert said - time.time() == pytest.approx(90, abs=20)
    assert message.date_created.timestamp() == pytest.approx(said, abs=20)
    ahead = datetime.fromtimestamp(time.time() + 60, UTC)
    assert len(client.messages.list(to=employee, date_sent_after=ahead)) == 1
    twilio.conditions.clock_offset = 0.0
    assert client.messages.list(to=employee, date_sent_after=ahead) == []


@pytest.mark.parametrize("fault", ["status", "drop_before", "broken_body"])
def test_the_list_fails(client: Any, twilio: TwilioStandIn, employee: str, fault: Any) -> None:
    twilio.faults.add("list", fault, status=500, times=1)
    with pytest.raises((TwilioException, requests.ConnectionError, ValueError)):
        client.messages.list(to=employee, limit=1)
    assert client.messages.list(to=employee, limit=1) == []


def test_accepted_behind_an_error(client: Any, twilio: TwilioStandIn, employee: str) -> None:
    twilio.faults.add("create", "status_after", status=502, times=1)
    with pytest.raises(TwilioRestException) as failed:
        send(client, twilio, employee, "toch")
    assert failed.value.status == 502
    assert listed(client, twilio, employee) == ["toch"]


# ---- callbacks


def test_callbacks_twice(client: Any, twilio: TwilioStandIn, app: Receiver, employee: str) -> None:
    twilio.conditions.callbacks = "twice"
    sid = send(client, twilio, employee, status_callback=app.status_url).sid
    eventually(lambda: len(statuses(app, sid)) == 6)
    assert statuses(app, sid) == ["sent", "sent", "delivered", "delivered", "read", "read"]


def test_callbacks_reversed(client: Any, twilio: TwilioStandIn, app: Receiver, employee: str) -> None:
    twilio.conditions.callbacks = "reversed"
    sid = send(client, twilio, employee, status_callback=app.status_url).sid
    eventually(lambda: len(statuses(app, sid)) == 3)
    assert statuses(app, sid) == ["read", "delivered", "sent"]


def test_callbacks_lost(client: Any, twilio: TwilioStandIn, app: Receiver, employee: str) -> None:
    twilio.conditions.callbacks = "lost"
    sid = send(client, twilio, employee, status_callback=app.status_url).sid
    eventually(lambda: client.messages(sid).fetch().status == "read")
    assert statuses(app, sid) == []


def test_callbacks_late(client: Any, twilio: TwilioStandIn, app: Receiver, employee: str) -> None:
    twilio.conditions.callbacks, twilio.conditions.callback_delay = "late", 600.0
    sid = send(client, twilio, employee, status_callback=app.status_url).sid
    eventually(lambda: client.messages(sid).fetch().status == "read")
    assert statuses(app, sid) == []
    twilio.conditions.callback_delay = 0.2
    sid = send(client, twilio, employee, status_callback=app.status_url).sid
    eventually(lambda: len(statuses(app, sid)) == 3)


def test_a_callback_before_the_answer(client: Any, twilio: TwilioStandIn, app: Receiver, employee: str) -> None:
    twilio.conditions.callbacks = "early"
    sid = send(client, twilio, employee, status_callback=app.status_url).sid
    assert statuses(app, sid)[:1] == ["sent"], "it was posted before the create call was answered"
    eventually(lambda: statuses(app, sid) == ["sent", "delivered", "read"])


def test_the_window_of_24_hours(client: Any, twilio: TwilioStandIn, employee: str) -> None:
    twilio.conditions.keeps_window = True
    twilio.receive(employee, "Hoi")
    inside = send(client, twilio, employee).sid
    eventually(lambda: client.messages(inside).fetch().status == "read")
    twilio.messages.age(24 * 60 * 60)
    outside = send(client, twilio, employee).sid
    eventually(lambda: client.messages(outside).fetch().status == "undelivered")
    assert client.messages(outside).fetch().error_code == 63016
    template = send(client, twilio, employee, content_sid=TEMPLATE).sid
    eventually(lambda: client.messages(template).fetch().status == "read")


# ---- inbound messages


def test_a_webhook_that_never_comes_leaves_the_message_in_the_list(
    client: Any, twilio: TwilioStandIn, app: Receiver, employee: str
) -> None:
    twilio.conditions.webhook = "lost"
    sid = twilio.receive(employee, "Hoi")
    assert app.inbox.inbound == []
    found = client.messages.list(to=twilio.whatsapp_from, from_=employee)
    assert [(message.sid, message.direction, message.status) for message in found] == [(sid, "inbound", "received")]
    twilio.conditions.webhook = "normal"
    assert twilio.redeliver(sid)
    assert [item.form["MessageSid"] for item in app.inbox.inbound] == [sid]


def test_a_webhook_twice_and_late(client: Any, twilio: TwilioStandIn, app: Receiver, employee: str) -> None:
    twilio.conditions.webhook = "twice"
    sid = twilio.receive(employee, "Hoi")
    assert [item.form["MessageSid"] for item in app.inbox.inbound] == [sid, sid]
    twilio.conditions.webhook, twilio.conditions.webhook_delay = "late", 0.3
    began = time.monotonic()
    twilio.receive(employee, "Nog eens", wait=False)
    eventually(lambda: len(app.inbox.inbound) == 3)
    assert time.monotonic() - began >= 0.3


def test_twilio_keeps_its_own_list_of_who_said_stop(
    client: Any, twilio: TwilioStandIn, app: Receiver, employee: str
) -> None:
    twilio.receive(employee, "stop")
    assert "OptOutType" not in app.inbox.inbound[-1].form, "unless it is switched on"
    twilio.conditions.keeps_stop = True
    twilio.receive(employee, " Stop ")
    assert app.inbox.inbound[-1].form["OptOutType"] == "STOP"
    assert listed(client, twilio, employee) == ["(STOP)"], "and it answers by itself"
    with pytest.raises(TwilioRestException) as refused:
        send(client, twilio, employee)
    assert (refused.value.status, refused.value.code) == (400, 21610)
    twilio.receive(employee, "START")
    assert app.inbox.inbound[-1].form["OptOutType"] == "START"
    send(client, twilio, employee)
    twilio.receive(employee, "stop please")
    assert "OptOutType" not in app.inbox.inbound[-1].form


# ---- over HTTP


def test_conditions_over_http(client: Any, twilio: TwilioStandIn) -> None:
    url = f"{twilio.url}/_conditions"
    changed = requests.post(url, json={"redacted": True, "list_lag": 5, "callbacks": "lost"}, timeout=5)
    assert changed.status_code == 200
    assert twilio.conditions.redacted
    assert requests.get(url, timeout=5).json() == changed.json()
    for wrong in ({"moon": 1}, {"list_lag": "x"}, {"redacted": 1}, {"callbacks": "never"}, {"list_lag": True}):
        assert requests.post(url, json={"webhook": "lost"} | wrong, timeout=5).status_code == 400
    assert twilio.conditions.webhook == "normal", "all or none"
    assert requests.delete(url, timeout=5).json()["redacted"] is False
    for path in ("_conditions", "_foreign", "_age"):
        assert requests.post(f"{twilio.url}/{path}", json=[1], timeout=5).status_code == 400
        assert requests.post(f"{twilio.url}/{path}", data="{}", timeout=5).status_code == 415
