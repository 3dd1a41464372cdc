"""Replaying dead letters as a plan: which, how fast, stopped and resumed, by one driver or several, beside live traffic."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.postgres import EmbeddedPostgres
from shared import audit
from shared.db.pool import Database
from shared.errors import UserError
from shared.queue import dead_letters, replay, replays, store
from shared.queue.dead_letters import Filter
from shared.queue.replays import Became, Replay
from tests.fakes.desk import ADDRESS, ANSWER, NOTICE, OTHER, dies, fresh, lines, raising, replay_all
from tests.fakes.eventually import eventually
from tests.fakes.world import World, run_all

WHO, WHY = "anna", "the model is back"

ADD_DEAD = """
    INSERT INTO ai_jobs (payload, status, attempts, claims, error_class, last_error, updated_at)
    SELECT jsonb_build_object('type', %(type)s::text, 'n', n), 'failed', 3, 3, %(class)s, %(error)s,
        now() - make_interval(secs => %(age)s)
    FROM generate_series(1, %(count)s) n
"""
# Seconds after the plan was made at which each restarted job is due, in their order.
DUE = """
    SELECT extract(epoch FROM j.next_run_at - r.created_at)::float8 FROM ai_jobs j JOIN replays r ON r.id = j.replay_id
    WHERE j.replay_id = %(id)s ORDER BY j.seq
"""


@pytest.fixture
def world(database: Database) -> World:
    made = fresh(database)
    made.execute("DELETE FROM replays")
    made.execute("INSERT INTO job_types (type) VALUES ('noop') ON CONFLICT DO NOTHING")
    made.execute("UPDATE job_types SET paused = false")
    return made


def add_dead(
    world: World, count: int, *, job_type: str = "noop", error_class: str = "timeout", error: str = "took too long",
    age: float = 0.0,
) -> None:  # fmt: skip
    """Dead letters without a conversation, of a type that nothing runs."""
    world.execute(ADD_DEAD, type=job_type, count=count, age=age, **{"class": error_class, "error": error})


def plan(world: World, *, rate: float = 1000.0, **filters: Any) -> Replay:
    with world.database.connection() as connection:
        return replays.start(connection, Filter(**filters), who=WHO, reason=WHY, rate=rate)


def advance(world: World, found: Replay) -> Replay:
    return replays.advance(world.database, found.id)


def take_all(world: World, found: Replay) -> None:
    """What a worker would do with the restarted jobs that are due, and the clock with those that are not."""
    world.execute("UPDATE replays SET next_due_at = now()")
    world.force("UPDATE ai_jobs SET status = 'done' WHERE replay_id = %(id)s AND status = 'pending'", id=found.id)


def to_the_end(world: World, found: Replay) -> Replay:
    """Advance until it is done; the workers keep up."""
    for _ in range(200):
        found = advance(world, found)
        if found.state != "running":
            return found
        take_all(world, found)
    raise AssertionError("the replay does not come to an end")


def counts(found: Replay) -> tuple[int, int, int, int]:
    return found.restarted, found.joined, found.left_out, found.skipped


def dry_run(world: World, rate: float = 1.0, **filters: Any) -> replays.DryRun:
    with world.database.connection() as connection:
        return replays.dry_run(connection, Filter(**filters), rate=rate)


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
        world.force(
            "UPDATE ai_jobs SET status = 'failed', attempts = 3, updated_at = now() WHERE status = 'pending'"
        )  # they die at once
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
        replay.close(connection, [jobs[5]], who="ben", reason="not needed")
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


def to_the_end_running(world: World, found: Replay) -> Replay:
    """Advance until it is done; the application's worker runs what was restarted."""
    for _ in range(50):
        found = advance(world, found)
        run_all(world)
        if found.state != "running":
            return found
        world.execute("UPDATE replays SET next_due_at = now()")
    raise AssertionError("the replay does not come to an end")


