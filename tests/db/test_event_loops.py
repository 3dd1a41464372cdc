"""Events that come back: an endpoint that sends what it gets to a source of ours, at once or by way of another gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.db.pool import Database
from shared.request import Request, Response
from shared.signature import sign_standard
from shared.webhooks import sources
from shared.webhooks.sources import NewSource
from tests.fakes.faulty_server import Seen, answer
from tests.fakes.gateway import SECRET, VAULT, Gateway, Receiver

ROUNDS = 40  # a loop would use them all
ASKS_FOR = "UPDATE webhook_endpoints SET events = %(events)s WHERE id = %(id)s"
EVENTS = """
    SELECT e.type, s.name, (SELECT array_agg(n.url || ' ' || d.state ORDER BY n.url)
        FROM webhook_deliveries d JOIN webhook_endpoints n ON n.id = d.endpoint_id WHERE d.event_id = e.id)
    FROM webhook_events e LEFT JOIN webhook_sources s ON s.id = e.source_id ORDER BY e.seq
"""


@pytest.fixture
def gateway(database: Database) -> Gateway:
    return Gateway(database)


def add_source(gateway: Gateway, **options: Any) -> None:
    with gateway.database.connection() as connection:
        wanted = NewSource(name="back", scheme="standard", **options)
        sources.add(connection, wanted, vault=VAULT, who="anna", secret=SECRET)


def add_endpoint(gateway: Gateway, url: str, *events: str) -> UUID:
    endpoint = gateway.endpoint(url)
    gateway.execute(ASKS_FOR, id=endpoint, events=list(events))
    return endpoint


def sends_back(gateway: Gateway, changed: Callable[[Seen], tuple[dict[str, str], bytes]]) -> Callable[[Seen], bytes]:
    """What it gets comes in again, `changed`."""

    return lambda seen: answer(received(gateway, *changed(seen)).status)


def received(gateway: Gateway, headers: dict[str, str], body: bytes) -> Response:
    request = Request("https://antwoord.example.org/api/events/back", headers, body)
    return gateway.app.receive_event("back", request)


def comes_in(gateway: Gateway, document: dict[str, Any]) -> None:
    assert received(gateway, *signed(document)).status == 200


def as_it_is(seen: Seen) -> tuple[dict[str, str], bytes]:
    return {name.lower(): value for name, value in seen.headers.items()}, seen.body


def as_their_own(seen: Seen) -> tuple[dict[str, str], bytes]:
    """Another gateway has taken it in, and delivers an event of its own with the same data."""
    return signed(json.loads(seen.body) | {"source": "ours", "type": "their.failed"})


def signed(document: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """A genuine request with a new event."""
    identity, timestamp = f"evt_{uuid4().hex}", int(time.time())
    body = json.dumps(document | {"id": identity}, separators=(",", ":"), sort_keys=True).encode()
    return {
        "webhook-id": identity,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign_standard(identity, timestamp, body, SECRET),
    }, body


def run_out(gateway: Gateway) -> None:
    """Everything that is due, and what that makes due: it ends."""
    for _ in range(ROUNDS):
        if not gateway.app.worker.poll_once(8):
            return
    raise AssertionError(f"it goes round: {gateway.rows(EVENTS)}")


def test_what_an_endpoint_of_ours_sends_back_to_us_goes_nowhere(gateway: Gateway) -> None:
    """Nothing here fails: without an end to it, each round would be another event."""
    add_source(gateway)
    with Receiver() as receiver:
        receiver.says = sends_back(gateway, as_it_is)
        add_endpoint(gateway, receiver.url, "*")
        comes_in(gateway, {"type": "response.completed", "data": {}})
        run_out(gateway)
        assert len(receiver.arrivals) == 1
    assert [row[2] for row in gateway.rows(EVENTS)] == [[f"{receiver.url} delivered"], None]


def test_a_job_failed_that_comes_back_and_cannot_be_delivered_is_not_told_again(gateway: Gateway) -> None:
    add_source(gateway)
    with Receiver() as pager, Receiver(answer(400)) as broken:
        pager.says = sends_back(gateway, as_it_is)
        add_endpoint(gateway, pager.url, "job.failed")
        gateway.deliveries(add_endpoint(gateway, broken.url, "job.failed"))
        run_out(gateway)
        assert (len(pager.arrivals), len(broken.arrivals)) == (1, 2), "that it died is told, and no more"
    told = [row for row in gateway.rows(EVENTS) if row[0] == "job.failed"]
    assert [(source, ways and sorted(way.split()[1] for way in ways)) for _, source, ways in told] == [
        (None, ["dead", "delivered"]), ("back", None),
    ]  # fmt: skip


def test_nor_when_another_gateway_has_made_an_event_of_its_own_of_it(gateway: Gateway) -> None:
    add_source(gateway)
    with Receiver() as pager, Receiver(answer(400)) as broken:
        pager.says = sends_back(gateway, as_their_own)
        add_endpoint(gateway, pager.url, "job.failed")
        gateway.deliveries(add_endpoint(gateway, broken.url, "their.*"))
        run_out(gateway)
        assert (len(pager.arrivals), len(broken.arrivals)) == (1, 2)
    assert [row[:2] for row in gateway.rows(EVENTS)][1:] == [("job.failed", None), ("their.failed", "back")]


def test_a_vendor_s_own_job_failed_that_cannot_be_delivered_is_told(gateway: Gateway) -> None:
    """That its type is the same has nothing to do with ours."""
    add_source(gateway)
    with Receiver() as pager, Receiver(answer(400)) as broken:
        add_endpoint(gateway, pager.url, "job.failed")
        add_endpoint(gateway, broken.url, "*")
        comes_in(gateway, {"type": "job.failed", "data": {"job": "transcription"}})
        run_out(gateway)
        assert len(broken.arrivals) == 1, "a * alone asks for what sources send, and not for our own"
        assert sorted(json.loads(one.seen.body)["source"] for one in pager.arrivals) == ["antwoord", "back"]
