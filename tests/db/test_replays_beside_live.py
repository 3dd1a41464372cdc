"""A replay and the conversations it meets: what joins, what is left out, and live messages that come meanwhile."""

from __future__ import annotations

import psycopg
import pytest

from shared.db.pool import Database
from shared.queue import closing, replay
from tests.fakes.desk import ADDRESS, ANSWER, NOTICE, OTHER, dies, raising, replay_all
from tests.fakes.replays import (
    WHO,
    add_dead,
    advance,
    counts,
    dry_run,
    fresh_of_replays,
    plan,
    to_the_end,
    to_the_end_running,
)
from tests.fakes.world import World


@pytest.fixture
def world(database: Database) -> World:
    return fresh_of_replays(database)


def test_the_oldest_of_each_conversation_runs_and_all_others_join_it_however_slow_the_replay(world: World) -> None:
    first, second = dies(world, "vraag een?", "vraag twee?")
    (other,) = dies(world, "vraag vier?", address=OTHER)
    (third,) = dies(world, "vraag drie?")
    found = plan(world, rate=0.05)  # one every twenty seconds
    assert dry_run(world, rate=0.05).joining == 2
    found = advance(world, found)
    assert (found.state, counts(found)) == ("running", (1, 2, 0, 0))
    assert world.rows(
        "SELECT id, status, closed_reason, replay_id FROM ai_jobs WHERE type = 'autoreply' ORDER BY seq"
    ) == [
        (first, "pending", None, found.id),
        (second, "failed", "joined", None),
        (other, "failed", None, None),
        (third, "failed", "joined", None),
    ]
    found = to_the_end_running(world, found)
    assert (found.state, counts(found)) == ("done", (2, 2, 0, 0))
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert world.sent_to(OTHER) == [NOTICE + ANSWER]
    assert any("vraag een?\nvraag twee?\nvraag drie?" in asked[-1]["content"] for asked in world.model.asked)


def test_what_may_have_arrived_is_left_out(world: World) -> None:
    world.line.before = raising(TimeoutError(), times=1)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.settle_doubts(rounds=30)
    dies(world, "vraag twee?", address=OTHER)
    held = world.value("SELECT count(*)::int FROM messages WHERE status = 'held'")
    assert held == 1
    assert dry_run(world).left_out == 1
    found = to_the_end_running(world, plan(world, rate=0.05))  # in steps of one
    assert counts(found) == (1, 0, 1, 0)
    assert world.sent_to(ADDRESS) == []
    assert world.sent_to(OTHER) == [NOTICE + ANSWER]


def test_a_confirmation_that_may_have_arrived_is_left_out_too(world: World) -> None:
    world.line.before = raising(TimeoutError(), times=1)
    world.says(OTHER, "stop")
    world.settle_doubts(rounds=30)
    assert world.rows("SELECT type FROM dead_letters") == [("send_message",)]
    assert dry_run(world).left_out == 1
    assert counts(replay_all(world)) == (0, 0, 1, 0)


def test_what_is_being_sent_or_was_sent_beside_an_active_job_is_left_out(world: World) -> None:
    (dead,) = dies(world, "hoeveel verlof heb ik?")
    world.execute(
        "INSERT INTO messages (conversation_id, from_self, source, body, status, reply_id, part, parts, send_started_at)"
        " SELECT conversation_id, true, 'ai', 'x', 'sending', %(job)s, 1, 1, now() FROM messages LIMIT 1",
        job=dead,
    )
    assert counts(replay_all(world)) == (0, 0, 1, 0)
    world.says(OTHER, "hoeveel verlof heb ik?")
    world.run()
    # Sent, and then not recorded.
    world.force(
        "UPDATE ai_jobs SET status = 'failed', error_class = 'database' WHERE status = 'done' AND type = 'autoreply'"
    )
    world.says(OTHER, "en ouderschapsverlof?")
    found = replay_all(world)
    assert (found.restarted, found.joined) == (0, 0)
    assert found.left_out == found.total > 1


def test_what_nobody_would_run_is_left_out_with_its_reason_and_holds_nobody_back(world: World) -> None:
    add_dead(world, 60, job_type="embed_record")
    add_dead(world, 2, job_type="of another version")
    add_dead(world, 5)
    world.execute("UPDATE job_types SET paused = true WHERE type = 'embed_record'")
    asked = dry_run(world)
    assert (asked.total, asked.left_out, asked.left_paused, asked.restarted) == (67, 0, 62, 5)
    assert asked.paused_types == ["embed_record", "of another version"]
    found = to_the_end(world, plan(world, rate=4.0))
    assert (found.restarted, found.left_out, found.left_paused, found.skipped, found.handled) == (5, 0, 62, 0, 67)
    assert found.paused_types == asked.paused_types
    world.execute("UPDATE job_types SET paused = false")
    assert to_the_end(world, plan(world)).restarted == 60, "they are still there to be replayed"


