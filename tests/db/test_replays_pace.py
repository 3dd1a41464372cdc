"""How fast a replay goes, and who carries it on: one driver or several, and one that is killed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from local.postgres import EmbeddedPostgres
from shared.db.pool import Database
from shared.queue import replays, replays_drive, replays_pace
from shared.queue.dead_letters import Filter
from shared.queue.replays import Replay
from shared.queue.replays_step import LOOK_AT, NEXT, step
from tests.fakes.desk import ADDRESS, ANSWER, NOTICE, dies
from tests.fakes.eventually import eventually
from tests.fakes.replays import (
    DUE,
    add_dead,
    advance,
    counts,
    fresh_of_replays,
    plan,
    take_all,
    to_the_end,
)
from tests.fakes.world import World


@pytest.fixture
def world(database: Database) -> World:
    return fresh_of_replays(database)


# When each of a replay's jobs was restarted, and when it is due, in seconds after the plan was made.
SLOTS = """
    SELECT extract(epoch FROM j.updated_at - r.created_at)::float8, extract(epoch FROM j.next_run_at - r.created_at)::float8
    FROM ai_jobs j JOIN replays r ON r.id = j.replay_id WHERE r.id = %(id)s AND j.status = 'pending' ORDER BY j.seq
"""
SINCE = "SELECT extract(epoch FROM clock_timestamp() - created_at)::float8 FROM replays WHERE id = %(id)s"
TAKE_DUE = """
    UPDATE ai_jobs SET status = 'done' WHERE replay_id = %(id)s AND status = 'pending' AND next_run_at <= now()
"""


def assert_spread(slots: Sequence[tuple[Any, ...]], rate: float) -> None:
    """Each is due in its turn behind the one before it, or at once where that has passed: however long the steps took."""
    earlier = -1.0
    for restarted_at, due in slots:
        assert due == pytest.approx(max(earlier + 1 / rate, restarted_at), abs=1e-4)
        earlier = due


# How fast


def test_due_times_are_spread_by_the_rate(world: World) -> None:
    add_dead(world, 500)
    found = to_the_end(world, plan(world, rate=50.0))
    add_dead(world, 95)
    found = plan(world, rate=50.0)
    for _ in range(3):
        found = advance(world, found)
    assert found.state == "done"  # 95 take 1.9 s, and it may be 3 s ahead
    slots = world.rows(SLOTS, id=found.id)
    assert len(slots) == 95
    assert_spread(slots, 50.0)


@pytest.mark.parametrize(("rate", "ahead"), [(0.1, 2), (1.0, 11), (3.0, 31), (20.0, 61), (500.0, 1501)])
def test_a_plan_is_ahead_of_the_clock_by_a_few_seconds_at_most(world: World, rate: float, ahead: int) -> None:
    add_dead(world, ahead + 50)
    world.execute("UPDATE ai_jobs SET updated_at = now() - interval '1 minute'")
    found = plan(world, rate=rate)
    is_held_back = True
    while is_held_back:  # by what fell due while this ran, so that it may be behind
        world.force(TAKE_DUE, id=found.id)
        before = world.value(SINCE, id=found.id)
        found = advance(world, found)
        after = world.value(SINCE, id=found.id)
        with world.database.connection() as connection:
            is_held_back = replays_pace.is_held_back(connection, found.id, rate)
    (*_, (last,)), seconds = world.rows(DUE, id=found.id), (ahead - 1) / rate
    assert ahead - 1 <= found.restarted <= ahead + 1 + rate * after
    assert last < after + seconds + 0.001
    assert last > before + seconds - 1 / rate - 0.001 or found.restarted == ahead + 50
    assert found.state == "running" or found.restarted == ahead + 50
    assert replays_pace.ahead(rate) <= 10


def test_no_burst_comes_after_a_pause(world: World) -> None:
    add_dead(world, 200)
    found = advance(world, plan(world, rate=1.0))
    take_all(world, found)
    world.execute("UPDATE replays SET next_due_at = now() - interval '1 hour'")
    before, began = found.restarted, world.value(SINCE, id=found.id)
    found = advance(world, found)
    assert found.restarted - before <= 12 + world.value(SINCE, id=found.id) - began
    assert_spread(world.rows(SLOTS, id=found.id), 1.0)


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


def test_a_worker_leaves_alone_what_another_keeps_ahead(database: Database) -> None:
    is_ahead = False
    while not is_ahead:  # all the time, unless the machine stood still
        world = fresh_of_replays(database)
        add_dead(world, 100)
        found = plan(world, rate=1.0)
        due = world.value("UPDATE replays SET next_due_at = now() + interval '9 seconds' RETURNING next_due_at")
        replays_drive.drive(world.database, lambda _: None)
        is_ahead = world.value("SELECT now() < %(due)s::timestamptz - interval '5 seconds'", due=due)
    with world.database.connection() as connection:
        assert replays.show(connection, found.id) == found


def test_a_database_that_refuses_does_not_stop_a_worker(
    postgres: EmbeddedPostgres, caplog: pytest.LogCaptureFixture
) -> None:
    empty = Database(postgres.create(f"empty_{uuid4().hex}"), 1)
    try:
        replays_drive.drive(empty, lambda _: None)
    finally:
        empty.close()
    assert "replay_failed" in caplog.text


def together(*tasks: Callable[[], object]) -> None:
    """Run all at once, and raise what one of them raises."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        for task in [pool.submit(task) for task in tasks]:
            task.result(90)


