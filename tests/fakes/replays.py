"""Dead letters and their replay, as tests make and move them."""

from __future__ import annotations

from typing import Any

from shared.db.pool import Database
from shared.queue import replays, replays_drive
from shared.queue.dead_letters import Filter
from shared.queue.replays import Replay
from shared.queue.replays_dry_run import DryRun, count_replay
from tests.fakes.desk import fresh
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


def fresh_of_replays(database: Database) -> World:
    """A world without dead letters and replays; jobs of the type noop have nobody who runs them."""
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
    """Start a replay of all that match."""
    with world.database.connection() as connection:
        return replays.start(connection, Filter(**filters), who=WHO, reason=WHY, rate=rate)


def advance(world: World, found: Replay) -> Replay:
    """Restart what the plan has for now."""
    return replays_drive.advance(world.database, found.id, seconds=60)


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
    """Restarted, joined, left out, skipped."""
    return found.restarted, found.joined, found.left_out, found.skipped


def dry_run(world: World, rate: float = 1.0, **filters: Any) -> DryRun:
    """What a replay of all that match would do."""
    with world.database.connection() as connection:
        return count_replay(connection, Filter(**filters), rate=rate)


def to_the_end_running(world: World, found: Replay) -> Replay:
    """Advance until it is done; the application's worker runs what was restarted."""
    for _ in range(50):
        found = advance(world, found)
        run_all(world)
        if found.state != "running":
            return found
        world.execute("UPDATE replays SET next_due_at = now()")
    raise AssertionError("the replay does not come to an end")
