"""`events`: looking at what came in, and one delivery sent again from the command."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from cli.__main__ import main
from cli.output import Status
from shared.db.pool import Database
from tests.fakes.deliveries import add_delivery, add_endpoint, add_event, forget_deliveries
from tests.fakes.world import World


@pytest.fixture
def world(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("DATABASE_URL", database_url)
    made = World(database)
    forget_deliveries(made)
    made.execute("DELETE FROM audit_log")
    return made


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["events", *words, "--json"]) == Status.DONE, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_one_delivery_is_found_and_sent_again_with_who_and_why(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    billing, _ = add_endpoint(world, "billing"), add_endpoint(world, "archive")
    event = add_event(world)
    delivery, job = add_delivery(world, billing, event=event)
    add_event(world, "batch.completed")
    (row,) = told(capsys, "list", "--state", "dead")["events"]
    assert (row["public_id"], row["dead"]) == (f"evt_{event.hex}", 1)
    assert [row["type"] for row in told(capsys, "list")["events"]] == ["batch.completed", "response.completed"]
    (shown,) = told(capsys, "show", row["public_id"])["deliveries"]
    assert (shown["id"], shown["endpoint"], shown["state"]) == (str(delivery), "billing", "dead")
    sent = told(capsys, "resend", shown["id"], "--reason", "it was mended")["resent"]
    assert sent == {"delivery_id": str(delivery), "job_id": str(job), "to": "billing"}
    assert world.rows("SELECT status, run FROM ai_jobs") == [("pending", 2)]
    ((who, target, details),) = world.rows(
        "SELECT who, target_id, details FROM audit_log WHERE what = 'resend_delivery'"
    )
    assert who.startswith("command:")
    assert (target, details["reason"], details["to"]) == (str(delivery), "it was mended", "billing")


def test_to_another_endpoint_it_is_a_delivery_of_its_own(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    billing, _ = add_endpoint(world, "billing"), add_endpoint(world, "archive")
    event = add_event(world)
    delivery, _ = add_delivery(world, billing, event=event)
    sent = told(capsys, "resend", str(delivery), "--to", "archive", "--reason", "moved")["resent"]
    assert sent["to"] == "archive"
    ways = told(capsys, "show", str(event))["deliveries"]
    assert [(way["endpoint"], way["state"], way["replay_of"]) for way in ways] == [
        ("billing", "replayed", None), ("archive", "waiting", str(delivery)),
    ]  # fmt: skip
    assert main(["events", "show", str(event)]) == Status.DONE
    assert "replayed to archive: moved" in " ".join(capsys.readouterr().out.split())


def test_what_is_wrong_is_one_sentence(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    delivery, _ = add_delivery(world, add_endpoint(world, "billing"))
    waiting, _ = add_delivery(world, add_endpoint(world, "second"), "waiting")
    for words, status, said in (
        (["list", "--type", "none"], Status.NOTHING, "No event matches."),
        (["list", "--state", "lost"], Status.USAGE, "--state is held, dead, waiting"),
        (["show", "evt_x"], Status.NOTHING, "There is no event evt_x: see `events list`."),
        (["show", str(uuid4())], Status.NOTHING, "There is no event"),
        (["resend", str(uuid4()), "--reason", "x"], Status.NOTHING, "There is no delivery"),
        (["resend", str(delivery)], Status.USAGE, "Give a reason for sending it again"),
        (["resend", str(delivery), "--to", "none", "--reason", "x"], Status.USAGE, "There is no endpoint none"),
        (["resend", str(delivery), "--to", "", "--reason", "x"], Status.USAGE, "There is no endpoint : see"),
        (["resend", str(waiting), "--reason", "x"], Status.USAGE, "It is still on its way"),
    ):
        assert main(["events", *words]) == status, words
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1
