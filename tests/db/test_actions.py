"""What people do to a conversation, in every state and against workers and messages that come at the same moment."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared import audit
from shared.conversation import actions, inbound
from shared.db.pool import Database
from shared.errors import PermanentError, UserError
from shared.queue import replay, store
from tests.fakes.world import World, run_all

ADDRESS = "+31600000001"
STATUS_OF_ANSWER = "SELECT status FROM messages WHERE conversation_id = %(id)s AND source = 'ai'"
OUTCOME = """
    SELECT EXISTS (SELECT FROM messages m WHERE m.conversation_id = c.id AND NOT m.from_self AND m.answered_by IS NULL),
        (SELECT count(*) FROM suggestions s WHERE s.conversation_id = c.id AND s.state = 'open'),
        (SELECT count(*) FROM ai_jobs j WHERE j.conversation_id = c.id AND j.status IN ('pending', 'processing'))
    FROM conversations c WHERE c.id = %(id)s
"""
NOTICE = "Je praat met een digitale assistent; stuur “medewerker” als je liever een mens spreekt.\n\n"
ANSWER = "Je hebt 200 uur verlof. [1]\n\nBron: [1] Personeelshandboek › Verlof"
WHO = "anna"


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


def fresh(database: Database, **changes: str) -> World:
    world = World(database, **changes)
    world.execute("TRUNCATE ai_jobs, job_attempts, messages, conversations, people, documents, audit_log CASCADE")
    world.execute("UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL")
    world.add_handbook()
    return world


def refusing(times: int = 1) -> Callable[[Any], None]:
    """A line that cannot be reached at first: what it should have sent surely did not leave."""
    left = [times]

    def before(_: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise ConnectionRefusedError

    return before


def conversation(world: World) -> UUID:
    found: UUID = world.value("SELECT id FROM conversations")
    return found


def newest(world: World) -> int:
    return int(world.value("SELECT max(seq) FROM messages WHERE NOT from_self"))


def take_over(world: World) -> None:
    with world.database.connection() as connection:
        actions.take_over(connection, conversation(world), who=WHO)


def hand_back(world: World, *, answer_waiting: bool = False, seen_seq: int | None = None) -> None:
    with world.database.connection() as connection:
        actions.hand_back(connection, conversation(world), who=WHO, answer_waiting=answer_waiting, seen_seq=seen_seq)


def send_own(world: World, text: str = "Dag, met HR.", *, seen_seq: int | None = None) -> UUID:
    with world.database.connection() as connection:
        seen = newest(world) if seen_seq is None else seen_seq
        return actions.send_own(connection, conversation(world), text, who=WHO, seen_seq=seen)


def waiting_draft(world: World) -> None:
    """An answer that is drafted and waits for its second try."""
    world.line.before = refusing()
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    assert world.rows("SELECT status FROM messages WHERE source = 'ai'") == [("draft",)]


def open_messages(world: World) -> list[str]:
    rows = world.rows("SELECT body FROM messages WHERE NOT from_self AND answered_by IS NULL ORDER BY seq")
    return [body for (body,) in rows]


def open_suggestions(world: World) -> list[str]:
    return [text for (text,) in world.rows("SELECT text FROM suggestions WHERE state = 'open'")]


def flagged(world: World) -> str | None:
    reason: str | None = world.value("SELECT needs_person_reason FROM conversations")
    return reason


def audited(world: World) -> list[tuple[str, str, str | None]]:
    with world.database.connection() as connection:
        return [(line.who, line.what, line.target_id) for line in audit.list_entries(connection, limit=50)][::-1]


def refused(action: Callable[[], object]) -> str | None:
    with pytest.raises(UserError) as error:
        action()
    return error.value.name


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
    world.execute("UPDATE ai_jobs SET status = 'pending', rerun = true")  # rescued, after hand_back has joined it
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
    refuse = refusing()

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
    run_all(world)
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


# A person's own answer


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


LONGEST = "😀" * 800  # 1,600 UTF-16 units


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
    assert world.sent_to(ADDRESS) == [LONGEST]


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
    world.line.before = refusing()
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
    run_all(world)
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
    world.line.before = refusing()
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
    run_all(world)
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


# Races


def test_taking_over_races_with_the_worker(world: World) -> None:
    """Whatever the moment: it was on its way before, or nothing goes out and the question is open, with a suggestion."""
    moments: Counter[str] = Counter()
    for round_ in range(90):
        address = f"+316000010{round_:02}"
        drafting, sending = threading.Event(), threading.Event()

        def says(_: Any, drafting: threading.Event = drafting) -> str:
            drafting.set()
            return "Je hebt 200 uur verlof. [1]"

        def before(_: Any, sending: threading.Event = sending) -> None:
            sending.set()

        world.model.says, world.line.before = says, before
        world.says(address, "hoeveel verlof heb ik?")
        target = world.value("SELECT id FROM conversations WHERE address = %(address)s", address=address)

        began = drafting if round_ < 75 else sending

        def take(target: UUID = target, began: threading.Event = began, turns: int = round_ * 400) -> str:
            assert began.wait(10)
            for _ in range(turns):  # a little later each round
                pass
            with world.database.transaction() as connection:
                actions.take_over(connection, target, who=WHO)
                rows = connection.execute(STATUS_OF_ANSWER, {"id": target}).fetchall()
            return str(rows[0][0]) if rows else "none"

        with ThreadPoolExecutor(2) as pool:
            working, taking = pool.submit(world.run), pool.submit(take)
            working.result()
            moment = taking.result()
        world.run()
        moments[moment] += 1
        is_open, suggested, active = world.rows(OUTCOME, id=target)[0]
        if moment in ("sending", "sent"):
            assert world.sent_to(address) == [NOTICE + ANSWER]
            assert not is_open
        else:
            assert world.sent_to(address) == []
            assert is_open
            assert suggested == 1
        assert active == 0
    assert moments["draft"] > 5  # between the draft and the intent: the narrowest of all
    assert moments["sending"] + moments["sent"] >= 15


def test_own_answers_race_with_messages(world: World) -> None:
    """Each own answer covers what its page showed and nothing that came later; what is left stays open."""
    world.says(ADDRESS, "vraag 0")
    take_over(world)
    target = conversation(world)
    covers: list[tuple[UUID, int]] = []

    def write() -> None:
        for n in range(1, 61):
            world.says(ADDRESS, f"vraag {n}")

    def answer() -> None:
        with world.database.connection() as connection:
            for n in range(30):
                row = connection.execute(
                    "SELECT max(seq) FROM messages WHERE conversation_id = %s AND NOT from_self", [target]
                ).fetchone()
                assert row is not None
                message = actions.send_own(connection, target, f"antwoord {n}", who=WHO, seen_seq=row[0])
                covers.append((message, row[0]))

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(write), pool.submit(answer)]
        for future in running:
            future.result()
    before = 0
    for message, seen in covers:
        wrong = world.value(
            "SELECT count(*) FROM messages WHERE NOT from_self AND ((answered_by = %(message)s)"
            " <> (seq > %(before)s AND seq <= %(seen)s))",
            message=message, before=before, seen=seen,
        )  # fmt: skip
        assert wrong == world.value(
            "SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL AND seq > %(before)s"
            " AND seq <= %(seen)s",
            before=before, seen=seen,
        ) == 0  # fmt: skip
        before = seen
    assert world.value("SELECT count(*) FROM messages WHERE answered_by IS NULL AND NOT from_self AND seq <= %(s)s",
                       s=before) == 0  # fmt: skip


def test_people_workers_and_messages_all_at_once(database: Database) -> None:
    """Nothing deadlocks, nobody is answered by two, and at the end nothing is open without a job or a flag."""
    world = fresh(database)
    addresses = [f"+3160000010{n}" for n in range(3)]
    for address in addresses:
        world.says(address, "hoi, hoeveel verlof heb ik?")
    ids = [row[0] for row in world.rows("SELECT id FROM conversations ORDER BY address")]
    done = [False]

    def write(n: int) -> None:
        for m in range(15):
            world.says(addresses[n], f"vraag {m}?")

    def work(_: int) -> None:
        while not done[0]:
            world.app.worker.poll_once(4)

    def act(n: int) -> None:
        def attempt(action: Callable[..., object], *arguments: Any, **named: Any) -> None:
            try:
                with world.database.connection() as connection:
                    action(connection, *arguments, who=WHO, **named)
            except UserError as wrong:
                assert wrong.name in ("already_manual", "already_auto", "nothing_to_resolve")  # noqa: PT017

        for m in range(12):
            attempt(actions.take_over, ids[n])
            seen = world.value("SELECT max(seq) FROM messages WHERE conversation_id = %(id)s", id=ids[n])
            attempt(actions.send_own, ids[n], f"antwoord {m}", seen_seq=seen)
            attempt(actions.hand_back, ids[n], answer_waiting=m % 2 == 0, seen_seq=seen)
            attempt(actions.resolve, ids[n])

    with ThreadPoolExecutor(8) as pool:
        workers = [pool.submit(work, n) for n in range(2)]
        busy = [pool.submit(job, n) for job in (write, act) for n in range(3)]
        for future in busy:
            future.result()
        done[0] = True
        for worker in workers:
            worker.result()
    run_all(world, rounds=60)  # one after another of what was written
    assert (
        world.rows("SELECT type, error_class, last_error FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL")
        == []
    )
    assert open_messages(world) == []
    doubled = world.rows(
        "SELECT body, count(*) FROM messages WHERE source = 'admin' AND status <> 'sent' GROUP BY body"
    )
    assert doubled == []
    assert world.value("SELECT count(*) FROM messages WHERE status IN ('draft', 'sending')") == 0
    assert len(world.line.accepted) == world.value(
        "SELECT count(*) FROM messages WHERE provider_sid IS NOT NULL AND from_self"
    )
    assert world.rows("SELECT error FROM job_attempts WHERE error_class = 'database'") == []
    unheld = world.value("SELECT count(*) FROM messages WHERE source = 'ai' AND status = 'failed'"
                         " AND held_reason IS DISTINCT FROM 'taken_over'")  # fmt: skip
    assert unheld == 0
