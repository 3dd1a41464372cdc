"""A person's own answer: what it covers, what it takes the place of, and when it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from shared import audit
from shared.db.pool import Database
from shared.errors import PermanentError
from shared.queue import replay, store
from tests.fakes.desk import (
    ADDRESS,
    ANSWER,
    NOTICE,
    WHO,
    audited,
    flagged,
    fresh,
    newest,
    open_messages,
    open_suggestions,
    raising,
    refused,
    send_own,
    take_over,
    waiting_draft,
)
from tests.fakes.world import World, run_all


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


def test_an_own_answer_goes_out_and_covers_what_was_seen(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    take_over(world)
    world.run()
    message = send_own(world, "  Dag,\r\nje hebt 200 uur.\r\n ")
    assert open_messages(world) == []
    assert open_suggestions(world) == []  # it was a suggestion for the same message
    assert flagged(world) is None
    assert world.value("SELECT answered_by FROM messages WHERE NOT from_self") == message
    run_all(world)
    assert world.sent_to(ADDRESS) == ["Dag,\nje hebt 200 uur."]
    assert world.rows("SELECT source, purpose, status FROM messages WHERE from_self") == [("admin", "message", "sent")]
    assert [what for _, what, _ in audited(world)] == ["take_over", "send_own"]
    assert "200 uur" not in str(world.rows("SELECT details FROM audit_log"))


def test_what_was_not_seen_stays_open_and_keeps_its_suggestion_and_its_flag(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    take_over(world)
    seen = newest(world)
    world.says(ADDRESS, "en ouderschapsverlof?")
    world.run()
    send_own(world, seen_seq=seen)
    assert open_messages(world) == ["en ouderschapsverlof?"]
    assert len(open_suggestions(world)) == 1
    assert flagged(world) == "manual"


def test_in_automatic_mode_what_was_not_seen_is_answered_by_the_machine(world: World) -> None:
    world.says(ADDRESS, "mag ik morgen vrij?")
    seen = newest(world)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    send_own(world, "Ja hoor.", seen_seq=seen)
    assert flagged(world) is None
    run_all(world)
    assert sorted(world.sent_to(ADDRESS)) == sorted(["Ja hoor.", NOTICE + ANSWER])
    question = world.model.asked[-1][-1]["content"].partition("<question")[2]
    assert "hoeveel verlof heb ik?" in question
    assert "vrij" not in question


LONGEST = "😀" * 8000  # ten messages of 1,600 UTF-16 units


@pytest.mark.parametrize(
    ("prepare", "text", "name"),
    [
        ("SELECT", "", "empty"),
        ("SELECT", " \r\n\t\u200b\u2060", "empty"),
        ("SELECT", LONGEST + "x", "too_long"),
        ("UPDATE conversations SET opted_out_at = now()", "Dag", "opted_out"),
        ("UPDATE conversations SET last_inbound_at = now() - interval '24 hours 1 second'", "Dag", "outside_window"),
        ("UPDATE conversations SET last_inbound_at = NULL", "Dag", "outside_window"),
    ],
)
def test_what_cannot_be_sent_is_refused_and_changes_nothing(world: World, prepare: Any, text: str, name: str) -> None:
    world.says(ADDRESS, "hoi")
    world.execute(prepare)
    assert refused(lambda: send_own(world, text)) == name
    assert open_messages(world) == ["hoi"]
    assert world.value("SELECT count(*) FROM messages WHERE from_self") == 0
    assert world.value("SELECT count(*) FROM ai_jobs WHERE type = 'send_message'") == 0
    assert audited(world) == []


def test_the_longest_text_and_the_last_moment_are_fine(world: World) -> None:
    world.says(ADDRESS, "hoi")
    take_over(world)
    world.execute("UPDATE conversations SET last_inbound_at = now() - interval '23 hours 59 minutes'")
    send_own(world, LONGEST)
    run_all(world)
    assert "".join(world.sent_to(ADDRESS)) == LONGEST
    assert len(world.sent_to(ADDRESS)) == 10


def test_what_postgres_cannot_hold_is_replaced(world: World) -> None:
    world.says(ADDRESS, "hoi")
    take_over(world)
    send_own(world, "a\0b\ud800")
    run_all(world)
    assert world.sent_to(ADDRESS) == ["a\ufffdb\ufffd"]


def test_an_own_answer_takes_the_place_of_a_draft_that_waits(world: World) -> None:
    waiting_draft(world)
    send_own(world)
    assert world.rows("SELECT status, held_reason FROM messages WHERE source = 'ai'") == [("failed", "taken_over")]
    run_all(world)
    assert world.sent_to(ADDRESS) == ["Dag, met HR."]
    assert open_messages(world) == []
    assert open_suggestions(world) == []


def test_a_message_that_joined_the_draft_that_was_answered_gets_its_own_answer(world: World) -> None:
    waiting_draft(world)
    seen = newest(world)
    world.says(ADDRESS, "en ouderschapsverlof?")
    send_own(world, seen_seq=seen)
    run_all(world)
    assert sorted(world.sent_to(ADDRESS)) == sorted(["Dag, met HR.", NOTICE + ANSWER])
    assert open_messages(world) == []


def test_a_draft_that_also_answers_what_was_not_seen_still_goes_out(world: World) -> None:
    world.says(ADDRESS, "mag ik morgen vrij?")
    seen = newest(world)
    world.line.before = raising(ConnectionRefusedError(), times=1)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    send_own(world, seen_seq=seen)
    run_all(world)
    assert sorted(world.sent_to(ADDRESS)) == sorted(["Dag, met HR.", NOTICE + ANSWER])


def test_a_draft_whose_worker_is_at_it_is_found_out_by_the_intent(world: World) -> None:
    waiting_draft(world)
    world.execute("UPDATE ai_jobs SET next_run_at = now()")
    world.rows("SELECT claim_ai_jobs(1)")  # a worker has it, and dies later
    send_own(world)
    assert world.rows("SELECT status FROM messages WHERE source = 'ai'") == [("draft",)]
    world.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'processing'")
    with world.database.connection() as connection:
        assert store.rescue(connection) == 1
    run_all(world)
    assert world.sent_to(ADDRESS) == ["Dag, met HR."]
    assert world.rows("SELECT status, held_reason FROM messages WHERE source = 'ai'") == [("failed", "taken_over")]
    assert world.rows("SELECT status FROM ai_jobs WHERE type = 'autoreply'") == [("done",)]


def test_an_own_answer_while_the_model_answers_drops_what_it_says(world: World) -> None:
    def says(_: Any) -> str:
        send_own(world)
        return "Je hebt 200 uur verlof. [1]"

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert world.sent_to(ADDRESS) == ["Dag, met HR."]


def test_an_own_answer_to_a_part_makes_the_rest_another_question(world: World) -> None:
    def says(_: Any) -> str:
        if len(world.model.asked) == 1:
            send_own(world, "Ja hoor.", seen_seq=newest(world) - 1)
        return "Je hebt 200 uur verlof. [1]"

    world.model.says = says
    world.says(ADDRESS, "mag ik morgen vrij?")
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert sorted(world.sent_to(ADDRESS)) == sorted(["Ja hoor.", NOTICE + ANSWER])
    assert "vrij" not in world.model.asked[1][-1]["content"].partition("<question")[2]
    assert open_messages(world) == []


def test_an_own_answer_closes_the_dead_letter_that_it_answers(world: World) -> None:
    def says(_: Any) -> str:
        raise PermanentError("content_filter", "refused")

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    dead = world.value("SELECT id FROM ai_jobs WHERE type = 'autoreply'")
    message = send_own(world)
    assert world.rows("SELECT closed_by, closed_reason FROM ai_jobs WHERE id = %(id)s", id=dead) == [(WHO, "answered")]
    assert world.value("SELECT answered_by FROM messages WHERE NOT from_self") == message
    with world.database.connection() as connection:
        assert replay.restart(connection, [dead], who=WHO) == {dead: "not failed"}
        (line, *_) = audit.list_entries(connection, limit=1)
    assert line.details["closed"] == [str(dead)]


def test_a_reply_that_may_have_arrived_is_not_answered_for(world: World) -> None:
    def before(_: Any) -> None:
        raise TimeoutError

    world.line.before = before
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.settle_doubts(rounds=30)
    world.line.before = lambda _: None
    send_own(world)
    run_all(world)
    assert world.sent_to(ADDRESS) == ["Dag, met HR."]
    assert world.rows("SELECT status, closed_at FROM ai_jobs WHERE type = 'autoreply'") == [("failed", None)]
    assert world.rows("SELECT status FROM messages WHERE source = 'ai'") == [("held",)]


def test_an_own_answer_that_surely_did_not_leave_is_tried_again(world: World) -> None:
    world.says(ADDRESS, "hoi")
    take_over(world)
    send_own(world)
    world.line.before = raising(ConnectionRefusedError(), times=1)
    run_all(world)
    assert world.sent_to(ADDRESS) == ["Dag, met HR."]
    assert world.value("SELECT send_attempt FROM messages WHERE source = 'admin'") == 2


def test_an_own_answer_that_may_have_left_is_held(world: World) -> None:
    def before(_: Any) -> None:
        raise TimeoutError

    world.says(ADDRESS, "hoi")
    take_over(world)
    send_own(world)
    world.line.before = before
    world.settle_doubts(rounds=30)
    assert world.rows("SELECT status FROM messages WHERE source = 'admin'") == [("held",)]
    assert flagged(world) == "held"


def test_opting_out_stops_an_own_answer_that_waits(world: World) -> None:
    world.says(ADDRESS, "hoi")
    take_over(world)
    send_own(world)
    world.says(ADDRESS, "stop")
    run_all(world)
    assert [body[:18] for body in world.sent_to(ADDRESS)] == ["Je ontvangt geen b"]
    assert world.rows("SELECT status, held_reason FROM messages WHERE source = 'admin'") == [("failed", "opted_out")]


def test_own_answers_are_the_history_of_the_next_question(world: World) -> None:
    world.says(ADDRESS, "mag ik morgen vrij?")
    send_own(world, "Ja hoor, geniet ervan.")
    run_all(world)
    world.says(ADDRESS, "hoeveel verlof houd ik dan over?")
    run_all(world)
    history = world.model.asked[-1][-1]["content"].partition("<history>")[2].partition("</history>")[0]
    assert "mag ik morgen vrij?" in history
    assert "Ja hoor, geniet ervan." in history
    assert world.sent_to(ADDRESS)[-1].startswith(NOTICE)  # a person's answer does not say that a machine answers


def test_what_was_held_outside_the_24_hours_is_put_aside_when_a_person_answers(world: World) -> None:
    waiting_draft(world)
    world.execute("UPDATE conversations SET last_inbound_at = now() - interval '25 hours'")
    run_all(world)
    assert world.rows("SELECT status FROM messages WHERE source = 'ai'") == [("held",)]
    take_over(world)
    world.says(ADDRESS, "hallo?")
    send_own(world)
    assert world.rows("SELECT status, held_reason FROM messages WHERE source = 'ai'") == [("failed", "taken_over")]
    assert world.rows("SELECT id FROM dead_letters") == []


def waiting_line(world: World, text: str = "???") -> None:
    """A small line of the machine that waits for its second try."""
    world.line.before = raising(ConnectionRefusedError(), times=1)
    world.says(ADDRESS, text)
    world.run()
    assert world.rows("SELECT status FROM messages WHERE source = 'system'") == [("draft",)]


@pytest.mark.parametrize("taken_over", [True, False])
@pytest.mark.parametrize("text", ["???", "start"])
def test_an_own_answer_takes_the_place_of_a_line_that_waits(world: World, text: str, taken_over: bool) -> None:
    waiting_line(world, text)
    if taken_over:
        take_over(world)
        assert open_messages(world) == [text]
        assert flagged(world) == "manual"
    message = send_own(world)
    assert world.rows("SELECT status, held_reason FROM messages WHERE source = 'system'") == [("failed", "taken_over")]
    assert world.value("SELECT answered_by FROM messages WHERE NOT from_self") == message
    run_all(world)
    assert world.sent_to(ADDRESS) == ["Dag, met HR."]
    assert world.rows("SELECT closed_reason FROM ai_jobs WHERE status = 'failed'") == [("taken_over",)]


def test_a_line_to_what_was_not_seen_still_goes_out(world: World) -> None:
    world.says(ADDRESS, "mag ik morgen vrij?")
    run_all(world)
    seen = newest(world)
    waiting_line(world)
    send_own(world, seen_seq=seen)
    run_all(world)
    assert world.rows("SELECT status FROM messages WHERE source = 'system'") == [("sent",)]


def test_a_line_whose_worker_is_at_it_is_found_out_by_the_intent(world: World) -> None:
    waiting_line(world)
    world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
    world.rows("SELECT claim_ai_jobs(1)")  # a worker has it, and dies later
    send_own(world)
    world.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'processing'")
    with world.database.connection() as connection:
        assert store.rescue(connection) == 1
    run_all(world)
    assert world.sent_to(ADDRESS) == ["Dag, met HR."]
    assert world.rows("SELECT status, held_reason FROM messages WHERE source = 'system'") == [("failed", "taken_over")]


@pytest.mark.parametrize("taken_over", [True, False])
def test_an_apology_that_waits_is_not_made_after_a_person_s_answer(world: World, taken_over: bool) -> None:
    world.model.says = raising(PermanentError("content_filter", "refused"))
    world.line.before = raising(ConnectionRefusedError(), times=1)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    assert world.rows("SELECT purpose, status FROM messages WHERE from_self") == [("apology", "draft")]
    if taken_over:
        take_over(world)
    send_own(world)
    run_all(world)
    assert world.sent_to(ADDRESS) == ["Dag, met HR."]


def test_an_apology_for_what_was_not_seen_is_still_made(world: World) -> None:
    world.says(ADDRESS, "mag ik morgen vrij?")
    run_all(world)
    seen = newest(world)
    world.model.says = raising(PermanentError("content_filter", "refused"))
    world.line.before = raising(ConnectionRefusedError(), times=1)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    send_own(world, seen_seq=seen)
    run_all(world)
    assert world.rows("SELECT status FROM messages WHERE purpose = 'apology'") == [("sent",)]


def test_confirming_consent_is_not_taken_back(world: World) -> None:
    world.says(ADDRESS, "stop")
    world.run()
    world.says(ADDRESS, "start")
    take_over(world)
    send_own(world)
    run_all(world)
    assert world.rows("SELECT DISTINCT status FROM messages WHERE purpose = 'consent'") == [("sent",)]
    assert "Dag, met HR." in world.sent_to(ADDRESS)
