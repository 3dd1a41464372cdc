"""When a model or a send surely fails: drafts that are kept, apologies, burials and restarts."""

from __future__ import annotations

import socket
from typing import Any
from uuid import UUID

import psycopg
import pytest

from shared.clients.deadline import TooLate
from shared.db.pool import Database
from shared.errors import PermanentError, TransientError
from shared.queue import closing, replay
from tests.fakes.desk import flagged, fresh, replay_all
from tests.fakes.replies import ADDRESS, ANSWER, APOLOGY, NOTICE, Refused, job_row, raising, reply_row
from tests.fakes.world import World, run_all


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


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

    moments = [boot_clock()]
    world.line.before = lambda _: moments.append(boot_clock())
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    began, left = moments
    assert began <= world.line.accepted[0]["not_after"] - 2 + 1e-6 <= left + 1e-5


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
    world.model.says = raising(PermanentError("content_filter", "refused"))
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
    world.model.says = raising(PermanentError("content_filter", "refused"))
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


def test_one_message_of_a_conversation_is_sending_at_a_time(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError(), times=2)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    world.force("UPDATE messages SET status = 'sending', send_started_at = now() WHERE source = 'ai'")
    with pytest.raises(psycopg.errors.UniqueViolation):
        world.execute(
            "INSERT INTO messages (conversation_id, from_self, source, body, status, reply_id, part, parts, send_started_at)"
            " SELECT conversation_id, true, 'system', 'x', 'sending', gen_random_uuid(), 1, 1, now() FROM messages LIMIT 1"
        )


def test_a_poisonous_message_is_covered_by_its_burial(world: World) -> None:
    world.says(ADDRESS, "kapot")
    with world.database.connection() as connection:
        connection.execute("SELECT claim_ai_jobs(1)")
    world.execute("UPDATE ai_jobs SET attempts = 3, lease_until = now() - interval '1 second'")
    world.rescue()
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


def test_after_an_outage_the_answer_goes_out_and_no_apology_behind_it(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError(), times=100)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    run_all(world)
    assert world.value("SELECT count(*) FROM dead_letters") == 2
    world.line.before = lambda _: None
    assert replay_all(world).restarted == 1
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]


def test_a_cancelled_answer_asks_for_a_person(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    job = world.value("SELECT id FROM ai_jobs")
    with world.database.connection() as connection:
        assert closing.cancel(connection, [job], who="test") == {job: "cancelled"}
    assert flagged(world) == "cancelled"
