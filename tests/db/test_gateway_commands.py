"""The gateway's commands: those of docs/webhooks.md as they stand there, and what they say of an endpoint that takes nothing."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.output import Status
from shared.db.pool import Database
from shared.signature import new_secret, sign_hub, sign_standard, sign_timestamped
from shared.webhooks import endpoints
from tests.fakes.eventually import eventually
from tests.fakes.faulty_server import answer
from tests.fakes.gateway import Gateway, Receiver
from tests.fakes.senders import SECRETS_KEY, Sending

PAGE = Path(__file__).parents[2] / "docs" / "webhooks.md"
AT = 1750861210
EVENTS = "SELECT type, subject, extract(epoch FROM occurred_at)::int, data FROM webhook_events"
CUSTOMER = {"id": "cus_1", "object": "customer"}
STRIPE = {"id": "evt_1", "created": AT, "type": "customer.created", "data": {"object": CUSTOMER}}
GITHUB = {"action": "opened", "issue": {"number": 7}}
META = {"object": "page", "entry": [{"id": "1", "time": AT}]}
OPENAI = {
    "id": "evt_1", "object": "event", "created_at": AT, "type": "response.completed", "data": {"id": "resp_1"},
}  # fmt: skip
NAME = "SELECT name FROM webhook_endpoints WHERE id = %(id)s"
EVENT = "SELECT 'evt_' || replace(event_id::text, '-', '') FROM webhook_deliveries WHERE id = %(id)s"


@pytest.fixture
def world(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Sending:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("SECRETS_KEY", SECRETS_KEY)
    return Sending(database)


@pytest.fixture
def gateway(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("OUTBOUND_ALLOW_HOSTS", "127.0.0.1")
    monkeypatch.setenv("COLUMNS", "300")
    return Gateway(database)


def command_of(page: str, vendor: str) -> list[str]:
    """The words behind `./antwoord` of the command that adds it, with its continued lines."""
    found = re.search(rf"\./antwoord (sources add {vendor} (?:[^`\n]*\\\n)*[^`\n]*)", page)
    assert found, vendor
    return shlex.split(found[1].replace("\\\n", " "))


def add_as_documented(vendor: str, secret: str) -> None:
    words = command_of(PAGE.read_text(encoding="utf-8"), vendor)
    words = [secret if word == "-" else word for word in words]
    assert main(words) == Status.DONE


def headers(vendor: str, secret: str, body: bytes, now: int) -> dict[str, str]:
    match vendor:
        case "stripe":
            return {"stripe-signature": sign_timestamped(now, body, [secret])}
        case "github":
            signature = sign_hub(body, secret)
            return {"x-hub-signature-256": signature, "x-github-delivery": "72d3162e-cc78", "x-github-event": "issues"}
        case "meta":
            return {"x-hub-signature-256": sign_hub(body, secret)}
        case _:
            signature = sign_standard("wh_1", now, body, secret)
            return {"webhook-id": "wh_1", "webhook-timestamp": str(now), "webhook-signature": signature}


@pytest.mark.parametrize(
    ("vendor", "sent", "kept"),
    [
        ("openai", OPENAI, ("response.completed", "resp_1", AT, {"id": "resp_1"})),
        ("azure-openai", OPENAI, ("response.completed", "resp_1", AT, {"id": "resp_1"})),
        ("github", GITHUB, ("issues", None, None, GITHUB)),
        ("stripe", STRIPE, ("customer.created", "cus_1", AT, CUSTOMER)),
        ("meta", META, ("meta", None, None, META)),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_vendor_that_is_added_as_the_page_says_is_understood(
    world: Sending, vendor: str, sent: dict[str, Any], kept: tuple[Any, ...]
) -> None:
    secret = new_secret()
    add_as_documented(vendor, secret)
    body = json.dumps(sent).encode()
    status, answered = world.deliver(vendor, body, headers(vendor, secret, body, int(time.time())))
    assert (status, answered.get("error")) == (200, None)
    assert world.rows(EVENTS) == [kept]


def test_each_vendor_of_the_page_is_tried_here() -> None:
    added = set(re.findall(r"\./antwoord sources add ([\w-]+)", PAGE.read_text(encoding="utf-8")))
    assert added == {"openai", "azure-openai", "github", "stripe", "meta", "transcriber"}


def test_a_secret_that_was_given_is_not_repeated_on_the_screen(
    world: Sending, capsys: pytest.CaptureFixture[str]
) -> None:
    given = new_secret()
    for words in (
        ["sources", "add", "there", "--scheme", "standard"],
        ["sources", "rotate", "there", "--overlap-hours", "0"],
        ["endpoints", "add", "here", "--url", "https://here.example.org/"],
        ["endpoints", "rotate", "here", "--overlap-hours", "0"],
    ):  # fmt: skip
        assert main([*words, "--secret", given]) == Status.DONE
        printed = capsys.readouterr()
        assert given not in printed.out + printed.err
        assert "the one that you gave" in printed.out
    assert main(["sources", "rotate", "there", "--overlap-hours", "0"]) == Status.DONE
    assert "shown this once: whsec_" in capsys.readouterr().out


# What they say of an endpoint that takes nothing


def printed(capsys: pytest.CaptureFixture[str], *words: str, status: Status = Status.DONE) -> str:
    assert main(list(words)) == status
    found = capsys.readouterr()
    return found.out + found.err


def disable(gateway: Gateway, endpoint: Any, reason: str = "") -> None:
    with gateway.database.connection() as connection:
        endpoints.disable(connection, endpoint, who="anna", reason=reason)


def test_what_waits_says_for_what(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    with Receiver(answer(500)) as receiver:
        endpoint = gateway.endpoint(receiver.url, concurrency=1)
        gateway.deliveries(endpoint, 6)
        eventually(lambda: (gateway.run(), gateway.state(endpoint, "open_until"))[1])
        (late,) = gateway.deliveries(endpoint)
        eventually(lambda: (gateway.run(), gateway.delivery(late).error)[1])
    shown = printed(capsys, "events", "show", gateway.value(EVENT, id=late))
    assert "waits for its endpoint to accept again" in shown


@pytest.mark.parametrize(("reason", "said"), [("", "by a person, who gave no reason"), ("moved", "disabled: moved")])
def test_why_it_is_off_is_said_in_words(
    gateway: Gateway, capsys: pytest.CaptureFixture[str], reason: str, said: str
) -> None:
    endpoint = gateway.endpoint("http://127.0.0.1:9/")
    disable(gateway, endpoint, reason)
    assert said in printed(capsys, "endpoints", "show", gateway.value(NAME, id=endpoint))


def test_it_says_that_the_endpoint_answered_410(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    with Receiver(answer(410)) as receiver:
        endpoint = gateway.endpoint(receiver.url)
        gateway.deliveries(endpoint)
        eventually(lambda: (gateway.run(), gateway.state(endpoint, "disabled_reason"))[1])
    assert "gone, it answered 410" in printed(capsys, "endpoints", "list")


def test_nothing_is_replayed_to_an_endpoint_that_is_off(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    with Receiver(answer(404)) as receiver:
        endpoint = gateway.endpoint(receiver.url)
        (dead,) = gateway.deliveries(endpoint)
        eventually(lambda: (gateway.run(), gateway.delivery(dead).state)[1] == "dead")
        disable(gateway, endpoint)
        replay = ("dlq", "replay", "--endpoint", gateway.value(NAME, id=endpoint), "--rate", "5", "--reason", "back")
        assert "is disabled: enable it first" in printed(capsys, *replay, status=Status.USAGE)
        assert (gateway.value("SELECT count(*)::int FROM replays"), gateway.delivery(dead).state) == (0, "dead")
        assert "enable it first" in printed(capsys, *replay, "--dry-run", status=Status.USAGE)  # as it would be
        with gateway.database.connection() as connection:
            endpoints.enable(connection, endpoint, who="anna")
        printed(capsys, *replay, "--no-wait")
    assert gateway.value("SELECT count(*)::int FROM replays") == 1


def test_a_dead_delivery_reaches_whoever_asks_with_a_link_to_its_page(gateway: Gateway) -> None:
    with Receiver() as pager, Receiver(answer(404)) as receiver:
        told, endpoint = gateway.endpoint(pager.url), gateway.endpoint(receiver.url)
        gateway.execute("UPDATE webhook_endpoints SET events = '{job.failed}' WHERE id = %(id)s", id=told)
        gateway.deliveries(endpoint)
        eventually(lambda: (gateway.run(), pager.arrivals)[1])
        (arrival,) = pager.arrivals
    job = gateway.value("SELECT id::text FROM dead_letters")
    body = json.loads(arrival.seen.body)
    assert (body["type"], body["source"], body["subject"]) == ("job.failed", "antwoord", job)
    assert body["link"] == f"https://antwoord.example.org/api/ops/jobs/{job}"
    assert body["data"] == {
        "job_id": job, "job_type": "deliver_event", "reason": "rejected", "conversation_id": None, "endpoint_id": str(endpoint),
    }  # fmt: skip
