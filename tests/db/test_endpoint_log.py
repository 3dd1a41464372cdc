"""The log tells of an endpoint when its state changes: once, by its id, and not with each delivery."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from shared.db.pool import Database
from shared.webhooks import endpoints
from tests.fakes.faulty_server import answer
from tests.fakes.gateway import SECRET, Gateway, Receiver

CHANGES = ("breaker_opened", "breaker_closed", "endpoint_disabled")


@pytest.fixture
def gateway(database: Database) -> Gateway:
    return Gateway(database)


def changes(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines of changes, in order."""
    lines = [json.loads(record.message) for record in caplog.records if record.name == "antwoord"]
    return [line for line in lines if line["event"] in CHANGES]


def test_a_breaker_is_logged_when_it_opens_and_when_it_closes(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="antwoord")
    with Receiver(answer(503, b"we are away")) as receiver:
        endpoint = gateway.endpoint(f"{receiver.url}?key=in-the-address", concurrency=1)
        gateway.deliveries(endpoint, 3)
        for _ in range(8):  # five failures open it, and probes that fail change nothing
            gateway.pass_gateway_time(600)
            gateway.all_due()
            gateway.app.worker.poll_once(1)
        assert len(receiver.arrivals) == 8
        opened = {
            "event": "breaker_opened",
            "endpoint_id": str(endpoint),
            "error_class": "unavailable",
            "http_status": 503,
        }
        assert changes(caplog) == [opened]
        receiver.says = answer(200)
        gateway.pass_gateway_time(600)
        gateway.all_due()
        gateway.app.worker.poll_once(8)
        gateway.run()
    assert changes(caplog) == [opened, {"event": "breaker_closed", "endpoint_id": str(endpoint)}]
    warned = {record.levelname for record in caplog.records if "breaker_opened" in record.message}
    assert warned == {"WARNING"}
    for hidden in (SECRET, "in-the-address", "we are away"):
        assert hidden not in caplog.text


def test_an_endpoint_that_is_gone_is_logged_once(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    with Receiver(answer(410)) as receiver:
        endpoint = gateway.endpoint(receiver.url)
        gateway.deliveries(endpoint, 4)
        gateway.all_due()
        gateway.app.worker.poll_once(8)
        gateway.run()
    assert changes(caplog) == [{"event": "endpoint_disabled", "endpoint_id": str(endpoint), "reason": "gone"}]


def test_who_disables_one_is_not_taken_for_the_endpoint(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    endpoint = gateway.endpoint("https://hooks.example.org/in")
    with gateway.database.connection() as connection:
        endpoints.disable(connection, endpoint, who="anna", reason="gone")
    assert changes(caplog) == [{"event": "endpoint_disabled", "endpoint_id": str(endpoint), "reason": "by a person"}]
    assert "anna" not in caplog.text
