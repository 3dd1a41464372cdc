"""How fast a replay goes: its rate, how far it may be ahead of the clock, and when it waits for those who do the work.

It is ahead by a few seconds at most, and waits while its restarted jobs are due and nobody takes them, so that live jobs never
queue up behind a replay.
"""

from __future__ import annotations

import math
from uuid import UUID

from shared.db.pool import Conn, one
from shared.errors import UserError

RATE_AT_LEAST, RATE_AT_MOST = 0.01, 1000.0  # restarts a second
STEP = 50  # restarted in one transaction: its locks keep messages of so many conversations waiting
AHEAD_SECONDS = 10.0  # of a slow replay; a fast one, whose jobs could crowd the live ones, less
AHEAD_SECONDS_AT_LEAST = 3.0
AHEAD_JOBS = 30
BACKLOG_SECONDS = 2.0  # of its rate, due and not taken: the replay waits

# Those of a type that was paused meanwhile wait for a person, and must not hold back the others.
BACKLOG = """
    SELECT count(*) FROM (
        SELECT FROM ai_jobs j WHERE j.status = 'pending' AND j.replay_id = %(id)s AND j.next_run_at <= now()
            AND EXISTS (SELECT FROM job_types t WHERE t.type = j.type AND NOT t.paused)
        LIMIT %(limit)s) due
"""


def check_rate(rate: float) -> None:
    """Raise UserError for a rate that cannot be."""
    if not RATE_AT_LEAST <= rate <= RATE_AT_MOST:  # also what is not a number
        raise UserError(
            f"A rate of {rate:g} is not possible: give restarts a second, from {RATE_AT_LEAST:g} to {RATE_AT_MOST:,.0f}.",
            name="replay_rate",
        )


def ahead(rate: float) -> float:
    """How far a plan may run ahead of the clock, in seconds."""
    return min(max(AHEAD_JOBS / rate, AHEAD_SECONDS_AT_LEAST), AHEAD_SECONDS)


def room(rate: float, due_in: float) -> int:
    """How many one step may restart, when the next of them is due in so many seconds. Not one when it is below 1."""
    return min(STEP, math.floor((ahead(rate) - due_in) * rate) + 1)


def is_held_back(connection: Conn, replay_id: UUID, rate: float) -> bool:
    """Whether too many of those it restarted are due and not taken."""
    limit = math.floor(BACKLOG_SECONDS * rate) + 1
    row = one(connection, BACKLOG, {"id": replay_id, "limit": limit + 1})
    return row is not None and row[0] > limit
