"""Opting out and in: at once, with all that waits, confirmed once, and by Twilio's word as well as by ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shared.conversation import actions, consent, status
from shared.db.pool import Database
from shared.errors import PermanentError, UserError
from tests.fakes.world import World, run_all

ADDRESS, OTHER = "+31600000001", "+31600000002"
STOPPED = "Je ontvangt geen berichten meer van ons. Stuur START om weer mee te doen."
BACK = "Welkom terug. Stel gerust je vraag."
WELCOME = "Je kunt hier je vragen stellen."


@pytest.fixture
def world(database: Database) -> World:
    world = World(database)
    world.execute("TRUNCATE message_events, ai_jobs, job_attempts, messages, conversations, people, documents CASCADE")
    world.add_handbook()
    return world


def refuse_once(_: dict[str, Any]) -> None:
    raise ConnectionRefusedError


def with_a_draft(world: World) -> None:
    """An answer is ready, and waits for its retry."""
    world.line.before = refuse_once
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.line.before = lambda _: None
    assert ours(world) == [("answer", "draft", None)]


def ours(world: World) -> list[tuple[Any, ...]]:
    return world.rows("SELECT purpose, status, held_reason FROM messages WHERE from_self ORDER BY seq")


def opted_out(world: World) -> bool:
    return bool(world.value("SELECT opted_out_at IS NOT NULL FROM conversations ORDER BY address LIMIT 1"))


def flagged(world: World) -> str | None:
    reason: str | None = world.value("SELECT needs_person_reason FROM conversations")
    return reason


@pytest.mark.parametrize("word", ["STOP", "stoppen", "Afmelden!", " unsubscribe. ", "ＳＴＯＰ", "Stop 🛑"])
def test_each_word_opts_out_and_is_confirmed_once(world: World, word: str) -> None:
    for _ in range(2):
        world.says(ADDRESS, word)
    run_all(world)
    assert opted_out(world)
    assert len(world.sent_to(ADDRESS)) == 1
    assert world.model.asked == []


def test_stop_cancels_what_waits_to_be_sent_in_the_same_statement(world: World) -> None:
    with_a_draft(world)
    world.says(ADDRESS, "stop")
    assert ours(world) == [("answer", "failed", "opted_out"), ("consent", "draft", None)]
    assert world.rows("SELECT type, status, closed_by, closed_reason FROM ai_jobs ORDER BY seq") == [
        ("autoreply", "failed", "contact", "opted_out"),
        ("send_message", "pending", None, None),
    ]
    run_all(world)
    assert world.sent_to(ADDRESS) == [STOPPED]
    assert world.value("SELECT count(*) FROM dead_letters") == 0


def test_what_a_person_has_written_is_cancelled_too(world: World) -> None:
    world.says(ADDRESS, "medewerker")
    world.run()
    sent_before = len(world.line.accepted)
    with world.database.connection() as connection:
        conversation = world.value("SELECT id FROM conversations")
        actions.send_own(connection, conversation, "Ik kijk het na.", who="hr@example.org", seen_seq=10**9)
    world.says(ADDRESS, "stop")
    run_all(world)
    assert [message["body"] for message in world.line.accepted[sent_before:]] == [STOPPED]
    assert ("message", "failed", "opted_out") in ours(world)
    with world.database.connection() as connection, pytest.raises(UserError) as refused:
        actions.send_own(connection, conversation, "Toch nog iets.", who="hr@example.org", seen_seq=10**9)
    assert refused.value.name == "opted_out"


def test_the_conversation_beside_it_is_left_alone(world: World) -> None:
    with_a_draft(world)
    world.says(OTHER, "stop")
    run_all(world)
    assert len(world.sent_to(ADDRESS)) == 1
    assert world.sent_to(OTHER) == [STOPPED]


def test_what_may_have_left_keeps_its_job(world: World) -> None:
    with_a_draft(world)
    world.force("UPDATE messages SET status = 'sending', send_attempt = 2, send_started_at = now() WHERE from_self")
    world.says(ADDRESS, "stop")
    assert ours(world)[0] == ("answer", "sending", None)
    assert world.value("SELECT status FROM ai_jobs WHERE type = 'autoreply'") == "pending"


@pytest.mark.parametrize(
    ("texts", "sent"), [(["stop"], [STOPPED]), (["stop", "start"], [STOPPED, BACK])], ids=["stop", "both"]
)
def test_a_draft_that_was_just_claimed_is_stopped_by_its_intent(
    world: World, texts: list[str], sent: list[str]
) -> None:
    with_a_draft(world)
    said: list[Any] = []

    def stop_first(message: dict[str, Any]) -> None:
        said.append(message["body"])

    world.line.before = stop_first
    # The claim is committed, the intent is not: as if the worker had been held up between them.
    world.force("UPDATE ai_jobs SET status = 'processing', attempts = 2, claims = 2, lease_token = gen_random_uuid(),"
                " lease_until = now() + interval '1 minute', claimed_at = now()")  # fmt: skip
    for text in texts:
        world.says(ADDRESS, text)
    assert world.value("SELECT status FROM ai_jobs WHERE type = 'autoreply'") == "processing"
    world.force("UPDATE ai_jobs SET status = 'pending', lease_token = NULL, lease_until = NULL, next_run_at = now()"
                " WHERE type = 'autoreply'")  # fmt: skip
    run_all(world)
    assert said == sent
    assert ours(world)[0] == ("answer", "failed", "opted_out")
    assert world.value("SELECT count(*) FROM dead_letters") == 0


def test_an_answer_that_was_cancelled_does_not_come_back_with_start(world: World) -> None:
    with_a_draft(world)
    world.says(ADDRESS, "stop")
    world.says(ADDRESS, "start")
    run_all(world)
    assert world.sent_to(ADDRESS) == [STOPPED, BACK]
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert len(world.sent_to(ADDRESS)) == 3


@pytest.mark.parametrize("word", ["START", "Aanmelden.", "unstop"])
def test_start_opts_in_again_and_is_confirmed_once(world: World, word: str) -> None:
    world.says(ADDRESS, "stop")
    world.says(ADDRESS, word)
    run_all(world)
    assert not opted_out(world)
    assert len(world.sent_to(ADDRESS)) == 2
    world.says(ADDRESS, word)  # it was no opting in any more: a greeting
    run_all(world)
    assert world.sent_to(ADDRESS)[2].startswith((WELCOME, "You can ask"))
    assert world.model.asked == []


def test_who_begins_with_start_is_greeted_and_their_question_answered(world: World) -> None:
    world.says(ADDRESS, "Start")
    run_all(world)
    assert world.sent_to(ADDRESS)[0].startswith(WELCOME)
    world.says(OTHER, "start")
    world.says(OTHER, "hoeveel verlof heb ik?")
    run_all(world)
    assert "200 uur" in world.sent_to(OTHER)[0]
    assert len(world.model.asked) == 1


def test_many_stops_at_once_are_confirmed_once(world: World) -> None:
    with_a_draft(world)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: world.says(ADDRESS, "stop"), range(16)))
    run_all(world)
    assert world.sent_to(ADDRESS) == [STOPPED]


def test_a_message_that_comes_twice_cancels_nothing_the_second_time(world: World) -> None:
    world.says(ADDRESS, "stop", sid="SM-stop")
    world.says(ADDRESS, "start")
    run_all(world)
    with_a_second = len(world.sent_to(ADDRESS))
    world.line.before = refuse_once
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.line.before = lambda _: None
    world.says(ADDRESS, "stop", sid="SM-stop")
    run_all(world)
    assert len(world.sent_to(ADDRESS)) == with_a_second + 1


# Twilio's own word


@pytest.mark.parametrize(("kind", "text"), [("STOP", "stop"), ("STOP", "laat maar"), ("stop", "STOPPEN")])
def test_what_twilio_has_confirmed_is_not_confirmed_by_us(world: World, kind: str, text: str) -> None:
    with_a_draft(world)
    world.says(ADDRESS, text, OptOutType=kind)
    run_all(world)
    assert opted_out(world)
    assert world.sent_to(ADDRESS) == []
    world.says(ADDRESS, "start", OptOutType="START")
    run_all(world)
    assert not opted_out(world)
    assert world.sent_to(ADDRESS) == []


def test_help_that_twilio_has_answered_asks_for_a_person_and_says_nothing(world: World) -> None:
    world.says(ADDRESS, "help", OptOutType="HELP")
    run_all(world)
    assert flagged(world) == "asked"
    assert world.line.accepted == []
    assert world.value("SELECT count(*) FROM messages WHERE answered_by IS NULL AND NOT from_self") == 0
    assert not opted_out(world)
    world.execute("UPDATE conversations SET needs_person_since = NULL, needs_person_reason = NULL")
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.says(ADDRESS, "INFO", OptOutType="HELP")
    run_all(world)
    assert flagged(world) == "asked"
    assert len(world.sent_to(ADDRESS)) == 1


class Refused(PermanentError):
    """As Twilio's library raises it: with Twilio's code on it."""

    def __init__(self, code: int) -> None:
        super().__init__("rejected", f"HTTP 400 (Twilio {code})")
        self.code = code


@pytest.mark.parametrize("code", [21610, 63033])
def test_a_send_that_is_refused_because_of_an_opt_out_is_one(world: World, code: int) -> None:
    def refuse(_: dict[str, Any]) -> None:
        raise Refused(code)

    world.line.before = refuse
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert opted_out(world)
    assert world.rows("SELECT status, error_code FROM messages WHERE from_self") == [("failed", str(code))]
    assert world.rows("SELECT status FROM ai_jobs") == [("done",)]
    world.line.before = lambda _: None
    world.says(ADDRESS, "hallo?")
    run_all(world)
    assert world.line.accepted == []
    world.says(ADDRESS, "start")
    run_all(world)
    assert world.sent_to(ADDRESS) == [BACK]


def test_a_delivery_that_failed_because_of_an_opt_out_is_one(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    with_a_second_draft(world)
    sid = world.line.accepted[0]["sid"]
    message = world.value("SELECT id FROM messages WHERE provider_sid = %(sid)s", sid=sid)
    form = {"MessageSid": sid, "MessageStatus": "undelivered", "ErrorCode": "63033"}
    status.record(world.database, form, message, template_sid=None)
    assert opted_out(world)
    assert ours(world) == [("answer", "failed", None), ("answer", "failed", "opted_out")]
    run_all(world)
    assert len(world.line.accepted) == 1


def with_a_second_draft(world: World) -> None:
    world.line.before = refuse_once
    world.says(ADDRESS, "en deeltijd?")
    world.run()
    world.line.before = lambda _: None


def test_a_refusal_because_of_an_opt_out_counts_as_one(world: World) -> None:
    with_a_draft(world)
    write = consent.opt_out(world.value("SELECT id FROM conversations"))
    for _ in range(2):
        with world.database.transaction() as connection:
            connection.execute(write.sql, write.parameters)
    assert opted_out(world)
    assert ours(world) == [("answer", "failed", "opted_out")]
    run_all(world)
    assert world.line.accepted == []
    world.says(ADDRESS, "start")
    run_all(world)
    assert world.sent_to(ADDRESS) == [BACK]