def test_restarted_jobs_of_a_type_that_is_paused_meanwhile_do_not_hold_back_the_others(world: World) -> None:
    add_dead(world, 200, job_type="embed_record")
    add_dead(world, 5)
    found = advance(world, plan(world, rate=4.0))
    assert 0 < found.restarted < 200
    world.execute("UPDATE job_types SET paused = true WHERE type = 'embed_record'")
    world.force("UPDATE ai_jobs SET next_run_at = now() - interval '1 second' WHERE status = 'pending'")
    world.execute("UPDATE replays SET next_due_at = now()")
    ended = advance(world, found)
    assert (ended.state, ended.restarted, ended.left_paused) == ("done", found.restarted + 5, 200 - found.restarted)
    assert (ended.handled, ended.total) == (205, 205)


@pytest.mark.parametrize("payload", ['{"type": "send_message"}', '{"type": "send_message", "message_id": "x"}'])
def test_a_payload_that_cannot_be_read_stops_nothing(world: World, payload: str) -> None:
    world.execute("INSERT INTO ai_jobs (payload, status) VALUES (%(payload)s::jsonb, 'failed')", payload=payload)
    add_dead(world, 1)
    assert dry_run(world).restarted == 2
    assert to_the_end(world, plan(world)).restarted == 2
    job = world.value("SELECT id FROM ai_jobs WHERE type = 'send_message'")
    with world.database.connection() as connection:
        world.force("UPDATE ai_jobs SET status = 'failed' WHERE id = %(id)s", id=job)
        assert replay.restart(connection, [job], who=WHO) == {job: "restarted"}
        assert closing.cancel(connection, [job], who=WHO) == {job: "cancelled"}


def test_what_is_closed_does_not_match(world: World) -> None:
    (dead,) = dies(world, "hoeveel verlof heb ik?")
    with world.database.connection() as connection:
        closing.close(connection, [dead], who=WHO, reason="te laat")
    assert replay_all(world).total == 0


def test_a_live_message_joins_the_restarted_job_and_is_not_made_to_wait_for_it(world: World) -> None:
    (dead,) = dies(world, "vraag een?")
    found = plan(world, rate=1.0)
    world.execute("UPDATE replays SET next_due_at = now() + interval '9 seconds'")
    advance(world, found)
    world.execute("UPDATE ai_jobs SET next_run_at = next_run_at + interval '1 hour'"
                  " WHERE status = 'pending' AND next_run_at > updated_at")  # fmt: skip
    assert world.value("SELECT next_run_at > now() FROM ai_jobs WHERE id = %(id)s", id=dead)
    world.says(ADDRESS, "en ouderschapsverlof?")
    assert world.rows("SELECT id FROM ai_jobs WHERE status = 'pending' AND next_run_at <= now()") == [(dead,)]
    world.run()
    assert len(world.sent_to(ADDRESS)) == 1
    assert "vraag een?\nen ouderschapsverlof?" in world.model.asked[-1][-1]["content"]


def test_a_dead_letter_joins_live_traffic(world: World) -> None:
    (dead,) = dies(world, "vraag een?")
    world.says(ADDRESS, "en ouderschapsverlof?")
    found = to_the_end_running(world, plan(world))
    assert counts(found) == (0, 1, 0, 0)
    assert world.value("SELECT closed_reason FROM ai_jobs WHERE id = %(id)s", id=dead) == "joined"
    assert len(world.sent_to(ADDRESS)) == 1


def test_a_conversation_that_somebody_holds_is_waited_for_and_not_passed_by(world: World, database_url: str) -> None:
    first = dies(world, "vraag een?")
    second = dies(world, "vraag twee?", address=OTHER)
    with psycopg.connect(database_url) as holding:
        holding.execute("SELECT FROM conversations WHERE address = %(a)s FOR UPDATE", {"a": OTHER})
        found = advance(world, plan(world))
        assert (found.state, counts(found)) == ("running", (1, 0, 0, 0))
        found = advance(world, found)
        assert (found.state, counts(found)) == ("running", (1, 0, 0, 0))
    found = advance(world, found)
    assert (found.state, counts(found)) == ("done", (2, 0, 0, 0))
    assert world.rows("SELECT run FROM ai_jobs WHERE id = ANY (%(ids)s)", ids=first + second) == [(2,), (2,)]
