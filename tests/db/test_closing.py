"""Cancelling what waits, closing what died, removing a document; and the commands that do it."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

from cli import __main__ as command
from cli.output import Status
from shared.db.pool import Database
from shared.errors import UserError
from shared.queue import closing, replay, store
from tests.fakes.desk import (
    ADDRESS,
    ANSWER,
    NOTICE,
    OTHER,
    WHO,
    dies,
    flagged,
    fresh,
    lines,
    open_messages,
    raising,
    send_own,
    take_over,
)
from tests.fakes.world import World, run_all


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


def cancel(world: World, *jobs: UUID) -> list[str]:
    with world.database.connection() as connection:
        return list(closing.cancel(connection, jobs, who=WHO).values())


def job(world: World, job_type: str = "autoreply") -> UUID:
    found: UUID = world.value("SELECT id FROM ai_jobs WHERE type = %(type)s ORDER BY seq DESC LIMIT 1", type=job_type)
    return found


# Cancelling


def test_a_cancelled_autoreply_covers_what_it_would_have_answered(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.says(ADDRESS, "laat maar")
    waiting = job(world)
    assert cancel(world, waiting, uuid4()) == ["cancelled", "not found"]
    assert world.rows("SELECT status, closed_by, closed_reason FROM ai_jobs") == [("failed", WHO, "cancelled")]
    assert world.rows("SELECT DISTINCT answered_by FROM messages") == [(waiting,)]
    run_all(world)
    assert world.line.accepted == []
    assert [(line.what, line.target_id, line.details) for line in lines(world)] == [
        ("cancel_job", str(waiting), {"type": "autoreply"})
    ]
    world.says(ADDRESS, "toch: hoeveel verlof heb ik?")
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert "laat maar" not in world.model.asked[-1][-1]["content"]


def test_a_cancelled_draft_is_not_sent_and_what_joined_it_is_answered(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError(), times=1)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.says(ADDRESS, "en ouderschapsverlof?")
    waiting = job(world)
    assert cancel(world, waiting) == ["cancelled"]
    assert world.rows("SELECT status, held_reason FROM messages WHERE source = 'ai'") == [("failed", "cancelled")]
    assert open_messages(world) == ["en ouderschapsverlof?"]
    assert flagged(world) == "cancelled"
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert "en ouderschapsverlof?" in world.model.asked[-1][-1]["content"]


def test_who_waits_for_a_cancelled_draft_is_left_to_a_person(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError(), times=1)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    assert cancel(world, job(world)) == ["cancelled"]
    run_all(world)
    assert world.line.accepted == []
    assert flagged(world) == "cancelled"
    assert open_messages(world) == []


def test_in_manual_mode_a_cancelled_job_leaves_the_messages_to_the_person(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.execute("UPDATE conversations SET mode = 'manual'")
    assert cancel(world, job(world)) == ["cancelled"]
    assert open_messages(world) == ["hoeveel verlof heb ik?"]


def test_a_cancelled_line_is_not_sent(world: World) -> None:
    world.says(ADDRESS, "stop")
    assert cancel(world, job(world, "send_message")) == ["cancelled"]
    assert world.rows("SELECT status, held_reason FROM messages WHERE from_self") == [("failed", "cancelled")]
    run_all(world)
    assert world.line.accepted == []


@pytest.mark.parametrize("status", ["sending", "held", "sent", "delivered"])
def test_what_may_have_left_is_not_cancelled(world: World, status: str) -> None:
    world.line.before = raising(ConnectionRefusedError(), times=1)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.force(
        "UPDATE messages SET status = %(status)s, held_reason = 'x', send_started_at = now() WHERE source = 'ai'",
        status=status,
    )
    assert cancel(world, job(world)) == ["kept"]
    assert world.rows("SELECT status FROM ai_jobs") == [("pending",)]
    assert lines(world) == []


def test_only_waiting_jobs_are_cancelled(world: World) -> None:
    (dead,) = dies(world, "vraag een?")
    world.says(OTHER, "hoeveel verlof heb ik?")
    running = job(world)
    world.rows("SELECT claim_ai_jobs(1)")
    assert cancel(world, dead, running) == ["not pending", "not pending"]
    assert lines(world) == []


def test_a_cancelled_document_says_so_and_can_be_added_again(world: World) -> None:
    with world.database.connection() as connection:
        document = connection.execute("SELECT id FROM documents").fetchall()[0][0]
        connection.execute("UPDATE documents SET state = 'waiting'")
        payload = {"type": "embed_record", "record": "document", "id": str(document)}
        first, second = store.enqueue(connection, payload), store.enqueue(connection, payload)
    assert cancel(world, first) == ["cancelled"]
    assert world.rows("SELECT state FROM documents") == [("waiting",)]  # the other one embeds it
    assert cancel(world, second) == ["cancelled"]
    assert world.rows("SELECT state, reason FROM documents") == [("failed", "cancelled")]


def test_a_cancelled_import_has_ended(world: World) -> None:
    with world.database.connection() as connection:
        row = connection.execute(
            "INSERT INTO imports (source, content, column_map, delimiter, encoding, rows_total, created_by)"
            " VALUES ('people.csv', 'x', '{}', ',', 'utf-8', 1, 'anna') RETURNING id"
        ).fetchone()
        assert row is not None
        waiting = store.enqueue(connection, {"type": "import_people", "import_id": str(row[0])})
    assert cancel(world, waiting) == ["cancelled"]
    assert world.rows("SELECT state, reason, ended_at IS NOT NULL, content FROM imports") == [
        ("failed", "cancelled", True, None)
    ]


def test_cancelling_races_with_the_worker(world: World) -> None:
    """Cancelled means that nothing goes out; otherwise it has been claimed, and the answer goes out."""
    counts = {"cancelled": 0, "not pending": 0}
    for n in range(40):
        address = f"+316000010{n:02}"
        world.says(address, "hoeveel verlof heb ik?")
        target = job(world)
        together = threading.Barrier(2)

        def work(together: threading.Barrier = together) -> None:
            together.wait(30)
            world.app.worker.poll_once(4)

        def press(target: UUID = target, together: threading.Barrier = together) -> str:
            together.wait(30)
            return cancel(world, target)[0]

        with ThreadPoolExecutor(2) as pool:
            working, pressing = pool.submit(work), pool.submit(press)
            working.result()
            outcome = pressing.result()
        run_all(world)
        counts[outcome] += 1
        assert len(world.sent_to(address)) == (0 if outcome == "cancelled" else 1)
    assert open_messages(world) == []
    assert sum(counts.values()) == 40


# Closing


def test_a_dead_letter_is_closed_with_its_reason(world: World) -> None:
    (dead,) = dies(world, "hoeveel verlof heb ik?")
    world.says(OTHER, "hoeveel verlof heb ik?")
    nobody = uuid4()
    with world.database.connection() as connection:
        assert closing.close(connection, [dead, job(world), nobody], who=WHO, reason=" telefonisch\n beantwoord\0 ") == {
            dead: "closed", job(world): "not failed", nobody: "not found",
        }  # fmt: skip
        assert closing.close(connection, [dead], who=WHO, reason="nog eens") == {dead: "not failed"}
        assert replay.restart(connection, [dead], who=WHO) == {dead: "not failed"}
    reason = "telefonisch beantwoord\ufffd"
    assert world.rows("SELECT closed_by, closed_reason FROM ai_jobs WHERE id = %(id)s", id=dead) == [(WHO, reason)]
    assert [(line.what, line.target_id, line.details["reason"]) for line in lines(world)] == [
        ("close_job", str(dead), reason)
    ]
    assert world.value("SELECT count(*) FROM dead_letters") == 0


@pytest.mark.parametrize(("reason", "name"), [("", "no_reason"), (" \n", "no_reason"), ("x" * 501, "reason_too_long")])
def test_closing_wants_a_reason(world: World, reason: str, name: str) -> None:
    (dead,) = dies(world, "hoeveel verlof heb ik?")
    with world.database.connection() as connection, pytest.raises(UserError) as refused:
        closing.close(connection, [dead], who=WHO, reason=reason)
    assert refused.value.name == name
    assert world.value("SELECT count(*) FROM dead_letters") == 1


# The commands


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("DATABASE_URL", database_url)

    def run(*arguments: str) -> tuple[int, Any, str]:
        status = command.main([*arguments, "--json"])
        said = capsys.readouterr()
        return status, json.loads(said.out) if said.out else None, said.err

    return run


def test_jobs_cancel(world: World, run: Any) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    waiting, nobody = str(job(world)), str(uuid4())
    assert run("jobs", "cancel", waiting, nobody)[:2] == (
        Status.DONE, {"jobs": {waiting: "cancelled", nobody: "not found"}},
    )  # fmt: skip
    assert run("jobs", "cancel", waiting)[:2] == (Status.NOTHING, {"jobs": {waiting: "not pending"}})
    assert run("jobs", "cancel", "x")[0] == Status.USAGE
    (line,) = lines(world)
    assert line.who.startswith("command:")


def test_jobs_retry_is_written_down(world: World, run: Any) -> None:
    (dead,) = dies(world, "hoeveel verlof heb ik?")
    assert run("jobs", "retry", str(dead))[:2] == (Status.DONE, {"jobs": {str(dead): "restarted"}})
    assert run("jobs", "retry", str(dead))[0] == Status.NOTHING
    (line,) = lines(world)
    assert (line.who[:8], line.what, line.target_id) == ("command:", "restart_job", str(dead))


def test_docs_remove(world: World, run: Any) -> None:
    document = str(world.value("SELECT id FROM documents"))
    assert run("docs", "remove", document)[:2] == (
        Status.DONE, {"removed": {"id": document, "title": "Personeelshandboek"}},
    )  # fmt: skip
    assert world.value("SELECT count(*) FROM documents") == world.value("SELECT count(*) FROM chunks") == 0
    (line,) = lines(world)
    assert (line.what, line.target_type, line.target_id) == ("remove_document", "document", document)
    assert line.details["title"] == "Personeelshandboek"
    status, said, told = run("docs", "remove", document)
    assert (status, said) == (Status.NOTHING, None)
    assert document in told
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert world.model.asked == []  # there is nothing left to answer from


@pytest.mark.parametrize("who", ["machine", "person"])
def test_closing_what_is_held_ends_its_messages_too(world: World, who: str) -> None:
    """Nobody could look again, send again or close them any more."""
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    if who == "person":
        take_over(world)
        send_own(world)
    world.line.before = raising(TimeoutError())
    world.settle_doubts(rounds=30)
    assert flagged(world) == "held"
    dead = world.value("SELECT id FROM dead_letters")
    with world.database.connection() as connection:
        assert closing.close(connection, [dead], who=WHO, reason="the phone shows it") == {dead: "closed"}
    assert world.rows("SELECT status, held_reason FROM messages WHERE from_self") == [("failed", "closed")]
    assert world.rows("SELECT what FROM message_events ORDER BY id DESC LIMIT 1") == [("closed",)]
    assert flagged(world) is None


def test_closing_leaves_other_reasons_to_ask_for_a_person(world: World) -> None:
    (dead,) = dies(world, "hoeveel verlof heb ik?")
    with world.database.connection() as connection:
        closing.close(connection, [dead], who=WHO, reason="a colleague calls")
    assert flagged(world) == "content_filter"
