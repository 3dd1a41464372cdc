"""Taking a conversation over, what manual mode does, handing back, resolving: in every state."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from shared.conversation import actions, inbound
from shared.db.pool import Database
from shared.errors import PermanentError
from shared.queue import replay
from tests.fakes.desk import (
    ADDRESS,
    ANSWER,
    NOTICE,
    WHO,
    audited,
    conversation,
    flagged,
    fresh,
    hand_back,
    newest,
    open_messages,
    open_suggestions,
    raising,
    refused,
    take_over,
    waiting_draft,
)
from tests.fakes.world import World, run_all


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


# Taking over


def test_taking_over_is_said_once_and_written_down(world: World) -> None:
    world.says(ADDRESS, "hoi")
    take_over(world)
    assert world.value("SELECT mode FROM conversations") == "manual"
    assert refused(lambda: take_over(world)) == "already_manual"
    assert audited(world) == [(WHO, "take_over", str(conversation(world)))]
    with world.database.connection() as connection:
        assert refused(lambda: actions.take_over(connection, uuid4(), who=WHO)) == "no_conversation"


def test_a_draft_that_waits_is_held_back_and_becomes_a_suggestion(world: World) -> None:
    waiting_draft(world)
    take_over(world)
    assert world.rows("SELECT status, held_reason FROM messages WHERE source = 'ai'") == [("failed", "taken_over")]
    assert world.rows("SELECT status, closed_by, closed_reason FROM ai_jobs") == [("failed", WHO, "taken_over")]
    assert open_messages(world) == ["hoeveel verlof heb ik?"]
    assert open_suggestions(world) == [ANSWER]  # without the line that a digital assistant answers
    assert flagged(world) == "manual"
    run_all(world)
    assert world.line.accepted == []
    assert len(world.model.asked) == 1


def test_what_joined_the_draft_that_is_held_back_is_part_of_the_next_suggestion(world: World) -> None:
    waiting_draft(world)
    world.says(ADDRESS, "en ouderschapsverlof?")
    take_over(world)
    run_all(world)
    assert world.line.accepted == []
    assert open_messages(world) == ["hoeveel verlof heb ik?", "en ouderschapsverlof?"]
    assert world.rows("SELECT state, decided_by, cardinality(answers) FROM suggestions ORDER BY created_at") == [
        ("rejected", "newer", 1),
        ("open", None, 2),
    ]


def test_an_answer_that_was_not_begun_becomes_a_suggestion(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    take_over(world)
    run_all(world)
    assert world.line.accepted == []
    assert open_suggestions(world) == [ANSWER]


def test_taking_over_while_the_model_answers_sends_nothing_and_loses_nothing(world: World) -> None:
    def says(_: Any) -> str:
        take_over(world)
        return "Je hebt 200 uur verlof. [1]"

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert world.line.accepted == []
    assert world.rows("SELECT status, held_reason FROM messages WHERE source = 'ai'") == [("failed", "taken_over")]
    assert world.rows("SELECT status FROM ai_jobs") == [("done",)]
    assert open_messages(world) == ["hoeveel verlof heb ik?"]
    assert open_suggestions(world) == [ANSWER]
    assert len(world.model.asked) == 1
    assert flagged(world) == "manual"


def test_a_draft_that_was_held_back_stays_so_when_its_worker_died_before_saying_so(world: World) -> None:
    def says(_: Any) -> str:
        if len(world.model.asked) == 1:
            take_over(world)
        return "Je hebt 200 uur verlof. [1]"

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.force("UPDATE ai_jobs SET status = 'pending', rerun = true")  # rescued, after hand_back has joined it
    world.execute("UPDATE conversations SET mode = 'auto'")
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert world.rows("SELECT status FROM messages WHERE source = 'ai' ORDER BY seq") == [("failed",), ("sent",)]


def test_what_is_on_its_way_arrives_and_is_confirmed(world: World) -> None:
    world.line.before = lambda _: take_over(world)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert world.rows("SELECT status FROM messages WHERE source = 'ai'") == [("sent",)]
    assert open_messages(world) == []
    assert open_suggestions(world) == []


def test_what_was_on_its_way_and_surely_did_not_leave_is_held_back(world: World) -> None:
    refuse = raising(ConnectionRefusedError(), times=1)

    def before(message: Any) -> None:
        take_over(world)
        refuse(message)

    world.line.before = before
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert world.line.accepted == []
    assert open_messages(world) == ["hoeveel verlof heb ik?"]
    assert open_suggestions(world) == [ANSWER]
    assert flagged(world) == "manual"


def test_a_line_that_says_nothing_is_no_suggestion(world: World) -> None:
    world.model.says = lambda _: "NO_ANSWER"
    waiting_draft(world)
    take_over(world)
    run_all(world)
    assert open_suggestions(world) == []
    assert open_messages(world) == ["hoeveel verlof heb ik?"]
    assert flagged(world) == "unanswered"
    assert world.line.accepted == []


def test_a_reply_that_is_held_stays_a_matter_of_evidence(world: World) -> None:
    def before(_: Any) -> None:
        raise TimeoutError

    world.line.before = before
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.settle_doubts(rounds=30)
    take_over(world)
    run_all(world)
    assert world.rows("SELECT status FROM messages WHERE source = 'ai'") == [("held",)]
    assert open_messages(world) == []


def test_a_restart_in_manual_mode_sends_nothing(world: World) -> None:
    def says(_: Any) -> str:
        raise PermanentError("content_filter", "refused")

    model_says, world.model.says = world.model.says, says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    accepted = list(world.line.accepted)  # the apology
    world.model.says = model_says
    take_over(world)
    job = world.value("SELECT id FROM ai_jobs WHERE type = 'autoreply'")
    with world.database.connection() as connection:
        replay.restart(connection, [job], who=WHO)
    run_all(world)
    assert world.line.accepted == accepted
    assert open_suggestions(world) == [ANSWER]


# Manual mode


def test_in_manual_mode_each_message_refreshes_the_suggestion(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    take_over(world)
    world.run()
    world.model.says = lambda _: "Beide staan erin. [1]"
    world.says(ADDRESS, "en ouderschapsverlof?")
    world.run()
    assert world.line.accepted == []
    assert world.line.typed == []  # nobody may be writing
    assert open_messages(world) == ["hoeveel verlof heb ik?", "en ouderschapsverlof?"]
    assert flagged(world) == "manual"
    assert world.rows(
        "SELECT asked_by, state, decided_by, cardinality(answers) FROM suggestions ORDER BY created_at"
    ) == [
        ("manual mode", "rejected", "newer", 1),
        ("manual mode", "open", None, 2),
    ]
    assert "hoeveel verlof heb ik?\nen ouderschapsverlof?" in world.model.asked[-1][-1]["content"]


def test_in_manual_mode_what_the_documents_do_not_say_is_flagged(world: World) -> None:
    world.model.says = lambda _: "NO_ANSWER"
    world.says(ADDRESS, "wie wordt de nieuwe directeur?")
    take_over(world)
    world.run()
    assert open_suggestions(world) == []
    assert open_messages(world) == ["wie wordt de nieuwe directeur?"]
    assert flagged(world) == "unanswered"


def test_the_person_is_asked_before_the_model_has_answered(world: World) -> None:
    seen: list[str | None] = []

    def says(_: Any) -> str:
        seen.append(flagged(world))
        return "Je hebt 200 uur verlof. [1]"

    world.model.says = says
    world.says(ADDRESS, "hoi")
    take_over(world)
    world.execute("UPDATE conversations SET needs_person_since = NULL, needs_person_reason = NULL")
    world.run()
    assert seen == ["manual"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"UNKNOWN_SENDERS": "decline"}, "hoeveel verlof heb ik?"), ({}, "medewerker"), ({}, "")],
)
def test_in_manual_mode_some_messages_cost_no_model_call(
    database: Database, changes: dict[str, str], text: str
) -> None:
    world = fresh(database, **changes)
    world.says(ADDRESS, text)
    take_over(world)
    world.run()
    assert world.model.asked == []
    assert world.line.accepted == []
    assert flagged(world) == "manual"
    assert len(open_messages(world)) == 1


def test_in_manual_mode_the_daily_limit_bounds_the_suggestions(database: Database) -> None:
    world = fresh(database, SENDER_DAILY_LIMIT="2")
    world.says(ADDRESS, "vraag 0?")
    take_over(world)
    for n in range(1, 5):
        world.run()
        world.says(ADDRESS, f"vraag {n}?")
    world.run()
    assert len(world.model.asked) == 2
    assert world.line.accepted == []
    assert len(open_messages(world)) == 5


@pytest.mark.parametrize("text", ["hoeveel verlof heb ik?", "help"])
def test_an_earlier_reason_to_ask_for_a_person_is_kept(world: World, text: str) -> None:
    world.says(ADDRESS, "medewerker")
    world.run()
    assert flagged(world) == "asked"
    take_over(world)
    world.says(ADDRESS, text)
    world.run()
    assert flagged(world) == "asked"


def test_consent_is_confirmed_in_manual_mode_too(world: World) -> None:
    world.says(ADDRESS, "hoi")
    take_over(world)
    world.says(ADDRESS, "stop")
    run_all(world)
    assert [body[:18] for body in world.sent_to(ADDRESS)] == ["Je ontvangt geen b"]
    assert open_suggestions(world) == []


# Handing back


def test_handing_back_answers_only_what_comes_after(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    take_over(world)
    world.run()
    hand_back(world)
    assert world.value("SELECT mode FROM conversations") == "auto"
    assert open_messages(world) == []
    assert world.value("SELECT bool_and(answered_by = id) FROM messages WHERE NOT from_self") is True
    assert open_suggestions(world) == []
    assert flagged(world) is None
    run_all(world)
    assert world.line.accepted == []
    world.says(ADDRESS, "en ouderschapsverlof?")
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert "hoeveel verlof heb ik?" not in world.model.asked[-1][-1]["content"]
    assert refused(lambda: hand_back(world)) == "already_auto"


@pytest.mark.parametrize("runs_first", [False, True])
def test_handing_back_answers_what_waits_when_asked(world: World, runs_first: bool) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    take_over(world)
    if runs_first:
        world.run()
    world.says(ADDRESS, "en ouderschapsverlof?")
    if runs_first:
        world.run()
    hand_back(world, answer_waiting=True)
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert "hoeveel verlof heb ik?\nen ouderschapsverlof?" in world.model.asked[-1][-1]["content"]
    assert open_messages(world) == []
    assert open_suggestions(world) == []


def test_what_the_person_had_not_seen_is_answered_after_handing_back(world: World) -> None:
    world.says(ADDRESS, "dank je, tot morgen")
    take_over(world)
    world.run()
    seen = newest(world)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    hand_back(world, seen_seq=seen)
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert "tot morgen" not in world.model.asked[-1][-1]["content"]


@pytest.mark.parametrize("answer_waiting", [False, True])
def test_handing_back_while_a_suggestion_is_made_leaves_none(world: World, answer_waiting: bool) -> None:
    def says(_: Any) -> str:
        if len(world.model.asked) == 1:
            hand_back(world, answer_waiting=answer_waiting)
        return "Je hebt 200 uur verlof. [1]"

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    take_over(world)
    run_all(world)
    assert open_suggestions(world) == []
    assert open_messages(world) == []
    assert len(world.line.accepted) == int(answer_waiting)


def test_handing_back_keeps_the_flag_of_what_went_wrong(world: World) -> None:
    world.says(ADDRESS, "medewerker")
    world.run()
    take_over(world)
    hand_back(world)
    assert flagged(world) == "asked"


def test_who_has_opted_out_is_not_answered_after_handing_back(world: World) -> None:
    world.says(ADDRESS, "hoi")
    take_over(world)
    world.execute("UPDATE conversations SET opted_out_at = now()")
    hand_back(world, answer_waiting=True)
    run_all(world)
    assert world.line.accepted == []


# Resolving


def test_resolving_clears_the_flag_once(world: World) -> None:
    world.says(ADDRESS, "medewerker")
    world.run()
    with world.database.connection() as connection:
        actions.resolve(connection, conversation(world), who=WHO)
        assert flagged(world) is None
        assert refused(lambda: actions.resolve(connection, conversation(world), who=WHO)) == "nothing_to_resolve"
    assert audited(world) == [(WHO, "resolve", str(conversation(world)))]


# Joining


def test_the_two_joining_statements_join_by_the_same_rule(world: World) -> None:
    def rule(sql: str) -> str:
        return " ".join(sql.partition("ON CONFLICT (conversation_id)")[2].partition("DO UPDATE")[0].split())

    inserts = world.value("SELECT prosrc FROM pg_proc WHERE proname = 'store_inbound'")
    assert rule(inserts) == rule(inbound.JOIN) != ""
