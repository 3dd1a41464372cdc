"""`sources` as a person and a script meet it: a secret is shown once, and what cannot be is said in a sentence."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from cli.__main__ import main
from cli.output import Status
from shared import audit
from shared.db.pool import Database
from tests.fakes.deliveries import forget_deliveries
from tests.fakes.senders import SECRETS_KEY, VAULT
from tests.fakes.world import World


@pytest.fixture
def world(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("SECRETS_KEY", SECRETS_KEY)
    made = World(database)
    forget_deliveries(made)
    made.execute("DELETE FROM audit_log")
    return made


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What a command that succeeds prints for a script."""
    assert main(["sources", *arguments, "--json"]) == Status.DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence of a command that is wrong."""
    assert main(["sources", *arguments]) == Status.USAGE
    return capsys.readouterr().err


def sealed(world: World, column: str = "secret") -> str:
    found, place = world.rows(f"SELECT {column}, 'source:' || id FROM webhook_sources")[0]
    return VAULT.open(bytes(found), place)


def test_a_source_is_added_shown_rotated_disabled_and_enabled(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sources", "list"]) == Status.NOTHING
    capsys.readouterr()
    added = answer(capsys, "add", "openai", "--scheme", "standard")
    assert added["secret"].startswith("whsec_")
    assert (added["source"]["path"], added["source"]["id_from"]) == ("/api/events/openai", "header")
    assert sealed(world) == added["secret"]
    assert main(["sources", "list"]) == Status.DONE
    shown = capsys.readouterr().out
    assert "openai" in shown
    assert added["secret"] not in shown
    rotated = answer(capsys, "rotate", "openai")
    assert rotated["source"]["previous_until"]
    assert sealed(world) == rotated["secret"] != added["secret"]
    assert sealed(world, "previous_secret") == added["secret"]
    assert "being rotated" in refused(capsys, "rotate", "openai")
    at_once = answer(capsys, "rotate", "openai", "--overlap-hours", "0", "--secret", "whsec_c2VjcmV0")
    assert (at_once["secret"], at_once["source"]["previous_until"]) == ("whsec_c2VjcmV0", None)
    assert answer(capsys, "disable", "openai", "--reason", "tired")["source"]["disabled_at"]
    assert "disabled already" in refused(capsys, "disable", "openai")
    assert answer(capsys, "enable", "openai")["source"]["disabled_at"] is None
    assert "enabled already" in refused(capsys, "enable", "openai")
    with world.database.connection() as connection:
        lines = audit.list_entries(connection, limit=10)
    assert [line.what for line in reversed(lines)] == [
        "add_source", "rotate_source", "rotate_source", "disable_source", "enable_source",
    ]  # fmt: skip
    told = json.dumps([line.details for line in lines])
    assert not any(made["secret"] in told for made in (added, rotated, at_once))


def test_all_that_can_be_said_of_a_source(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(
        capsys, "add", "shop", "--scheme", "t-v1", "--secret", " a secret \n", "--id-from", "pointer:/id", "--tolerance", "60",
        "--size-limit", "2048", "--normaliser", "json", "--path", "type=/kind", "--path", "data=/data/object",
        "--path", "subject=header:X-About", "--signature-header", "Stripe-Signature",
    )  # fmt: skip
    assert found["secret"] == sealed(world) == "a secret"
    source = found["source"]
    assert source["paths"] == {"type": "/kind", "data": "/data/object", "subject": "header:X-About"}
    assert [source[name] for name in ("tolerance_seconds", "size_limit", "signature_header")] == [
        60,
        2048,
        "Stripe-Signature",
    ]


def test_a_secret_can_be_given_without_a_trace_in_the_shell(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    assert answer(capsys, "add", "hub", "--scheme", "x-hub", "--secret", "-")["secret"] == "from a pipe"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["add", "Open AI", "--scheme", "standard"], "small letters"),
        (["add", "antwoord", "--scheme", "standard"], "choose another name"),
        (["add", "a", "--scheme", "md5"], "standard, t-v1, x-hub"),
        (["add", "a", "--scheme", "x-hub", "--secret", " "], "empty"),
        (["add", "a", "--scheme", "x-hub", "--secret", "x" * 1001], "at most 1000"),
        (["add", "a", "--scheme", "x-hub", "--secret", "a\0b"], "must be text"),
        (["add", "a", "--scheme", "standard", "--secret", "whsec_"], "base64"),
        (["add", "a", "--scheme", "standard", "--id-from", "body"], "header:NAME"),
        (["add", "a", "--scheme", "standard", "--id-from", "pointer:id"], "header:NAME"),
        (["add", "a", "--scheme", "standard", "--id-from", "header:"], "header:NAME"),
        (["add", "a", "--scheme", "standard", "--tolerance", "0"], "tolerance"),
        (["add", "a", "--scheme", "standard", "--size-limit", "99999999"], "size limit"),
        (["add", "a", "--scheme", "standard", "--normaliser", "xml"], "openai, json"),
        (["add", "a", "--scheme", "standard", "--signature-header", "X-S"], "only the scheme t-v1"),
        (["add", "a", "--scheme", "t-v1", "--signature-header", "X S"], "name of a header"),
        (["add", "a", "--scheme", "standard", "--path", "type=/t"], "Only the normaliser json"),
        (["add", "a", "--scheme", "standard", "--normaliser", "json", "--path", "type"], "FIELD=/POINTER"),
        (["add", "a", "--scheme", "standard", "--normaliser", "json", "--path", "kind=/t"], "kind cannot be"),
        (["add", "a", "--scheme", "standard", "--normaliser", "json", "--path", "type=t"], "cannot be at t"),
        (
            ["add", "a", "--scheme", "standard", "--normaliser", "json", "--path", "type=/a", "--path", "type=/b"],
            "twice",
        ),
        (["add", "there", "--scheme", "standard"], "is a source there already"),
        (["rotate", "there", "--secret", ""], "empty"),
        (["rotate", "there", "--overlap-hours", "9999"], "overlap"),
        (["disable", "there", "--reason", "x" * 501], "longer than 500"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(
    world: World, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    secret = answer(capsys, "add", "there", "--scheme", "standard")["secret"]
    assert sentence in refused(capsys, *arguments)
    assert sealed(world) == secret
    assert world.value("SELECT count(*) FROM audit_log") == 1


def test_a_source_that_is_not_there_is_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["rotate"], ["disable"], ["enable"]):
        assert main(["sources", *arguments, "nobody"]) == Status.NOTHING
        assert "no source nobody" in capsys.readouterr().err


def test_without_the_key_it_says_what_to_do(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRETS_KEY", "")
    assert "SECRETS_KEY is not set" in refused(capsys, "add", "a", "--scheme", "standard")
    assert main(["sources", "list"]) == Status.NOTHING
