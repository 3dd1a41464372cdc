"""One answer to what is asked: bursts, order, sources, and what the documents do not say."""

from __future__ import annotations

from typing import Any

import pytest

from shared.conversation import actions
from shared.db.pool import Database
from shared.errors import TransientError
from tests.fakes.desk import flagged, fresh
from tests.fakes.replies import ADDRESS, ANSWER, NOTICE, job_row, raising, reply_row
from tests.fakes.world import World, run_all


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


def test_a_question_gets_one_answer_with_its_source(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?", sid="SMq")
    world.run()
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert reply_row(world) == ("sent", None, True, 1)
    assert job_row(world) == ("done", None)
    assert world.line.typed == ["SMq"]
    reply, answered_by = world.rows(
        "SELECT (SELECT reply_id FROM messages WHERE source = 'ai'), answered_by FROM messages WHERE NOT from_self"
    )[0]
    assert reply == answered_by == world.value("SELECT id FROM ai_jobs")
    assert world.rows("SELECT model, prompt_version IS NOT NULL, sources_hash IS NOT NULL, language FROM messages"
                      " WHERE source = 'ai'") == [("fake-chat", True, True, "nl")]  # fmt: skip
    callback = world.line.accepted[0]["callback"]
    message = world.value("SELECT id FROM messages WHERE source = 'ai'")
    assert callback == f"https://antwoord.example.org/api/twilio/status?message={message}&try=1"


@pytest.mark.parametrize("said", ["Je hebt 200 uur verlof. [1]", ""])
def test_an_answer_that_was_cut_off_is_not_sent(world: World, said: str) -> None:
    """Its sources may bear it out as far as it goes: what it still had to say, nobody knows."""
    world.model.says, world.model.is_whole = lambda _: said, False
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    [sent] = world.sent_to(ADDRESS)
    assert "200 uur" not in sent
    assert flagged(world) == "unanswered"
    assert len(world.model.asked) == 1
    assert world.rows("SELECT purpose, model FROM messages WHERE source = 'ai'") == [("unanswered", "fake-chat")]


def test_a_burst_is_one_question(world: World) -> None:
    for text in ("hoi", "ik heb een vraag", "hoeveel vakantiedagen heb ik?"):
        world.says(ADDRESS, text)
    world.run()
    assert len(world.sent_to(ADDRESS)) == 1
    assert "hoi\nik heb een vraag\nhoeveel vakantiedagen heb ik?" in world.model.asked[0][-1]["content"]


def test_the_notice_comes_first_and_again_only_after_thirty_days(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.says(ADDRESS, "en hoeveel uur is dat?")
    world.run()
    world.execute("UPDATE messages SET created_at = created_at - interval '31 days'")
    world.says(ADDRESS, "hoeveel verlof heb ik ook alweer?")
    world.run()
    assert [body.startswith(NOTICE) for body in world.sent_to(ADDRESS)] == [True, False, True]


def test_a_message_that_comes_while_the_answer_is_made_gets_its_own_after_it(world: World) -> None:
    def says(messages: Any) -> str:
        if len(world.model.asked) == 1:
            world.says(ADDRESS, "en ouderschapsverlof?")
        return f"Antwoord {len(world.model.asked)}. [1]"

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    bodies = world.sent_to(ADDRESS)
    assert [body.removeprefix(NOTICE).split(".")[0] for body in bodies] == ["Antwoord 1", "Antwoord 2"]
    assert world.value("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == 0


def test_a_message_between_draft_and_send_is_not_lost(world: World) -> None:
    def before(_: Any) -> None:
        if not world.line.accepted:
            world.says(ADDRESS, "nog een vraag")

    world.line.before = before
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    assert len(world.sent_to(ADDRESS)) == 2


@pytest.mark.parametrize("text", ["NO_ANSWER", "Er staat niets over. [9]", "Zonder bron."])
def test_what_the_documents_do_not_say_is_said_and_a_person_is_asked(world: World, text: str) -> None:
    world.model.says = lambda _: text
    world.says(ADDRESS, "wie wordt de nieuwe directeur?")
    world.run()
    assert "staat niet in het handboek" in world.sent_to(ADDRESS)[0]
    assert flagged(world) == "unanswered"


def test_nothing_relevant_costs_no_model_call(database: Database) -> None:
    world = fresh(database, RETRIEVAL_FLOOR="1")
    world.execute("UPDATE chunks SET embedding = ('[0' || repeat(',1', 1535) || ']')::halfvec")
    world.says(ADDRESS, "wat is de hoofdstad van Peru?")
    world.run()
    assert "staat niet in het handboek" in world.sent_to(ADDRESS)[0]
    assert world.model.asked == []


def test_a_line_waits_for_the_one_before_it(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError())
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()  # the answer is a draft that waits for its retry
    world.execute("UPDATE ai_jobs SET next_run_at = now() + interval '1 hour' WHERE status = 'pending'")
    with world.database.connection() as connection:
        for text in ("Ik lees mee.", "Nog iets?"):
            conversation = world.value("SELECT id FROM conversations")
            actions.send_own(connection, conversation, text, who="hr@example.org", seen_seq=0)
    assert world.run() >= 1
    assert world.line.accepted == []
    assert world.value("SELECT count(*) FROM ai_jobs WHERE type = 'send_message' AND status = 'pending'") == 2
    run_all(world)
    assert [body[:8] for body in world.sent_to(ADDRESS)] == [(NOTICE + ANSWER)[:8], "Ik lees ", "Nog iets"]


def test_typing_is_shown_once_a_message(world: World) -> None:
    world.model.says = raising(TransientError("empty_answer", "no text"), times=2)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert len(world.line.typed) == 1
