"""Carrying replays on: by whoever watches one, and by every worker, a little at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

import psycopg

from shared import telemetry
from shared.db.pool import Database
from shared.errors import DatabaseAway, classify
from shared.queue.replays import Replay, known
from shared.queue.replays_pace import ahead
from shared.queue.replays_step import step

DRIVE_SECONDS = 0.1  # that a worker spends on a replay between two polls

RUNNING = """
    SELECT id, rate, extract(epoch FROM next_due_at - now())::float8 FROM replays WHERE state = 'running' ORDER BY created_at
"""


def advance(
    database: Database, replay_id: UUID, *, wake: Callable[[float], None] = lambda _: None, seconds: float = 1.0
) -> Replay:
    """Restart what the plan has for now, for at most `seconds`; how far it is then.

    `wake` is called with the seconds until each restarted job is due, after the commit that made it so. Call it again a
    fraction of a second later, from as many processes as there are. Raises UserError when there is no such replay.
    """
    ends = time.monotonic() + seconds
    while True:
        with database.transaction() as connection:
            stepped = step(connection, replay_id)
        for due_in in stepped.due_in:
            wake(due_in)
        if not stepped.has_moved or time.monotonic() > ends:
            with database.connection() as connection:
                return known(connection, replay_id)


def drive(database: Database, wake: Callable[[float], None]) -> None:
    """What a worker does for replays, about once a second: carry on those that nobody else carries on. Never raises."""
    try:
        with database.connection() as connection:
            running = connection.execute(RUNNING).fetchall()
        for replay_id, rate, due_in in running:
            if due_in < ahead(rate) / 2:
                advance(database, replay_id, wake=wake, seconds=DRIVE_SECONDS)
    except (DatabaseAway, psycopg.Error) as failed:
        telemetry.warning("replay_failed", error=classify(failed).text)
