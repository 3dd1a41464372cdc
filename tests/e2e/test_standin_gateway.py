"""The stand-ins of the webhook gateway: what the vendor signs and repeats, and what the receiver believes and remembers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Iterator
from threading import Lock
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from local.gateway.switches import RULES, Switches
from local.standins.receiver import ReceiverStandIn
from local.standins.server import Call, StandIn
from local.standins.vendor import COPIES, TYPES, Sent, Vendor
from shared.signature import new_secret, sign_standard, sign_timestamped
from tests.fakes.eventually import eventually

SECRET = new_secret()


class Taker(StandIn):
    """Takes everything, checks the vendor's signature by the specification's words, and keeps what came."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[dict[str, Any]] = []
        self._lock = Lock()

    def routes(self) -> list[BaseRoute]:
        return [Route("/events", self.operation("hook", self._take), methods=["POST"])]

    def failure(self, status: int, code: int | str | None) -> Response:
        return Response(status_code=status)

    def _take(self, call: Call) -> Response:
        headers = call.request.headers
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + call.body
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        with self._lock:
            self.came.append({
                "id": headers["webhook-id"], "body": call.body, "is_genuine": headers["webhook-signature"] == expected,
                "age": time.time() - int(headers["webhook-timestamp"]),
            })  # fmt: skip
        return JSONResponse({})


@pytest.fixture
def taker() -> Iterator[Taker]:
    with Taker() as running:
        yield running


@pytest.fixture
def vendor(taker: Taker) -> Iterator[Vendor]:
    made = Vendor(f"{taker.url}/events", SECRET, pauses=(0.01, 0.01))
    yield made
    made.close()


def over(sent: Sent, tries: int) -> Sent:
    eventually(lambda: sent.is_over and len(sent.tries) == tries, what="the end of sending")
    return sent


def test_the_vendor_signs_by_the_book_and_tries_again_with_the_same_id(vendor: Vendor, taker: Taker) -> None:
    taker.faults.add("hook", "status", status=503, times=1)
    taker.faults.add("hook", "drop_after", times=1)
    sent = over(vendor.send("batch.completed"), 3)
    assert [tried.status for tried in sent.tries] == [503, None, 200]
    assert sent.is_accepted
    assert len({(came["id"], came["body"]) for came in taker.came}) == 1
    assert all(came["is_genuine"] and came["age"] < 60 for came in taker.came)
    assert taker.requests[0].json["type"] == "batch.completed"
    assert taker.requests[0].json["data"]["id"].startswith(f"{TYPES['batch.completed']}_")


def test_the_vendor_gives_up(vendor: Vendor, taker: Taker) -> None:
    taker.faults.add("hook", "status", status=500)
    assert not over(vendor.send(), 3).is_accepted


def test_what_is_wrong_on_purpose_is_wrong_in_that_way(vendor: Vendor, taker: Taker) -> None:
    over(vendor.send(how="many"), COPIES)
    assert len({(came["id"], came["body"]) for came in taker.came}) == 1
    taker.came.clear()
    over(vendor.send(how="changed"), 2)
    first, second = taker.came
    assert (first["id"], first["body"] == second["body"]) == (second["id"], False)
    assert second["is_genuine"]
    taker.came.clear()
    over(vendor.send(how="forged"), 1)
    assert not taker.came[0]["is_genuine"]
    taker.came.clear()
    over(vendor.send(how="old"), 1)
    assert taker.came[0]["is_genuine"]
    assert taker.came[0]["age"] > 3000
    taker.came.clear()
    over(vendor.send(how="poison"), 10)
    assert len({came["id"] for came in taker.came}) == 10
    assert all(came["is_genuine"] for came in taker.came)


@pytest.fixture
def receiver() -> Iterator[ReceiverStandIn]:
    with ReceiverStandIn([SECRET]) as running:
        yield running


def deliver(receiver: ReceiverStandIn, message_id: str, *, secret: str = SECRET, timestamped: str | None = None,
            **headers: str) -> httpx2.Response:  # fmt: skip
    """What the gateway sends."""
    body, now = b'{"type":"response.completed"}', int(time.time())
    signed = {
        "webhook-id": message_id, "webhook-timestamp": str(now),
        "webhook-signature": sign_standard(message_id, now, body, secret),
        "X-Webhook-Signature": sign_timestamped(now, body, [timestamped or secret]),
    }  # fmt: skip
    return httpx2.post(receiver.hook_url, content=body, headers=signed | headers, trust_env=False, timeout=5)


def test_the_receiver_acts_once_on_each_event_and_believes_only_both_signatures(receiver: ReceiverStandIn) -> None:
    assert deliver(receiver, "evt_1").json() == {"acted": True}
    assert deliver(receiver, "evt_1", **{"X-Replay-Id": "r"}).json() == {"acted": False}
    assert deliver(receiver, "evt_2", secret=new_secret()).status_code == 403
    assert deliver(receiver, "evt_2", timestamped="other").status_code == 403
    counts = receiver.counts
    assert (counts.acted, counts.seen, counts.refused) == (1, 1, 2)
    assert [(came.message_id, came.verdict, came.replay_id) for came in receiver.arrivals] == [
        ("evt_1", "acted", None), ("evt_1", "seen", "r"), ("evt_2", "refused", None), ("evt_2", "refused", None),
    ]  # fmt: skip
    receiver.secrets = []
    assert deliver(receiver, "evt_3").status_code == 403


@pytest.mark.parametrize(
    ("name", "status", "acted"),
    [("down", 500, 0), ("throttled", 429, 0), ("refuses", 400, 0), ("gone", 410, 0), ("drop_before", None, 0),
     ("drop_after", None, 1), ("gateway", 502, 1)],
)  # fmt: skip
def test_each_switch_disturbs_in_its_own_way_until_it_is_off(
    receiver: ReceiverStandIn, name: str, status: int | None, acted: int
) -> None:
    switches = Switches(receiver.faults)
    switches.turn(name, on=True)
    assert switches.turned_on() == [name]
    try:
        answered = deliver(receiver, "evt_1")
        assert answered.status_code == status
        assert answered.headers.get("Retry-After") == ("10" if name == "throttled" else None)
    except httpx2.HTTPError:
        assert status is None
    assert receiver.counts.acted == acted
    switches.turn_all_off()
    assert switches.turned_on() == []
    assert deliver(receiver, "evt_2").status_code == 200


def test_a_switch_is_off_when_somebody_clears_its_rule(receiver: ReceiverStandIn) -> None:
    switches = Switches(receiver.faults)
    for name in RULES:
        switches.turn(name, on=True)
    assert switches.turned_on() == list(RULES)
    receiver.faults.clear()
    assert switches.turned_on() == []
    with pytest.raises(KeyError):
        switches.turn("nothing", on=True)
