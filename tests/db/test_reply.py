"""One reply, exactly once: the autoreply from the rows, with every way that a send or a model can fail."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from shared.clients.deadline import TooLate
from shared.db.pool import Database
from shared.errors import HeldError, PermanentError, TransientError
from shared.queue import replay
from tests.fakes.world import World

ADDRESS = "+31600000001"
NOTICE = "Je praat met een digitale assistent; stuur “medewerker” als je liever een mens spreekt.\n\n"
ANSWER = "Je hebt 200 uur verlof. [1]\n\nBron: [1] Personeelshandboek › Verlof"
APOLOGY = "Sorry, het lukt me nu niet om te antwoorden. Ik heb je bericht doorgegeven aan een collega."


def fresh(database: Database, **changes: str) -> World:
    world = World(database, **changes)
    world.execute("TRUNCATE message_events, ai_jobs, job_attempts, messages, conversations, people, documents CASCADE")
    world.execute("UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL")
    world.add_handbook()
    return world


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


def raising(error: Exception, times: int = 1) -> Callable[[Any], None]:
    left = [times]

    def plan(_: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise error

    return plan


def run_all(world: World) -> None:
    """Run everything, also what waits for a retry."""
    for _ in range(10):
        world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
        if not world.run():
            return
    raise AssertionError("the queue does not come to an end")


def reply_row(world: World) -> tuple[Any, ...]:
    return world.rows(
        "SELECT status, held_reason, provider_sid IS NOT NULL, send_attempt FROM messages"
        " WHERE source = 'ai' ORDER BY seq DESC LIMIT 1"
    )[0]


def job_row(world: World) -> tuple[Any, ...]:
    return world.rows("SELECT status, error_class FROM ai_jobs WHERE type = 'autoreply' ORDER BY seq LIMIT 1")[0]


def flagged(world: World) -> str | None:
    reason: str | None = world.value("SELECT needs_person_reason FROM conversations")
    return reason


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


def test_a_surely_unsent_message_goes_back_to_draft_and_is_not_generated_again(world: World) -> None:
    refused = ConnectionRefusedError("refused")
    world.line.before = raising(refused)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    assert reply_row(world) == ("draft", None, False, 1)
    assert job_row(world) == ("pending", "connect")
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert len(world.model.asked) == 1
    assert reply_row(world)[3] == 2


@pytest.mark.parametrize("error", [TimeoutError("silence"), ConnectionResetError("reset"), RuntimeError("who knows")])
@pytest.mark.parametrize("accepted", [False, True])
def test_an_ambiguous_send_is_held_and_never_repeated(world: World, error: Exception, accepted: bool) -> None:
    if accepted:
        world.line.after = raising(error)
    else:
        world.line.before = raising(error)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    status, reason, _, attempts = reply_row(world)
    assert (status, attempts) == ("held", 1)
    assert "may have been sent" in reason
    assert job_row(world) == ("failed", "held")
    assert flagged(world) == "held"
    assert len(world.line.accepted) == int(accepted)  # no apology either
    job = world.value("SELECT id FROM ai_jobs WHERE status = 'failed'")
    with world.database.connection() as connection:
        assert replay.restart(connection, [job], who="test") == {job: "restarted"}
    run_all(world)
    assert reply_row(world)[0] == "held"
    assert job_row(world) == ("failed", "held")
    assert len(world.line.accepted) == int(accepted)


def test_a_message_found_sending_after_a_crash_is_held(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError())
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.execute("UPDATE messages SET status = 'sending', send_started_at = now() WHERE source = 'ai'")
    run_all(world)
    assert reply_row(world)[0] == "held"
    assert world.line.accepted == []


def test_a_callback_during_the_crash_settles_what_was_sending(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError())
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.execute(
        "UPDATE messages SET status = 'delivered', provider_sid = 'SMx', send_started_at = now() WHERE source = 'ai'"
    )
    run_all(world)
    assert reply_row(world)[0] == "delivered"
    assert job_row(world)[0] == "done"
    assert world.line.accepted == []


class Refused(Exception):
    """Stands for Twilio's refusal: what counts is its package, status and code."""

    status, code = 400, 21211


