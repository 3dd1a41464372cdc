"""Replaying dead letters as a plan: which are taken, stopped and resumed, and what is told of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from shared import audit
from shared.db.pool import Database
from shared.errors import UserError
from shared.queue import closing, dead_letters, replay, replays, replays_drive
from shared.queue.dead_letters import Filter
from shared.queue.replays import Became
from tests.fakes.desk import ADDRESS, ANSWER, NOTICE, OTHER, dies, lines
from tests.fakes.replays import (
    WHO,
    WHY,
    add_dead,
    advance,
    counts,
    dry_run,
    fresh_of_replays,
    plan,
    take_all,
    to_the_end,
    to_the_end_running,
)
from tests.fakes.world import World


@pytest.fixture
def world(database: Database) -> World:
    return fresh_of_replays(database)


# Which


def test_every_filter_narrows_and_says_what_it_would_take(world: World) -> None:
    now = datetime.now(UTC)
    add_dead(world, 3, error_class="timeout", error="the Model took too long: 100% _busy_", age=7200)
    add_dead(world, 2, job_type="other", error_class="poison", error="its worker stopped", age=60)
    (talk,) = dies(world, "vraag een?")
    world.execute("INSERT INTO job_types (type) VALUES ('other') ON CONFLICT DO NOTHING")
    for filters, total in (
        ({}, 6),
        ({"job_type": "other"}, 2),
        ({"error_class": "timeout"}, 3),
        ({"error": "model TOOK"}, 3),
        ({"error": "100% _"}, 3),
        ({"error": "%"}, 3),
        ({"error": "\x00"}, 0),
        ({"phone": ADDRESS}, 1),
        ({"phone": OTHER}, 0),
        ({"older_than": 30.0}, 5),
        ({"older_than": 3600.0}, 3),
        ({"since": now - timedelta(hours=1)}, 3),
        ({"until": now - timedelta(hours=1)}, 3),
        ({"job_type": "other", "error_class": "timeout"}, 0),
    ):
        assert dry_run(world, **filters).total == total, filters
        with world.database.connection() as connection:
            assert len(dead_letters.list_dead(connection, Filter(**filters))) == total, filters
        assert plan(world, **filters).total == total, filters
    found = dry_run(world, rate=2.0)
    assert [(row.type, row.error_class, row.count) for row in found.counts] == [
        ("noop", "timeout", 3), ("other", "poison", 2), ("autoreply", "content_filter", 1),
    ]  # fmt: skip
    assert found.seconds == 3.0
    assert world.value("SELECT count(*) FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL") == 6
    with world.database.connection() as connection:
        assert dead_letters.list_dead(connection, Filter(), limit=1)[0].id == talk


def test_a_replay_restarts_exactly_what_its_filter_means(world: World) -> None:
    add_dead(world, 700, error_class="other")  # more than one window of what does not match
    add_dead(world, 120)
    add_dead(world, 5, error_class="other")
    found = to_the_end(world, plan(world, error_class="timeout"))
    assert (found.state, found.total, counts(found)) == ("done", 120, (120, 0, 0, 0))
    assert world.rows(
        "SELECT error_class, status, run, attempts, replay_id, count(*)::int FROM ai_jobs GROUP BY 1, 2, 3, 4, 5 ORDER BY 1"
    ) == [("other", "failed", 1, 3, None, 705), ("timeout", "pending", 2, 0, found.id, 120)]


def test_what_died_after_the_plan_was_made_is_not_part_of_it(world: World) -> None:
    add_dead(world, 2)
    found = plan(world)
    add_dead(world, 3)
    world.execute("UPDATE ai_jobs SET updated_at = now() WHERE (payload ->> 'n')::int = 3")
    found = to_the_end(world, found)
    assert (found.total, counts(found)) == (2, (2, 0, 0, 0))


def test_what_dies_again_is_not_taken_twice(world: World) -> None:
    add_dead(world, 60)
    found = plan(world, rate=10.0)
    for _ in range(30):
        found = advance(world, found)
        # They die at once.
        world.force("UPDATE ai_jobs SET status = 'failed', attempts = 3, updated_at = now() WHERE status = 'pending'")
        world.execute("UPDATE replays SET next_due_at = now()")
    assert (found.state, counts(found)) == ("done", (60, 0, 0, 0))
    assert world.rows("SELECT run, count(*)::int FROM ai_jobs GROUP BY run") == [(2, 60)]
    with world.database.connection() as connection:
        assert replays.became(connection, found.id) == Became(waiting=0, running=0, died_again=60)


def test_what_somebody_else_restarted_or_closed_is_skipped_and_the_numbers_add_up(world: World) -> None:
    add_dead(world, 10)
    found = plan(world)
    jobs = [row[0] for row in world.rows("SELECT id FROM ai_jobs ORDER BY seq")]
    with world.database.connection() as connection:
        replay.restart(connection, jobs[:2], who="ben")
        closing.close(connection, [jobs[5]], who="ben", reason="not needed")
    found = to_the_end(world, found)
    assert counts(found) == (7, 0, 0, 3)
    assert found.handled == found.total == 10


def test_a_restart_by_hand_is_no_longer_the_replays(world: World) -> None:
    add_dead(world, 1)
    found = advance(world, plan(world))
    world.force("UPDATE ai_jobs SET status = 'failed', updated_at = now()")
    with world.database.connection() as connection:
        replay.restart(connection, [world.value("SELECT id FROM ai_jobs")], who=WHO)
    assert world.rows("SELECT run, replay_id FROM ai_jobs") == [(3, None)]
    assert found.restarted == 1


def test_a_replayed_job_keeps_its_attempts_and_can_be_told_from_its_first_run(world: World) -> None:
    (dead,) = dies(world, "vraag een?")
    found = to_the_end_running(world, plan(world))
    assert world.rows("SELECT id, status, run, replay_id FROM ai_jobs WHERE type = 'autoreply'") == [
        (dead, "done", 2, found.id)
    ]
    assert world.rows("SELECT run, claim, outcome FROM job_attempts WHERE job_id = %(id)s ORDER BY run", id=dead) == [
        (1, 1, "failed"),
        (2, 1, "done"),
    ]
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]


# Stop and resume


def test_a_stopped_replay_restarts_nothing_and_goes_on_where_it_was(world: World) -> None:
    add_dead(world, 100)
    found = advance(world, plan(world, rate=10.0))
    taken = found.restarted
    with world.database.connection() as connection:
        stopped = replays.stop(connection, found.id, who="ben")
        assert stopped is not None
        assert (stopped.state, stopped.stopped_by) == ("stopped", "ben")
        assert stopped.ended_at is not None
        assert replays.stop(connection, found.id, who="carla") == stopped  # once is enough
    take_all(world, found)
    assert advance(world, found).restarted == taken
    replays_drive.drive(world.database, lambda _: None)
    assert world.value("SELECT count(*)::int FROM ai_jobs WHERE run = 2") == taken
    with world.database.connection() as connection:
        resumed = replays.resume(connection, found.id, who="ben")
        assert resumed is not None
        assert (resumed.state, resumed.stopped_by, resumed.ended_at) == ("running", None, None)
    found = to_the_end(world, found)
    assert (found.state, counts(found)) == ("done", (100, 0, 0, 0))
    assert world.rows("SELECT run, count(*)::int FROM ai_jobs GROUP BY run") == [(2, 100)]
    with world.database.connection() as connection:
        for change in (replays.stop, replays.resume):
            with pytest.raises(UserError, match="is done"):
                change(connection, found.id, who=WHO)
            assert change(connection, uuid4(), who=WHO) is None
    told = [(line.who, line.what) for line in reversed(lines(world)) if line.what != "replay_jobs"]
    assert told == [
        (WHO, "start_replay"), ("ben", "stop_replay"), ("ben", "resume_replay"), (WHO, "finish_replay"),
    ]  # fmt: skip


def test_who_and_why_are_kept_and_each_job_leads_to_them(world: World) -> None:
    add_dead(world, 2)
    found = to_the_end(world, plan(world, error_class="timeout", older_than=0.0))
    assert (found.who, found.reason, found.filter) == (WHO, WHY, {"class": "timeout", "older_than": 0.0})
    job = world.value("SELECT id FROM ai_jobs LIMIT 1")
    with world.database.connection() as connection:
        (line,) = audit.list_entries(connection, limit=10, target=str(job))
        assert (line.what, line.target_id) == ("replay_jobs", str(found.id))
        assert replays.list_replays(connection)[0] == found
        assert replays.show(connection, found.id) == found
        assert replays.show(connection, uuid4()) is None


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf"), 1001.0])
def test_a_rate_that_cannot_be_is_refused(world: World, rate: float) -> None:
    for refused in (lambda: plan(world, rate=rate), lambda: dry_run(world, rate)):
        with pytest.raises(UserError, match="rate"):
            refused()
    assert world.value("SELECT count(*) FROM ai_jobs") == 0


def test_no_replay_without_a_reason(world: World) -> None:
    with world.database.connection() as connection, pytest.raises(UserError, match="Give a reason for the replay"):
        replays.start(connection, Filter(), who=WHO, reason=" ", rate=1)
