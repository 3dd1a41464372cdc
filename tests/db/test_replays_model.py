"""A replay while people, workers and the clock do whatever they like, in whatever order."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.db.pool import Database
from shared.queue import closing, replay, replays, replays_drive, store
from tests.fakes.desk import lines
from tests.fakes.replays import (
    WHO,
    add_dead,
    fresh_of_replays,
    plan,
)
from tests.fakes.world import World


class _Moves:
    """A replay of a handful of dead letters, and what people, workers and the clock do meanwhile."""

    def __init__(self, world: World) -> None:
        self.world = world
        add_dead(world, 8)
        self.plan = plan(world, rate=1.0)

    def advance(self, _: int) -> None:
        replays_drive.advance(self.world.database, self.plan.id, seconds=0)

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
            closing.close(connection, [self._job(n)], who=WHO, reason="no")

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
    world = fresh_of_replays(database)
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
