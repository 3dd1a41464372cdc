"""Suggestions: asked for, drafted, stored; sent, edited or rejected by a person, and never by themselves."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared import audit
from shared.conversation import actions, suggestions
from shared.conversation.suggestions import Suggestion
from shared.db.pool import Database
from shared.errors import PermanentError, UserError
from tests.fakes.desk import (
    ADDRESS,
    ANSWER,
    NOTICE,
    WHO,
    conversation,
    flagged,
    fresh,
    open_messages,
    refused,
    send_own,
)
from tests.fakes.world import World, run_all


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


@pytest.fixture
def manual(world: World) -> World:
    """A conversation that a person has taken over, with one question."""
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    with world.database.connection() as connection:
        actions.take_over(connection, conversation(world), who=WHO)
    return world


def ask(world: World, who: str = WHO) -> UUID:
    with world.database.connection() as connection:
        return suggestions.ask(connection, conversation(world), who=who)


def approve(world: World, suggestion: UUID, text: str | None = None) -> UUID:
    with world.database.connection() as connection:
        return suggestions.approve(connection, suggestion, who=WHO, text=text)


def all_of(world: World) -> list[Suggestion]:
    with world.database.connection() as connection:
        return suggestions.of_conversation(connection, conversation(world))


def the_open_one(world: World) -> Suggestion:
    (found,) = [suggestion for suggestion in all_of(world) if suggestion.state == "open"]
    return found


# Asking


def test_what_is_asked_for_is_stored_and_nothing_goes_out(manual: World) -> None:
    manual.execute("DELETE FROM ai_jobs")
    job = ask(manual)
    run_all(manual)
    (found,) = all_of(manual)
    assert (found.text, found.language, found.state, found.asked_by, found.job_id) == (ANSWER, "nl", "open", WHO, job)
    assert found.answers == [manual.value("SELECT id FROM messages")]
    assert found.citations[0]["label"] == "Personeelshandboek › Verlof"
    assert (found.model, bool(found.prompt_version), bool(found.sources_hash)) == ("fake-chat", True, True)
    assert not found.is_answered
    assert manual.line.accepted == []
    assert open_messages(manual) == ["hoeveel verlof heb ik?"]
    assert manual.value("SELECT payload FROM ai_jobs") == {
        "type": "suggest", "conversation_id": str(conversation(manual)), "asked_by": WHO,
    }  # fmt: skip
    with manual.database.connection() as connection:
        newest = audit.list_entries(connection, limit=1)[0]
    assert (newest.who, newest.what, newest.target_type, newest.target_id) == (
        WHO, "ask_suggestion", "conversation", str(conversation(manual)),
    )  # fmt: skip


def test_asking_again_waits_for_the_same_draft(manual: World) -> None:
    job = ask(manual)
    assert ask(manual, "bart") == job
    manual.rows("SELECT claim_ai_jobs(2)")
    assert ask(manual) == job
    manual.says(ADDRESS, "en ouderschapsverlof?")
    assert ask(manual) != job
    assert manual.value("SELECT count(*) FROM audit_log WHERE what = 'ask_suggestion'") == 2


def test_what_the_documents_do_not_say_is_no_suggestion(manual: World) -> None:
    manual.model.says = lambda _: "NO_ANSWER"
    ask(manual)
    run_all(manual)
    assert all_of(manual) == []
    assert flagged(manual) == "unanswered"
    assert manual.rows("SELECT DISTINCT status FROM ai_jobs") == [("done",)]
    assert manual.line.accepted == []


@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_the_last_question_that_was_not_answered_can_be_suggested_for(world: World, mode: str) -> None:
    """The documents did not say, somebody has added one, and presses the button."""
    says, world.model.says = world.model.says, lambda _: "NO_ANSWER"
    world.says(ADDRESS, "hoi")
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.says(ADDRESS, "medewerker")
    world.run()
    world.execute("UPDATE conversations SET mode = %(mode)s", mode=mode)
    world.model.says = says
    accepted = len(world.line.accepted)
    ask(world)
    run_all(world)
    found = the_open_one(world)
    assert (found.text, found.answers, found.is_answered) == (ANSWER, [], False)
    prompt = world.model.asked[-1][-1]["content"]
    assert "hoi\nhoeveel verlof heb ik?" in prompt.partition("<question")[2]
    assert "<history>" not in prompt  # what was said after it is no history of it
    assert len(world.line.accepted) == accepted
    approve(world, found.id)
    run_all(world)
    assert world.sent_to(ADDRESS)[-1] == ANSWER


@pytest.mark.parametrize(
    ("text", "prepare", "name"),
    [
        ("medewerker", "SELECT", "nothing_asked"),
        ("start", "SELECT", "nothing_asked"),
        ("", "SELECT", "nothing_asked"),
        ("hoi", "UPDATE messages SET created_at = now() - interval '25 hours'", "nothing_asked"),
        ("hoi", "UPDATE conversations SET opted_out_at = now()", "opted_out"),
        ("hoi", "UPDATE conversations SET last_inbound_at = now() - interval '25 hours'", "outside_window"),
    ],
)
def test_when_nothing_can_be_suggested_asking_says_so(world: World, text: str, prepare: Any, name: str) -> None:
    world.says(ADDRESS, text)
    world.execute(prepare)
    assert refused(lambda: ask(world)) == name
    assert world.value("SELECT count(*) FROM ai_jobs WHERE type = 'suggest'") == 0
    assert world.value("SELECT count(*) FROM audit_log") == 0


def test_what_has_its_answer_is_not_suggested_for_again(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    assert refused(lambda: ask(world)) == "nothing_asked"
    world.says(ADDRESS, "en ouderschapsverlof?")
    send_own(world)
    assert refused(lambda: ask(world)) == "nothing_asked"


def test_a_question_whose_answer_died_can_be_suggested_for(world: World) -> None:
    def says(_: Any) -> str:
        raise PermanentError("content_filter", "refused")

    says_well, world.model.says = world.model.says, says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    world.model.says = says_well
    ask(world)
    run_all(world)
    found = the_open_one(world)
    assert (found.text, len(found.answers), found.is_answered) == (ANSWER, 1, False)
    approve(world, found.id)
    assert world.rows("SELECT closed_by, closed_reason FROM ai_jobs WHERE type = 'autoreply'") == [(WHO, "answered")]
    run_all(world)
    assert world.sent_to(ADDRESS)[1:] == [ANSWER]  # after the apology


def test_a_question_whose_answer_died_is_not_suggested_for_once_it_is_answered(world: World) -> None:
    def says(_: Any) -> str:
        if len(world.model.asked) == 1:
            raise PermanentError("content_filter", "refused")
        send_own(world)
        return "Je hebt 200 uur verlof. [1]"

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    ask(world)
    run_all(world)
    assert all_of(world) == []


def test_a_conversation_or_a_suggestion_that_is_not_there(world: World) -> None:
    with world.database.connection() as connection:
        assert refused(lambda: suggestions.ask(connection, uuid4(), who=WHO)) == "no_conversation"
        assert refused(lambda: suggestions.approve(connection, uuid4(), who=WHO)) == "no_suggestion"
        assert refused(lambda: suggestions.reject(connection, uuid4(), who=WHO)) == "no_suggestion"
        assert suggestions.of_conversation(connection, uuid4()) == []


def test_a_suggestion_that_dies_leaves_its_dead_letter_and_nothing_else(world: World) -> None:
    def says(_: Any) -> str:
        raise PermanentError("content_filter", "refused")

    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.execute("UPDATE ai_jobs SET next_run_at = now() + interval '1 hour'")
    world.model.says = says
    ask(world)
    world.run()
    assert world.rows("SELECT type, error_class FROM ai_jobs WHERE status = 'failed'") == [
        ("suggest", "content_filter")
    ]
    assert world.line.accepted == []
    assert flagged(world) is None
    assert open_messages(world) == ["hoeveel verlof heb ik?"]


def test_what_is_suggested_beside_an_autoreply_does_not_disturb_it(world: World) -> None:
    """Its burial still covers exactly what it has read."""

    def says(_: Any) -> str:
        if len(world.model.asked) == 1:
            ask(world)
            world.app.worker.poll_once(4)
            world.says(ADDRESS, "later")
            raise PermanentError("content_filter", "refused")
        return "Je hebt 200 uur verlof. [1]"

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.app.worker.poll_once(4)
    assert open_messages(world) == ["later"]


# The open one


def test_a_newer_suggestion_takes_the_older_one_s_place(manual: World) -> None:
    run_all(manual)
    ask(manual)
    run_all(manual)
    newer, older = all_of(manual)
    assert (newer.state, newer.asked_by) == ("open", WHO)
    assert (older.state, older.asked_by, older.decided_by) == ("rejected", "manual mode", "newer")


def test_a_late_suggestion_does_not_replace_one_that_answers_more(manual: World) -> None:
    run_all(manual)
    slow, finished = threading.Event(), threading.Event()

    def says(messages: Any) -> str:
        if "ouderschapsverlof" in messages[-1]["content"].partition("<question")[2]:
            return "Beide staan erin. [1]"
        slow.set()
        assert finished.wait(30)
        return "Alleen de eerste. [1]"

    manual.model.says = says
    ask(manual)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(manual.app.worker.poll_once, 1)
        assert slow.wait(30)
        manual.says(ADDRESS, "en ouderschapsverlof?")
        assert manual.app.worker.poll_once(1) == 1
        finished.set()
        late.result()
    assert the_open_one(manual).text.startswith("Beide")
    assert len(the_open_one(manual).answers) == 2


def test_a_suggestion_for_what_was_answered_meanwhile_is_not_stored(manual: World) -> None:
    def says(_: Any) -> str:
        send_own(manual)
        return "Je hebt 200 uur verlof. [1]"

    manual.model.says = says
    ask(manual)
    manual.app.worker.poll_once(1)
    manual.app.worker.poll_once(1)
    assert all_of(manual) == []


def test_a_suggestion_for_who_has_opted_out_meanwhile_is_not_stored(manual: World) -> None:
    def says(_: Any) -> str:
        manual.execute("UPDATE conversations SET opted_out_at = now()")
        return "Je hebt 200 uur verlof. [1]"

    manual.model.says = says
    run_all(manual)
    assert all_of(manual) == []


# Approving


def test_approving_sends_it_and_covers_what_it_answers(manual: World) -> None:
    run_all(manual)
    found = the_open_one(manual)
    message = approve(manual, found.id)
    assert flagged(manual) is None
    run_all(manual)
    assert manual.sent_to(ADDRESS) == [ANSWER]  # in manual mode: a person has decided
    assert manual.rows(
        "SELECT id, reply_id, source, purpose, status, model, prompt_version IS NOT NULL, language, citations"
        " FROM messages WHERE from_self"
    ) == [(message, message, "admin", "answer", "sent", "fake-chat", True, "nl", found.citations)]
    assert manual.value("SELECT answered_by FROM messages WHERE NOT from_self") == message
    (sent,) = all_of(manual)
    assert (sent.state, sent.message_id, sent.decided_by, sent.edited_text) == ("sent", message, WHO, None)
    with manual.database.connection() as connection:
        newest = audit.list_entries(connection, limit=1)[0]
    assert (newest.what, newest.details) == (
        "approve_suggestion",
        {"suggestion": str(found.id), "message": str(message), "edited": False},
    )


def test_an_edited_suggestion_keeps_the_sources_that_it_still_names(manual: World) -> None:
    run_all(manual)
    approve(manual, the_open_one(manual).id, "Je hebt 200 uur. [1]\r\n\r\nBron: [1] Personeelshandboek › Verlof")
    (sent,) = all_of(manual)
    assert sent.edited_text == "Je hebt 200 uur. [1]\n\nBron: [1] Personeelshandboek › Verlof"
    assert sent.text == ANSWER
    assert len(manual.value("SELECT citations FROM messages WHERE from_self")) == 1
    run_all(manual)
    assert manual.sent_to(ADDRESS) == [sent.edited_text]


def test_an_edited_suggestion_without_its_sources_names_none(manual: World) -> None:
    run_all(manual)
    approve(manual, the_open_one(manual).id, "Je hebt 200 uur.")
    assert manual.value("SELECT citations FROM messages WHERE from_self") == []


def test_what_comes_back_unchanged_from_a_form_is_not_edited(manual: World) -> None:
    run_all(manual)
    approve(manual, the_open_one(manual).id, ANSWER.replace("\n", "\r\n") + "\r\n")
    assert all_of(manual)[0].edited_text is None


@pytest.mark.parametrize(
    ("prepare", "text", "name"),
    [
        ("SELECT", " \n", "empty"),
        ("SELECT", "x" * 16001, "too_long"),
        ("UPDATE conversations SET opted_out_at = now()", None, "opted_out"),
        ("UPDATE conversations SET last_inbound_at = now() - interval '25 hours'", None, "outside_window"),
        ("UPDATE messages SET answered_by = id", None, "answered_meanwhile"),
    ],
)
def test_what_cannot_be_sent_stays_open(manual: World, prepare: Any, text: str | None, name: str) -> None:
    run_all(manual)
    found = the_open_one(manual)
    manual.execute(prepare)
    assert refused(lambda: approve(manual, found.id, text)) == name
    assert the_open_one(manual).id == found.id
    assert manual.value("SELECT count(*) FROM messages WHERE from_self") == 0
    assert manual.value("SELECT count(*) FROM audit_log WHERE what = 'approve_suggestion'") == 0


def test_approving_after_a_newer_message_covers_only_what_it_answers(manual: World) -> None:
    run_all(manual)
    found = the_open_one(manual)
    manual.says(ADDRESS, "en ouderschapsverlof?")
    approve(manual, found.id)
    assert open_messages(manual) == ["en ouderschapsverlof?"]
    assert flagged(manual) == "manual"
    run_all(manual)
    assert manual.sent_to(ADDRESS) == [ANSWER]
    assert len(the_open_one(manual).answers) == 1  # a new one, for the newer message alone


def test_approving_twice_is_refused_and_so_is_rejecting_then(manual: World) -> None:
    run_all(manual)
    found = the_open_one(manual)
    approve(manual, found.id)
    assert refused(lambda: approve(manual, found.id)) == "suggestion_decided"
    with manual.database.connection() as connection:
        assert refused(lambda: suggestions.reject(connection, found.id, who=WHO)) == "suggestion_decided"
    run_all(manual)
    assert manual.sent_to(ADDRESS) == [ANSWER]


def test_a_rejected_suggestion_cannot_be_approved(manual: World) -> None:
    run_all(manual)
    found = the_open_one(manual)
    with manual.database.connection() as connection:
        suggestions.reject(connection, found.id, who=WHO)
    assert all_of(manual)[0].decided_by == WHO
    assert manual.value("SELECT what FROM audit_log ORDER BY id DESC LIMIT 1") == "reject_suggestion"
    assert refused(lambda: approve(manual, found.id)) == "suggestion_decided"
    assert open_messages(manual) == ["hoeveel verlof heb ik?"]


def test_an_own_answer_puts_the_suggestion_aside(manual: World) -> None:
    run_all(manual)
    send_own(manual)
    assert [(found.state, found.decided_by) for found in all_of(manual)] == [("rejected", WHO)]


def test_an_approved_suggestion_stops_an_answer_that_was_not_begun(world: World) -> None:
    world.execute("INSERT INTO conversations (address) VALUES (%(address)s)", address=ADDRESS)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.execute("UPDATE ai_jobs SET next_run_at = now() + interval '1 hour'")  # it waits for its second try
    ask(world)
    world.run()
    approve(world, the_open_one(world).id)
    run_all(world)
    assert world.sent_to(ADDRESS) == [ANSWER]
    world.says(ADDRESS, "en hoeveel uur is dat?")
    run_all(world)
    assert world.sent_to(ADDRESS)[1].startswith(NOTICE)  # the person's answer did not say it


def test_a_suggestion_that_the_machine_has_answered_meanwhile_cannot_be_approved(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.execute("UPDATE ai_jobs SET next_run_at = now() + interval '1 hour'")
    ask(world)
    world.run()
    found = the_open_one(world)
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert the_open_one(world).is_answered
    assert refused(lambda: approve(world, found.id)) == "answered_meanwhile"


@pytest.mark.parametrize("round_", range(8))
def test_two_people_approve_at_once_and_one_message_goes_out(manual: World, round_: int) -> None:
    run_all(manual)
    found = the_open_one(manual)
    together = threading.Barrier(4)

    def press(n: int) -> str | None:
        together.wait(30)
        try:
            approve(manual, found.id, None if n % 2 else f"Tekst van {n}")
        except UserError as wrong:
            return wrong.name
        return "sent"

    with ThreadPoolExecutor(4) as pool:
        results = sorted(str(result) for result in pool.map(press, range(4)))
    assert results == ["sent", "suggestion_decided", "suggestion_decided", "suggestion_decided"]
    run_all(manual)
    assert len(manual.sent_to(ADDRESS)) == 1


@pytest.mark.parametrize("round_", range(8))
def test_approving_races_with_an_own_answer(manual: World, round_: int) -> None:
    run_all(manual)
    found = the_open_one(manual)
    together = threading.Barrier(2)

    def press() -> str | None:
        together.wait(30)
        try:
            approve(manual, found.id)
        except UserError as wrong:
            return wrong.name
        return "sent"

    def write() -> None:
        together.wait(30)
        send_own(manual)

    with ThreadPoolExecutor(2) as pool:
        pressing, writing = pool.submit(press), pool.submit(write)
        writing.result()
        outcome = pressing.result()
    run_all(manual)
    sent = manual.sent_to(ADDRESS)
    assert "Dag, met HR." in sent  # what a person writes is always sent
    assert len(sent) == (2 if outcome == "sent" else 1)
    assert outcome in ("sent", "suggestion_decided")
    assert open_messages(manual) == []