# Conversations


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
    add_dead(world, 40, job_type="embed_record")
    add_dead(world, 5)
    found = advance(world, plan(world, rate=4.0))
    assert 0 < found.restarted < 40
    world.execute("UPDATE job_types SET paused = true WHERE type = 'embed_record'")
    world.force("UPDATE ai_jobs SET next_run_at = now() - interval '1 second' WHERE status = 'pending'")
    world.execute("UPDATE replays SET next_due_at = now()")
    ended = advance(world, found)
    assert (ended.state, ended.restarted, ended.left_paused) == ("done", found.restarted + 5, 40 - found.restarted)
    assert (ended.handled, ended.total) == (45, 45)


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
        assert replay.cancel(connection, [job], who=WHO) == {job: "cancelled"}


def test_what_is_closed_does_not_match(world: World) -> None:
    (dead,) = dies(world, "hoeveel verlof heb ik?")
    with world.database.connection() as connection:
        replay.close(connection, [dead], who=WHO, reason="te laat")
    assert replay_all(world).total == 0


def test_a_live_message_joins_the_restarted_job_and_is_not_made_to_wait_for_it(world: World) -> None:
    (dead,) = dies(world, "vraag een?")
    found = plan(world, rate=1.0)
    world.execute("UPDATE replays SET next_due_at = now() + interval '8 seconds'")
    advance(world, found)
    assert world.value("SELECT next_run_at > now() + interval '5 seconds' FROM ai_jobs WHERE id = %(id)s", id=dead)
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


# How fast


def test_due_times_are_spread_by_the_rate(world: World) -> None:
    add_dead(world, 500)
    found = to_the_end(world, plan(world, rate=50.0))
    add_dead(world, 95)
    found = plan(world, rate=50.0)
    for _ in range(3):
        found = advance(world, found)
    assert found.state == "done"  # 95 take 1.9 s, and it may be 3 s ahead
    due = [row[0] for row in world.rows(DUE, id=found.id)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(due)]
    assert all(abs(gap - 0.02) < 1e-4 for gap in gaps), (min(gaps), max(gaps))
    assert world.value("SELECT count(*) FROM ai_jobs WHERE status = 'pending' AND next_run_at <= now()") < 95


@pytest.mark.parametrize(("rate", "ahead"), [(0.1, 2), (1.0, 11), (3.0, 31), (20.0, 61), (500.0, 1501)])
def test_a_plan_is_ahead_of_the_clock_by_a_few_seconds_at_most(world: World, rate: float, ahead: int) -> None:
    add_dead(world, ahead + 50)
    world.execute("UPDATE ai_jobs SET updated_at = now() - interval '1 minute'")
    found = plan(world, rate=rate)
    for _ in range(3):
        found = advance(world, found)
    # While this ran the clock went on, by no more than a few seconds.
    assert ahead - 1 <= found.restarted <= ahead + 1 + 5 * rate
    assert found.state == "running" or found.restarted == ahead + 50
    assert replays.ahead(rate) <= 10


def test_no_burst_comes_after_a_pause(world: World) -> None:
    add_dead(world, 200)
    found = advance(world, plan(world, rate=1.0))
    take_all(world, found)
    world.execute("UPDATE replays SET next_due_at = now() - interval '1 hour'")
    before = found.restarted
    found = advance(world, found)
    assert found.restarted - before <= 12
    assert world.value("SELECT count(*) FROM ai_jobs WHERE status = 'pending' AND next_run_at <= now()") <= 3


def test_it_waits_while_what_it_restarted_is_due_and_nobody_takes_it(world: World) -> None:
    add_dead(world, 200)
    found = advance(world, plan(world, rate=10.0))
    world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
    world.execute("UPDATE replays SET next_due_at = now()")
    before = found.restarted
    assert before > 2 * 10
    for _ in range(3):
        found = advance(world, found)
    assert (found.state, found.restarted) == ("running", before)
    take_all(world, found)
    assert advance(world, found).restarted > before


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
    replays.drive(world.database, lambda _: None)
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


# Drivers


def test_a_worker_carries_a_replay_on_and_wakes_others_for_what_it_restarted(world: World) -> None:
    dies(world, "vraag een?")
    found = plan(world)
    world.wake.delays.clear()

    def is_answered() -> bool:
        world.app.worker.drain(2, 10.0)
        return bool(world.sent_to(ADDRESS))

    eventually(is_answered)
    with world.database.connection() as connection:
        ended = replays.show(connection, found.id)
    assert ended is not None
    assert (ended.state, ended.restarted) == ("done", 1)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert world.wake.delays