def test_two_drivers_at_once_neither_skip_nor_double_nor_go_faster(world: World) -> None:
    add_dead(world, 2_000)
    found = plan(world)  # all of them are within the seconds that it may be ahead

    def drive() -> None:
        eventually(lambda: replays_drive.advance(world.database, found.id, seconds=0).state != "running")

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
            eventually(lambda: replays_drive.advance(world.database, found.id, seconds=0).state == "done")

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
                assert step(doomed, found.id).due_in  # all that a process does before it is killed
                world.value("SELECT pg_terminate_backend(%(pid)s)", pid=pid)

        with pytest.raises(psycopg.OperationalError):
            killed()
    assert world.rows("SELECT status, run, count(*)::int FROM ai_jobs GROUP BY 1, 2") == [("failed", 1, 10)]
    assert counts(to_the_end(world, found)) == (10, 0, 0, 0)


@pytest.fixture
def planner(world: World) -> Iterator[Callable[[str, dict[str, Any]], str]]:
    """The plan of a statement, with many dead letters and more other rows, many of which are due."""
    add_dead(world, 2_000)
    with world.database.transaction() as connection:
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute(
            "INSERT INTO ai_jobs (payload, status)"
            " SELECT '{\"type\": \"noop\"}', CASE WHEN n > 5000 THEN 'done' ELSE 'pending' END FROM generate_series(1, 20000) n"
        )
        connection.execute("ANALYZE ai_jobs")

    def explain(sql: str, parameters: dict[str, Any]) -> str:
        return "\n".join(row[0] for row in world.rows("EXPLAIN (COSTS off) " + sql, **parameters))

    yield explain
    with world.database.transaction() as connection:
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("DELETE FROM ai_jobs")
        connection.execute("ANALYZE ai_jobs")


def test_a_step_reads_only_what_is_next(world: World, planner: Callable[[str, dict[str, Any]], str]) -> None:
    place = {"cursor": 500, "end": 10**9, "limit": 50, "window": 500, "id": uuid4()}
    wanted = {"filter": Filter(error_class="timeout").as_jsonb(), "as_of": datetime.now(UTC)}
    for sql in (LOOK_AT, NEXT):
        found = planner(sql, place | wanted)
        assert "using ai_jobs_dead_in_order" in found, found
        assert "Sort" not in found.replace("Sort Key", ""), found
    assert "using ai_jobs_replayed" in planner(replays_pace.BACKLOG, place)
