"""Replaying dead letters by the thousand: a plan in the table `replays`, which any process can carry on.

Here a plan is made, shown, stopped and resumed; what carries it on is replays_drive.py, step by step (replays_step.py). What
died after the plan was made is not part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from shared import audit
from shared.db.pool import Conn, one
from shared.db.text import storable
from shared.errors import UserError
from shared.queue.closing import stated
from shared.queue.dead_letters import Filter
from shared.queue.elsewhere import find_endpoint
from shared.queue.replays_pace import check_rate

BY_ITSELF = "antwoord"  # who stops a replay whose endpoint was disabled meanwhile

START = """
    INSERT INTO replays (who, reason, filter, rate, to_endpoint, total)
    SELECT %(who)s, %(reason)s, %(filter)s, %(rate)s, %(to_endpoint)s, count(*) FROM dead_letters_matching(%(filter)s, now())
    RETURNING id, total
"""
SHOW = """
    SELECT id, who, reason, filter, rate, state, total, restarted, joined, left_out, left_paused, paused_types, skipped,
        stopped_by, created_at, ended_at, not_deliveries,
        (SELECT n.name FROM webhook_endpoints n WHERE n.id = to_endpoint) AS to
    FROM replays WHERE (%(id)s::uuid IS NULL OR id = %(id)s) AND (%(state)s::text IS NULL OR state = %(state)s)
    ORDER BY created_at DESC LIMIT %(limit)s
"""
STOP = """
    UPDATE replays SET state = 'stopped', stopped_by = %(who)s, ended_at = now() WHERE id = %(id)s AND state = 'running'
    RETURNING id
"""
RESUME = """
    UPDATE replays SET state = 'running', stopped_by = NULL, ended_at = NULL WHERE id = %(id)s AND state = 'stopped'
    RETURNING id
"""
BECAME = """
    SELECT
        (SELECT count(*) FROM ai_jobs WHERE replay_id = %(id)s AND status = 'pending')::int AS waiting,
        (SELECT count(*) FROM ai_jobs WHERE replay_id = %(id)s AND status = 'processing')::int AS running,
        (SELECT count(*) FROM ai_jobs WHERE replay_id = %(id)s AND status = 'failed' AND closed_at IS NULL)::int
            AS died_again
"""


@dataclass(frozen=True, slots=True)
class Replay:
    """A plan and how far it is. `left_out` may have arrived, so a person looks at them; `skipped` went another way meanwhile.

    `left_paused` are of the types in `paused_types`, which were paused, or unknown: nobody would have run them, so they stay
    dead letters for a replay when their type goes on. `to` is the endpoint that deliveries go to instead of their own; then
    what is no delivery is left as it is, and counted in `not_deliveries`.
    `total` are the dead letters that matched when it was made, `rate` restarts a second.
    """

    id: UUID
    who: str
    reason: str
    filter: dict[str, Any]
    rate: float
    state: str
    total: int
    restarted: int
    joined: int
    left_out: int
    left_paused: int
    paused_types: list[str]
    skipped: int
    stopped_by: str | None
    created_at: datetime
    ended_at: datetime | None
    not_deliveries: int = 0
    to: str | None = None

    @property
    def handled(self) -> int:
        """How many of the total it has dealt with."""
        left = self.left_out + self.left_paused + self.not_deliveries
        return min(self.restarted + self.joined + left + self.skipped, self.total)

    @property
    def stopped_itself(self) -> bool:
        """Whether nobody stopped it: the endpoint that it goes to is disabled."""
        return self.stopped_by == BY_ITSELF


@dataclass(frozen=True, slots=True)
class Became:
    """Where a replay's restarted jobs are: those that are not here are done, closed, or were restarted by hand."""

    waiting: int
    running: int
    died_again: int


def start(connection: Conn, wanted: Filter, *, who: str, reason: str, rate: float, to: str | None = None) -> Replay:
    """Make the plan: all dead letters that match now, `rate` a second; deliveries to the endpoint `to`, if that is given.

    Raises UserError for a wrong rate, no reason, and an endpoint that is not there or disabled, also as their own: what went
    there would die once more.
    """
    check_rate(rate)
    said = stated(reason, "the replay")
    with connection.transaction():
        if to is None:
            find_endpoint(connection, wanted.endpoint)
        parameters = {"who": storable(who), "reason": said, "filter": wanted.as_jsonb(), "rate": rate,
                      "to_endpoint": find_endpoint(connection, to)}  # fmt: skip
        row = one(connection, START, parameters)
        assert row is not None
        audit.record(connection, who=who, what="start_replay", target_type="replay", target_id=row[0],
                     filter=wanted.as_json(), rate=rate, total=row[1], reason=said, to=to)  # fmt: skip
        return known(connection, row[0])


def stop(connection: Conn, replay_id: UUID, *, who: str) -> Replay | None:
    """Restart nothing further; what is restarted runs. None when there is no such replay; UserError when it is done."""
    return _change(connection, replay_id, who, running=False)


def resume(connection: Conn, replay_id: UUID, *, who: str) -> Replay | None:
    """Go on where it was stopped. None when there is no such replay; UserError when it is done."""
    return _change(connection, replay_id, who, running=True)


def show(connection: Conn, replay_id: UUID) -> Replay | None:
    """One replay, or None."""
    found = _select(connection, replay_id, 1)
    return found[0] if found else None


def list_replays(connection: Conn, *, state: str | None = None, limit: int = 50) -> list[Replay]:
    """The newest first, of one state or of all."""
    return _select(connection, None, limit, state)


def became(connection: Conn, replay_id: UUID) -> Became:
    """Where its restarted jobs are."""
    with connection.cursor(row_factory=class_row(Became)) as cursor:
        found = cursor.execute(BECAME, {"id": replay_id}).fetchone()
    assert found is not None
    return found


def known(connection: Conn, replay_id: UUID) -> Replay:
    """One replay. Raises UserError when there is none."""
    found = show(connection, replay_id)
    if found is None:
        raise UserError(f"There is no replay {replay_id}.", name="no_such_replay")
    return found


def _change(connection: Conn, replay_id: UUID, who: str, *, running: bool) -> Replay | None:
    with connection.transaction():
        changed = one(connection, RESUME if running else STOP, {"id": replay_id, "who": storable(who)})
        found = show(connection, replay_id)
        if changed is not None:
            what = "resume_replay" if running else "stop_replay"
            audit.record(connection, who=who, what=what, target_type="replay", target_id=replay_id)
        elif found is not None and found.state == "done":
            raise UserError(f"Replay {replay_id} is done: all that matched was restarted.", name="replay_done")
    return found


def _select(connection: Conn, replay_id: UUID | None, limit: int, state: str | None = None) -> list[Replay]:
    with connection.cursor(row_factory=class_row(Replay)) as cursor:
        return cursor.execute(SHOW, {"id": replay_id, "limit": limit, "state": state}).fetchall()