def test_a_worker_leaves_alone_what_another_keeps_ahead(world: World) -> None:
    add_dead(world, 100)
    found = plan(world, rate=1.0)
    world.execute("UPDATE replays SET next_due_at = now() + interval '9 seconds'")
    replays.drive(world.database, lambda _: None)
    with world.database.connection() as connection:
        assert replays.show(connection, found.id) == found


def test_a_database_that_refuses_does_not_stop_a_worker(
    postgres: EmbeddedPostgres, caplog: pytest.LogCaptureFixture
) -> None:
    empty = Database(postgres.create(f"empty_{uuid4().hex}"), 1)
    try:
        replays.drive(empty, lambda _: None)
    finally:
        empty.close()
    assert "replay_failed" in caplog.text


def together(*tasks: Callable[[], object]) -> None:
    """Run all at once, and raise what one of them raises."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        for task in [pool.submit(task) for task in tasks]:
            task.result(60)


def test_two_drivers_at_once_neither_skip_nor_double_nor_go_faster(world: World) -> None:
    add_dead(world, 2_000)
    found = plan(world)  # all of them are within the seconds that it may be ahead

    def drive() -> None:
        eventually(lambda: replays.advance(world.database, found.id, seconds=0).state != "running", 30)

    together(drive, drive, drive)
    with world.database.connection() as connection:
        assert counts(replays.list_replays(connection)[0]) == (2_000, 0, 0, 0)
    assert world.rows("SELECT run, count(*)::int FROM ai_jobs GROUP BY run") == [(2, 2_000)]
    due = [row[0] for row in world.rows(DUE, id=found.id)]
    assert all(later - earlier > 0.0009 for earlier, later in itertools.pairwise(due))


def test_two_replays_of_the_same_restart_each_dead_letter_once(world: World) -> None:
    texts = [f"vraag {n}?" for n in range(2)]
    for number in range(6):
        dies(world, *texts, address=f"+316000001{number:02}")
    first, second = plan(world), plan(world)

    def drive(found: Replay) -> Callable[[], None]:
        def task() -> None:
            eventually(lambda: replays.advance(world.database, found.id, seconds=0).state == "done", 30)

        return task

    together(drive(first), drive(second))
    with world.database.connection() as connection:
        ended = replays.list_replays(connection)
    assert [found.handled for found in ended] == [12, 12]
    assert sum(found.restarted for found in ended) == 6
    assert sum(found.joined for found in ended) == 6
    assert world.rows("SELECT run, count(*)::int FROM ai_jobs WHERE type = 'autoreply' GROUP BY run ORDER BY run") == [
        (1, 6),
        (2, 6),
    ]


def test_a_killed_step_has_done_nothing(world: World, database_url: str) -> None:
    add_dead(world, 10)
    found = plan(world)
    with psycopg.connect(database_url, autocommit=True) as doomed:
        pid = doomed.info.backend_pid

        def killed() -> None:
            with doomed.transaction():
                assert replays._step(doomed, found.id).due_in  # all that a process does before it is killed
                world.value("SELECT pg_terminate_backend(%(pid)s)", pid=pid)

        with pytest.raises(psycopg.OperationalError):
            killed()
    assert world.rows("SELECT status, run, count(*)::int FROM ai_jobs GROUP BY 1, 2") == [("failed", 1, 10)]
    assert counts(to_the_end(world, found)) == (10, 0, 0, 0)


@pytest.fixture
def planner(world: World) -> Iterator[Callable[[str, dict[str, Any]], str]]:
    """The plan of a statement, with many dead letters and more other rows."""
    add_dead(world, 2_000)
    world.execute(
        "INSERT INTO ai_jobs (payload, status) SELECT '{\"type\": \"noop\"}', 'done' FROM generate_series(1, 20000)"
    )
    world.execute("ANALYZE ai_jobs")

    def explain(sql: str, parameters: dict[str, Any]) -> str:
        return "\n".join(row[0] for row in world.rows("EXPLAIN (COSTS off) " + sql, **parameters))

    yield explain
    world.execute("DELETE FROM ai_jobs")
    world.execute("ANALYZE ai_jobs")


def test_a_step_reads_only_what_is_next(world: World, planner: Callable[[str, dict[str, Any]], str]) -> None:
    place = {"cursor": 500, "end": 10**9, "limit": 50, "window": 500, "id": uuid4()}
    wanted = {"filter": Filter(error_class="timeout").as_jsonb(), "as_of": datetime.now(UTC)}
    for sql in (replays.LOOK_AT, replays.NEXT):
        found = planner(sql, place | wanted)
        assert "using ai_jobs_dead_in_order" in found, found
        assert "Sort" not in found.replace("Sort Key", ""), found
    assert "using ai_jobs_replayed" in planner(replays.BACKLOG, place)


# Whatever happens, in whatever order


class _Moves:
    """A replay of a handful of dead letters, and what people, workers and the clock do meanwhile."""

    def __init__(self, world: World) -> None:
        self.world = world
        add_dead(world, 8)
        self.plan = plan(world, rate=1.0)

    def advance(self, _: int) -> None:
        replays.advance(self.world.database, self.plan.id, seconds=0)

    def clock(self, _: int) -> None:
        self.world.execute("UPDATE replays SET next_due_at = next_due_at - interval '5 seconds'")

    def stop(self, _: int) -> None:
        with self.world.database.connection() as connection:
            if replays.list_replays(connection)[0].state != "done":
                replays.stop(connection, self.plan.id, who=WHO)

    def resume(self, _: int) -> None:
        with self.world.database.connection() as connection:
            if replays.list_replays(connection)[0].state != "done":
                replays.resume(connection, self.plan.id, who=WHO)

    def by_hand(self, n: int) -> None:
        with self.world.database.connection() as connection:
            replay.restart(connection, [self._job(n)], who=WHO)

    def close(self, n: int) -> None:
        with self.world.database.connection() as connection:
            replay.close(connection, [self._job(n)], who=WHO, reason="no")

    def work(self, n: int) -> None:
        """A worker takes one that is due; every other one dies again."""
        with self.world.database.connection() as connection:
            connection.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
            for job in store.claim(connection, 1, ["noop"], 5.0):
                if n % 2:
                    store.mark_done(connection, job)
                else:
                    self.world.force(
                        "UPDATE ai_jobs SET status = 'failed', lease_token = NULL, lease_until = NULL, updated_at = now()"
                        " WHERE id = %(id)s",
                        id=job.id,
                    )

    def _job(self, n: int) -> UUID:
        found: UUID = self.world.rows("SELECT id FROM ai_jobs ORDER BY seq")[n][0]
        return found


MOVES = ("advance", "advance", "clock", "stop", "resume", "by_hand", "close", "work")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 7)), max_size=25))
def test_each_dead_letter_is_restarted_by_the_replay_at_most_once_and_none_is_forgotten(
    database: Database, moves: Sequence[tuple[str, int]]
) -> None:
    world = fresh(database)
    world.execute("DELETE FROM replays")
    world.execute("INSERT INTO job_types (type) VALUES ('noop') ON CONFLICT DO NOTHING")
    story = _Moves(world)
    for move, number in moves:
        getattr(story, move)(number)
    story.resume(0)
    story.advance(0)
    for _ in range(8):
        world.execute("UPDATE replays SET next_due_at = now() - interval '1 minute'")
        world.force("UPDATE ai_jobs SET status = 'done' WHERE status = 'pending'")
        story.advance(0)
    with world.database.connection() as connection:
        (ended,) = replays.list_replays(connection)
    assert (ended.state, ended.handled) == ("done", 8)
    # Nothing that was dead at the start still is, unless it was restarted and died again, or a person closed it.
    assert world.rows("SELECT FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL AND run = 1") == []
    replayed = [job for line in lines(world) if line.what == "replay_jobs" for job in line.details["jobs"]]
    assert len(replayed) == len(set(replayed)) == ended.restarted
    by_hand = sum(line.what == "restart_job" for line in lines(world))
    assert world.value("SELECT sum(run - 1)::int FROM ai_jobs") == ended.restarted + by_hand
