"""`endpoints` as a person and a script meet them, and the ping that shows what an endpoint answers."""

from __future__ import annotations

import base64
import io
import json
import time
from typing import Any

import pytest

from cli.__main__ import main
from cli.output import Status
from shared.db.pool import Database
from shared.signature import verify_standard, verify_timestamped
from tests.fakes.deliveries import forget_deliveries
from tests.fakes.faulty_server import (
    Plan,
    answer,
    close_after_reading,
    closed_port,
    drips,
    faulty,
    replies,
    silent,
)  # fmt: skip
from tests.fakes.world import World

KEY = base64.b64encode(b"k" * 32).decode()
URL = "https://hooks.example.org/in"


@pytest.fixture
def world(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("SECRETS_KEY", KEY)
    monkeypatch.setenv("OUTBOUND_ALLOW_HOSTS", "127.0.0.1")
    made = World(database)
    forget_deliveries(made)
    made.execute("TRUNCATE audit_log")
    return made


def told(capsys: pytest.CaptureFixture[str], *arguments: str, status: Status = Status.DONE) -> dict[str, Any]:
    """What a command prints for a script."""
    assert main([*arguments, "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_life_of_an_endpoint(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_ORDERS", "Bearer very-secret")
    made = told(
        capsys, "endpoints", "add", "orders", "--url", URL, "--events", "batch.*,response.completed", "--rate", "2.5",
        "--concurrency", "8", "--schedule", "decorrelated", "--timeout", "3", "--header", "X-Team: hr",
        "--header-from", "Authorization=TOKEN_OF_ORDERS",
    )  # fmt: skip
    assert made["secret"].startswith("whsec_")
    expected = {
        "name": "orders", "url": URL, "events": ["batch.*", "response.completed"], "rate": 2.5, "concurrency": 8,
        "schedule": "decorrelated", "timeout_seconds": 3.0, "header_names": ["X-Team", "Authorization"], "version": 1,
        "health": "well", "waiting": 0, "dead": 0, "held": 0, "previous_until": None, "disabled_reason": None,
    }  # fmt: skip
    assert {name: made["endpoint"][name] for name in expected} == expected
    changed = told(capsys, "endpoints", "change", "orders", "--rate", "none", "--events", "")["endpoint"]
    assert (changed["rate"], changed["events"], changed["concurrency"]) == (None, [], 8), "what is not given stays"
    assert told(capsys, "endpoints", "change", "orders", "--no-headers")["endpoint"]["header_names"] == []
    rotated = told(capsys, "endpoints", "rotate", "orders", "--overlap-hours", "2")
    assert rotated["secret"] not in (made["secret"], "")
    assert rotated["endpoint"]["previous_until"]
    monkeypatch.setattr("sys.stdin", io.StringIO("a-secret-from-a-file\n"))
    assert told(capsys, "endpoints", "rotate", "orders", "--overlap-hours", "0", "--secret", "-")["secret"] == (
        "a-secret-from-a-file"
    )
    assert told(capsys, "endpoints", "disable", "orders", "--reason", "moved")["endpoint"]["health"] == "disabled"
    assert main(["endpoints", "list"]) == Status.DONE
    assert "disabled: moved" in capsys.readouterr().out
    assert told(capsys, "endpoints", "enable", "orders")["endpoint"]["health"] == "well"
    assert main(["endpoints", "show", "orders"]) == Status.DONE
    shown = capsys.readouterr().out
    assert "all that come from sources" in shown
    assert "no rate limit, 8 at once" in shown
    assert [row["name"] for row in told(capsys, "endpoints", "list")["endpoints"]] == ["orders"]
    everything = str(world.rows("SELECT what, who, details FROM audit_log"))
    assert everything.count("command:") == 7
    for secret in (made["secret"], rotated["secret"], "very-secret", "a-secret-from-a-file"):
        assert secret not in everything


def test_a_new_secret_is_shown_to_a_person_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["endpoints", "add", "orders", "--url", URL]) == Status.DONE
    out = capsys.readouterr().out
    assert out.count("whsec_") == 1
    assert out.rstrip().splitlines()[-1].startswith("secret, shown this once: whsec_")
    assert main(["endpoints", "show", "orders"]) == Status.DONE
    assert "whsec_" not in capsys.readouterr().out


def test_what_is_wrong_is_one_sentence(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["endpoints", "list"]) == Status.NOTHING
    assert main(["endpoints", "add", "orders", "--url", URL]) == Status.DONE
    capsys.readouterr()
    for words, status, said in (
        (["show", "none"], Status.NOTHING, "There is no endpoint none: see `endpoints list`."),
        (["show", "\udcff"], Status.NOTHING, "There is no endpoint"),
        (["rotate", "none"], Status.NOTHING, "There is no endpoint none"),
        (["add", "orders", "--url", URL], Status.USAGE, "There is an endpoint orders already."),
        (["add", "x", "--url", "https://10.0.0.1/"], Status.USAGE, "name it in OUTBOUND_ALLOW_HOSTS"),
        (["add", "x", "--url", "http://hooks.example.org/"], Status.USAGE, "OUTBOUND_ALLOW_HOSTS"),
        (["add", "x", "--url", "https://💩.example/"], Status.USAGE, "cannot exist: it has a character"),
        (["add", "x", "--url", f"https://{'a' * 64}.example/"], Status.USAGE, "one of its parts has more"),
        (["add", "x", "--url", URL, "--rate", "fast"], Status.USAGE, "--rate is a number"),
        (["add", "x", "--url", URL, "--rate", "nan"], Status.USAGE, "A rate is"),
        (["add", "x", "--url", URL, "--schedule", "never"], Status.USAGE, "--schedule is table or decorrelated"),
        (["add", "x", "--url", URL, "--header", "s3cret-value"], Status.USAGE, "Header 1 must look like"),
        (["add", "x", "--url", URL, "--header", "Host: x"], Status.USAGE, "set by the gateway itself"),
        (["add", "x", "--url", URL, "--header", "A: 1", "--header", "a: 2"], Status.USAGE, "A header is given twice."),
        (["add", "x", "--url", URL, "--header-from", "A=NOT_THERE"], Status.USAGE, "has no variable NOT_THERE"),
        (["add", "x", "--url", URL, "--secret", "s3cret-value"], Status.USAGE, "A secret is 16 to 256 characters"),
        (["change", "orders"], Status.USAGE, "Give what is to be changed"),
        (["change", "orders", "--no-headers", "--header", "A: 1"], Status.USAGE, "cannot both be"),
        (["change", "orders", "--url", "https://[::1]/"], Status.USAGE, "not a public address"),
        (["change", "orders", "--url", "https://a..example/"], Status.USAGE, "cannot exist: it begins with a dot"),
        (["enable", "orders"], Status.USAGE, "orders is enabled, and nothing holds it up."),
    ):
        assert main(["endpoints", *words]) == status, words
        told_here = capsys.readouterr()
        assert said in told_here.err
        assert told_here.err.count("\n") == 1
        assert "s3cret-value" not in told_here.err
        assert told_here.out == ""
    monkeypatch.setenv("SECRETS_KEY", "")
    for words in (["add", "x", "--url", URL], ["rotate", "orders"], ["test", "orders"]):
        assert main(["endpoints", *words]) == Status.USAGE
        assert "secrets new-key` makes one" in capsys.readouterr().err
    assert main(["endpoints", "change", "orders", "--concurrency", "2"]) == Status.DONE, "no secret is needed for it"


def test_a_ping_is_signed_like_a_delivery(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    with faulty(replies(answer(202, b"thank you"))) as server:
        made = told(
            capsys, "endpoints", "add", "orders", "--url", f"{server.url}/in?x=1", "--signature-header", "X-Ours",
            "--header", "X-Team: hr één",
        )  # fmt: skip
        rotated = told(capsys, "endpoints", "rotate", "orders")
        assert told(capsys, "endpoints", "disable", "orders")["endpoint"]["health"] == "disabled"
        found = told(capsys, "endpoints", "test", "orders")["ping"]
    assert (found["result"], found["http_status"], found["answer"]) == ("accepted", 202, "thank you")
    assert found["sentence"].startswith("It accepted the ping: HTTP 202 in ")
    (seen,) = server.seen
    assert (seen.method, seen.path, seen.headers["x-team"]) == ("POST", "/in?x=1", "hr één")
    event = seen.json
    assert (event["type"], event["source"], event["subject"]) == ("ping", "antwoord", "orders")
    assert event["id"] == seen.headers["webhook-id"] == seen.headers["x-webhook-id"]
    for secret in (made["secret"], rotated["secret"]):
        verify_standard(
            message_id=seen.headers["webhook-id"], timestamp=seen.headers["webhook-timestamp"],
            signature=seen.headers["webhook-signature"], body=seen.body, secrets=[secret], now=time.time(),
        )  # fmt: skip
        verify_timestamped(
            signature=seen.headers["x-ours"], body=seen.body, secrets=[secret], now=time.time(), name="X-Ours"
        )
    for table in ("webhook_events", "webhook_deliveries", "webhook_attempts", "ai_jobs"):
        assert not world.rows(f"SELECT FROM {table}"), "a ping is no delivery"
    assert world.value("SELECT details FROM audit_log WHERE what = 'test_endpoint'") == {
        "endpoint": "orders", "result": "accepted", "http_status": 202,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "result", "said"),
    [
        (replies(answer(401, b"who?")), "rejected", "HTTP 401 Unauthorized (another secret than the one shown here"),
        (replies(answer(404)), "rejected", "HTTP 404 Not Found (is this the URL"),
        (replies(answer(301, Location="https://elsewhere.example.org/")), "redirected", "redirects are not followed"),
        (replies(answer(410)), "gone", "the endpoint says that it is no more"),
        (replies(answer(503)), "unavailable", "HTTP 503 Service Unavailable"),
        (silent, "timeout", "no whole answer within its 0.3 s"),
        (drips(b"HTTP/1.1 200 Slow\r\nX-A: ", 0.05), "timeout", "no whole answer within its 0.3 s"),
        (close_after_reading, "dropped", "The connection broke after"),
    ],
    ids=["401", "404", "301", "410", "503", "silent", "drip", "closed"],
)
def test_a_ping_that_is_not_accepted_is_told_in_a_sentence(
    world: World, capsys: pytest.CaptureFixture[str], plan: Plan, result: str, said: str
) -> None:
    with faulty(plan) as server:
        timeout = "0.3" if result == "timeout" else "30"
        told(capsys, "endpoints", "add", "orders", "--url", server.url, "--timeout", timeout)
        found = told(capsys, "endpoints", "test", "orders", status=Status.FAILED)["ping"]
        assert main(["endpoints", "test", "orders"]) == Status.FAILED
    assert found["result"] == result
    assert said in found["sentence"]
    out = capsys.readouterr().out
    assert out.startswith("orders: ")
    assert said in out
    assert world.value("SELECT disabled_at FROM webhook_endpoints") is None, "a ping switches nothing off"
    assert world.value("SELECT failures_in_row FROM webhook_endpoints") == 0


def test_a_ping_to_nobody_and_to_what_is_refused_now(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told(capsys, "endpoints", "add", "orders", "--url", f"http://127.0.0.1:{closed_port()}/")
    found = told(capsys, "endpoints", "test", "orders", status=Status.FAILED)["ping"]
    assert (found["result"], found["http_status"]) == ("connect", None)
    assert "No connection could be opened" in found["sentence"]
    monkeypatch.setenv("OUTBOUND_ALLOW_HOSTS", "elsewhere.internal")
    found = told(capsys, "endpoints", "test", "orders", status=Status.FAILED)["ping"]
    assert found["result"] == "address_refused"
    assert found["sentence"].startswith("Nothing was sent: ")
