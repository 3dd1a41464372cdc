"""Who is answered, and how: strangers, limits, languages, media, age, people in the loop and opting out."""

from __future__ import annotations

from typing import Any

import pytest

from shared.conversation import actions
from shared.db.pool import Database
from tests.fakes.desk import flagged, fresh
from tests.fakes.replies import ADDRESS, ANSWER, NOTICE, job_row, raising, reply_row
from tests.fakes.world import World, run_all


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


def test_opting_out_between_draft_and_send_stops_the_answer(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError())
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.says(ADDRESS, "stop")
    run_all(world)
    assert [body for body in world.sent_to(ADDRESS) if "200" in body] == []
    assert reply_row(world)[:2] == ("failed", "opted_out")
    assert world.value("SELECT closed_reason FROM ai_jobs WHERE type = 'autoreply'") == "opted_out"


def test_opting_out_while_the_model_answers_drops_the_draft(world: World) -> None:
    def says(_: Any) -> str:
        world.says(ADDRESS, "stop")
        return "Je hebt 200 uur. [1]"

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert world.value("SELECT count(*) FROM messages WHERE source = 'ai'") == 0
    assert [body[:18] for body in world.sent_to(ADDRESS)] == ["Je ontvangt geen b"]


def test_unknown_senders_are_declined_once_a_day_without_a_model_call(database: Database) -> None:
    world = fresh(database, UNKNOWN_SENDERS="decline")
    for text in ("hoi", "hallo?", "iemand?"):
        world.says(ADDRESS, text)
        world.run()
    assert [body[:10] for body in world.sent_to(ADDRESS)] == ["Dit nummer"]
    assert world.model.asked == []
    assert world.value("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == 0


def test_known_senders_are_answered(database: Database) -> None:
    world = fresh(database, UNKNOWN_SENDERS="decline")
    world.execute("INSERT INTO people (phone, name) VALUES (%(phone)s, 'Someone')", phone=ADDRESS)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]


def test_the_daily_limit_is_said_once(database: Database) -> None:
    world = fresh(database, SENDER_DAILY_LIMIT="2")
    for n in range(5):
        world.says(ADDRESS, f"vraag nummer {n} over verlof?")
        world.run()
    bodies = world.sent_to(ADDRESS)
    assert len(bodies) == 3
    assert bodies[2].startswith("Je hebt vandaag veel vragen")
    assert len(world.model.asked) == 2
    assert flagged(world) == "limit"


def test_media_get_an_honest_line(world: World) -> None:
    world.says(ADDRESS, "", NumMedia="1", MediaUrl0="https://example.org/x", MediaContentType0="image/jpeg")
    world.run()
    assert [body[:40] for body in world.sent_to(ADDRESS)] == ["Foto’s, spraakberichten, bestanden, loca"]
    assert world.model.asked == []


@pytest.mark.parametrize(("word", "line"), [("Medewerker!", "Ik heb een collega"), ("help", "Ik heb een collega")])
def test_asking_for_a_person_flags_the_conversation(world: World, word: str, line: str) -> None:
    world.says(ADDRESS, word)
    world.run()
    assert world.sent_to(ADDRESS)[0].startswith(line)
    assert flagged(world) == "asked"


def test_english_is_answered_in_english(world: World) -> None:
    world.model.says = lambda _: "You have 200 hours of leave. [1]"
    world.says(ADDRESS, "how many holidays do I have?")
    world.run()
    assert world.sent_to(ADDRESS)[0].endswith(
        "You have 200 hours of leave. [1]\n\nSource: [1] Personeelshandboek › Verlof"
    )
    assert 'language="en"' in world.model.asked[0][-1]["content"]
    assert world.value("SELECT language FROM conversations") == "en"


def test_manual_mode_answers_nothing_and_asks_for_a_person(world: World) -> None:
    world.says(ADDRESS, "hoi")
    world.execute("UPDATE conversations SET mode = 'manual'")
    world.run()
    assert world.line.accepted == []
    assert flagged(world) == "manual"
    assert world.value("SELECT count(*) FROM messages WHERE answered_by IS NULL AND NOT from_self") == 1


def test_what_is_older_than_a_day_is_no_longer_a_question(world: World) -> None:
    world.says(ADDRESS, "hoi")
    world.execute("UPDATE messages SET created_at = now() - interval '25 hours'")
    world.execute("UPDATE conversations SET last_inbound_at = now() - interval '25 hours'")
    world.run()
    assert job_row(world) == ("failed", "too_late")
    assert world.line.accepted == []
    assert flagged(world) == "too_late"


def test_a_leaving_date_counts_when_it_has_come(database: Database) -> None:
    world = fresh(database, UNKNOWN_SENDERS="decline")
    world.execute(
        "INSERT INTO people (phone, name, left_at) VALUES (%(phone)s, 'Someone', now() + interval '30 days')",
        phone=ADDRESS,
    )
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.execute("UPDATE people SET left_at = now() - interval '1 second'")
    world.says(ADDRESS, "en nu?")
    world.run()
    assert [body[:10] for body in world.sent_to(ADDRESS)] == [NOTICE[:10], "Dit nummer"]


def test_a_number_that_moved_is_its_new_holder_s(database: Database) -> None:
    world = fresh(database, UNKNOWN_SENDERS="decline")
    world.execute("INSERT INTO people (phone, name) VALUES (%(phone)s, 'First')", phone=ADDRESS)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.execute("UPDATE people SET phone = '+31600000002'")
    world.run()  # linked, but no longer by its number: a stranger now
    assert world.model.asked == []
    world.execute("INSERT INTO people (phone, name) VALUES (%(phone)s, 'Second')", phone=ADDRESS)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    assert world.value("SELECT p.name FROM conversations c JOIN people p ON p.id = c.person_id") == "Second"


def test_what_comes_beyond_the_limit_asks_for_a_person_each_time(database: Database) -> None:
    world = fresh(database, SENDER_DAILY_LIMIT="1")
    conversation = None
    for n in range(3):
        world.says(ADDRESS, f"vraag {n} over verlof?")
        world.run()
        conversation = world.value("SELECT id FROM conversations")
        if flagged(world):
            with world.database.connection() as connection:
                actions.resolve(connection, conversation, who="test")
    world.says(ADDRESS, "mijn collega is gewond, wat moet ik doen?")
    world.run()
    assert flagged(world) == "limit"


def test_resolving_an_overdue_conversation_lasts(world: World) -> None:
    from shared.conversation.overdue import flag_overdue

    world.says(ADDRESS, "hoi")
    world.execute("UPDATE messages SET created_at = now() - interval '25 hours'")
    with world.database.connection() as connection:
        flag_overdue(connection)
        assert flagged(world) == "overdue"
        actions.resolve(connection, world.value("SELECT id FROM conversations"), who="test")
        flag_overdue(connection)
    assert flagged(world) is None


def test_what_twilio_has_answered_itself_and_a_thumb_get_no_answer(world: World) -> None:
    world.says(ADDRESS, "START", OptOutType="START")
    world.says(ADDRESS, "👍", MessageType="reaction")
    world.run()
    assert world.line.accepted == []
    assert world.value("SELECT count(*) FROM messages WHERE answered_by IS NULL AND NOT from_self") == 0