Refused.__module__ = "twilio.base.exceptions"


def test_a_refused_message_is_failed_with_its_code_and_somebody_is_asked(world: World) -> None:
    world.line.before = raising(Refused("invalid To"))
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert world.rows("SELECT status, error_code FROM messages WHERE source = 'ai'") == [("failed", "21211")]
    assert job_row(world) == ("failed", "rejected")
    assert flagged(world) == "rejected"
    assert world.sent_to(ADDRESS) == [APOLOGY]


def test_a_restart_sends_the_draft_that_was_refused(world: World) -> None:
    world.line.before = raising(Refused("invalid To"))
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    job = world.value("SELECT id FROM ai_jobs WHERE type = 'autoreply'")
    with world.database.connection() as connection:
        replay.restart(connection, [job], who="test")
    run_all(world)
    assert world.sent_to(ADDRESS) == [APOLOGY, NOTICE + ANSWER]
    assert len(world.model.asked) == 1


def test_too_late_sends_nothing_and_comes_back(world: World) -> None:
    world.line.before = raising(TooLate("frozen"))
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    assert reply_row(world)[0] == "draft"
    assert world.value("SELECT attempts FROM ai_jobs") == 0
    run_all(world)
    assert len(world.line.accepted) == 1


def test_the_request_may_begin_only_two_seconds_after_the_intent(world: World) -> None:
    from shared.clients.deadline import boot_clock

    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    assert 0 < world.line.accepted[0]["not_after"] - boot_clock() <= 2


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (PermanentError("content_filter", "refused"), "content_filter"),
        (TransientError("empty_answer", "no text"), "empty_answer"),
        (socket.gaierror("no such host"), "connect"),
    ],
)
def test_when_the_model_fails_for_good_nobody_is_left_in_silence(
    world: World, error: Exception, error_class: str
) -> None:
    def says(_: Any) -> str:
        raise error

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert world.sent_to(ADDRESS) == [APOLOGY]
    assert job_row(world) == ("failed", error_class)
    assert flagged(world) == error_class
    assert world.value("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == 0


def test_a_restart_after_the_model_failed_answers_the_question(world: World) -> None:
    says = world.model.says
    world.model.says = raising(PermanentError("content_filter", "refused"))  # type: ignore[assignment]
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    world.model.says = says
    job = world.value("SELECT id FROM ai_jobs WHERE status = 'failed'")
    with world.database.connection() as connection:
        assert replay.restart(connection, [job], who="test") == {job: "restarted"}
    run_all(world)
    assert flagged(world) is None  # what the person was asked for is done
    assert world.sent_to(ADDRESS) == [APOLOGY, NOTICE + ANSWER]
    assert world.rows("SELECT DISTINCT run FROM job_attempts WHERE job_id = %(job)s ORDER BY run", job=job) == [
        (1,),
        (2,),
    ]


def test_a_restart_joins_the_conversation_s_active_job(world: World) -> None:
    world.model.says = raising(PermanentError("content_filter", "refused"))  # type: ignore[assignment]
    world.says(ADDRESS, "eerste vraag over verlof?")
    world.run()
    dead = world.value("SELECT id FROM ai_jobs WHERE status = 'failed'")
    world.model.says = lambda _: "Beide. [1]"
    world.says(ADDRESS, "tweede vraag over verlof?")
    with world.database.connection() as connection:
        assert replay.restart(connection, [dead], who="test") == {dead: "joined"}
    run_all(world)
    assert "eerste vraag over verlof?\ntweede vraag over verlof?" in world.model.asked[-1][-1]["content"]
    assert world.rows("SELECT closed_reason FROM ai_jobs WHERE id = %(id)s", id=dead) == [("joined",)]


def test_restarting_what_did_not_fail_says_so(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    job = world.value("SELECT id FROM ai_jobs")
    nobody = UUID(int=0)
    with world.database.connection() as connection:
        assert replay.restart(connection, [job, nobody], who="test") == {job: "not failed", nobody: "not found"}


def test_opting_out_between_draft_and_send_stops_the_answer(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError())
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.says(ADDRESS, "stop")
    run_all(world)
    assert [body for body in world.sent_to(ADDRESS) if "200" in body] == []
    assert reply_row(world)[:2] == ("failed", "opted_out")
    assert job_row(world)[0] == "done"


def test_opting_out_while_the_model_answers_drops_the_draft(world: World) -> None:
    def says(_: Any) -> str:
        world.says(ADDRESS, "stop")
        return "Je hebt 200 uur. [1]"

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert world.value("SELECT count(*) FROM messages WHERE source = 'ai'") == 0
    assert [body[:18] for body in world.sent_to(ADDRESS)] == ["Je ontvangt geen b"]


def test_one_message_of_a_conversation_is_sending_at_a_time(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError(), times=2)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.execute("UPDATE messages SET status = 'sending', send_started_at = now() WHERE source = 'ai'")
    with pytest.raises(psycopg.errors.UniqueViolation):
        world.execute(
            "INSERT INTO messages (conversation_id, from_self, source, body, status, reply_id, part, parts, send_started_at)"
            " SELECT conversation_id, true, 'system', 'x', 'sending', gen_random_uuid(), 1, 1, now() FROM messages LIMIT 1"
        )


def test_a_line_waits_for_the_one_before_it(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError())
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()  # the answer is a draft that waits for its retry
    world.says(ADDRESS, "stop")
    world.says(ADDRESS, "start")
    assert world.run() >= 1
    assert world.line.accepted == []
    assert world.value("SELECT count(*) FROM ai_jobs WHERE type = 'send_message' AND status = 'pending'") == 2
    run_all(world)
    assert [body[:8] for body in world.sent_to(ADDRESS)] == [(NOTICE + ANSWER)[:8], "Je ontva", "Welkom t"]


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
    assert [body[:40] for body in world.sent_to(ADDRESS)] == ["Foto’s, spraakberichten en bestanden kan"]
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


def test_a_long_answer_is_shortened_at_a_sentence_and_keeps_its_source(world: World) -> None:
    from shared.conversation.text import utf16_units

    world.model.says = lambda _: "Dit is een zin met een 😀 erin [1]. " * 80
    world.says(ADDRESS, "vertel alles over verlof")
    world.run()
    body = world.sent_to(ADDRESS)[0]
    assert utf16_units(body) <= 1600
    assert body.endswith(". …\n\nBron: [1] Personeelshandboek › Verlof")


def test_a_poisonous_message_is_covered_by_its_burial(world: World) -> None:
    world.says(ADDRESS, "kapot")
    with world.database.connection() as connection:
        connection.execute("SELECT claim_ai_jobs(1)")
    world.execute("UPDATE ai_jobs SET attempts = 3, lease_until = now() - interval '1 second'")
    run_all(world)
    assert job_row(world) == ("failed", "poison")
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert "kapot" not in world.model.asked[0][-1]["content"]
    assert world.sent_to(ADDRESS) == [APOLOGY, NOTICE + ANSWER]


def test_a_message_that_comes_while_its_elder_dies_is_answered(world: World) -> None:
    def says(messages: Any) -> str:
        if len(world.model.asked) == 1:
            world.says(ADDRESS, "hoeveel ouderschapsverlof is er?")
            raise PermanentError("content_filter", "refused")
        return "Zes weken. [1]"

    world.model.says = says
    world.says(ADDRESS, "iets wat het filter weigert")
    run_all(world)
    assert "weigert" not in world.model.asked[1][-1]["content"]
    bodies = world.sent_to(ADDRESS)
    assert sorted(body[:5] for body in bodies) == ["Je pr", "Sorry"]
    assert world.value("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == 0


def test_typing_is_shown_once_a_message(world: World) -> None:
    world.model.says = raising(TransientError("empty_answer", "no text"), times=2)  # type: ignore[assignment]
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert len(world.line.typed) == 1


def test_held_errors_of_a_small_line_ask_for_a_person(world: World) -> None:
    world.line.before = raising(HeldError("held", "who knows"))
    world.says(ADDRESS, "stop")
    run_all(world)
    assert world.rows("SELECT status FROM messages WHERE purpose = 'consent'") == [("held",)]
    assert flagged(world) == "held"


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


@pytest.mark.parametrize("how", ["poison", "expired"])
def test_a_burial_that_finds_a_sending_message_holds_it_and_apologises_for_nothing(world: World, how: str) -> None:
    world.line.after = raising(KeyboardInterrupt())  # type: ignore[arg-type]  # as a kill: nothing is recorded after it
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    with pytest.raises(KeyboardInterrupt):
        world.app.worker.poll_once(1)
    world.execute("UPDATE ai_jobs SET attempts = 3, lease_until = now() - interval '1 second'")
    if how == "expired":
        world.execute("UPDATE ai_jobs SET attempts = 1, run_started_at = now() - interval '20 minutes'")
        world.execute("UPDATE job_types SET resting_until = now() + interval '1 h', resting_reason = 'x'")
    world.app.worker._rescued_at = 0.0
    for _ in range(2):
        world.app.worker.poll_once(4)
        world.app.worker._rescued_at = 0.0
    run_all(world)
    assert len(world.sent_to(ADDRESS)) == 1
    assert reply_row(world)[0] == "held"
    assert job_row(world)[0] == "failed"
    assert flagged(world) == "held"


def test_a_callback_that_comes_before_the_line_breaks_settles_the_send(world: World) -> None:
    from shared.conversation import status

    def after(message: dict[str, Any]) -> None:
        key = UUID(message["callback"].split("message=")[1].split("&")[0])
        status.record(world.database, {"MessageSid": message["sid"], "MessageStatus": "delivered"}, key)
        raise ConnectionResetError("reset")

    world.line.after = after
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert reply_row(world)[0] == "delivered"
    assert job_row(world) == ("done", None)
    assert flagged(world) is None


def test_a_second_sid_for_one_message_is_refused_quietly(world: World) -> None:
    from shared.conversation import status

    for number in range(2):
        world.says(f"+3160000000{number}", "hoeveel verlof heb ik?")
    world.run()
    sid = world.line.accepted[0]["sid"]
    other = world.value("SELECT id FROM messages WHERE provider_sid = %(sid)s", sid=world.line.accepted[1]["sid"])
    world.execute("UPDATE messages SET provider_sid = NULL WHERE id = %(id)s", id=other)
    assert status.record(world.database, {"MessageSid": sid, "MessageStatus": "read"}, other) is False


def test_after_an_outage_the_answer_goes_out_and_no_apology_behind_it(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError(), times=100)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert world.value("SELECT count(*) FROM dead_letters") == 2
    world.line.before = lambda _: None
    with world.database.connection() as connection:
        counts = replay.restart_matching(connection, who="test")
    run_all(world)
    assert counts.restarted == 1
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]


def test_what_comes_beyond_the_limit_asks_for_a_person_each_time(database: Database) -> None:
    from shared.conversation import actions

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
    from shared.conversation import actions
    from shared.conversation.overdue import flag_overdue

    world.says(ADDRESS, "hoi")
    world.execute("UPDATE messages SET created_at = now() - interval '25 hours'")
    with world.database.connection() as connection:
        flag_overdue(connection)
        assert flagged(world) == "overdue"
        actions.resolve(connection, world.value("SELECT id FROM conversations"), who="test")
        flag_overdue(connection)
    assert flagged(world) is None


def test_a_cancelled_answer_asks_for_a_person(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    job = world.value("SELECT id FROM ai_jobs")
    with world.database.connection() as connection:
        assert replay.cancel(connection, [job], who="test") == {job: "cancelled"}
    assert flagged(world) == "cancelled"


def test_what_twilio_has_answered_itself_and_a_thumb_get_no_answer(world: World) -> None:
    world.says(ADDRESS, "START", OptOutType="START")
    world.says(ADDRESS, "👍", MessageType="reaction")
    world.run()
    assert world.line.accepted == []
    assert world.value("SELECT count(*) FROM messages WHERE answered_by IS NULL AND NOT from_self") == 0
