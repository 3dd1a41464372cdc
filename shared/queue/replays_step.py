"""One step of a replay is one short transaction, whoever takes it.

It locks the plan's row, restarts the next few dead letters in their order, each due a little later than the one before, and
moves the cursor. So whoever is killed in a step has done nothing, two who are at it at once take turns, and none is skipped
or taken twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from shared import audit
from shared.db.pool import Conn, one
from shared.queue.replays import BY_ITSELF, STOP, known
from shared.queue.replays_pace import is_held_back, room
from shared.queue.replays_take import Next, Plan, Taken, take, take_siblings

WINDOW = 500  # dead letters that a step looks at, matching or not

# A conversation that somebody holds must not make a step hold fifty others for long.
BRIEFLY = "SET LOCAL lock_timeout = '500ms'"
LOCK = """
    SELECT id, who, reason, filter, rate, cursor_seq AS cursor, created_at, to_endpoint,
        EXISTS (SELECT FROM webhook_endpoints n WHERE n.disabled_at IS NOT NULL AND (
            n.id = to_endpoint OR to_endpoint IS NULL AND n.name = filter ->> 'endpoint')) AS is_disabled,
        extract(epoch FROM greatest(next_due_at, now()) - now())::float8 AS due_in
    FROM replays WHERE id = %(id)s AND state = 'running' FOR NO KEY UPDATE SKIP LOCKED
"""
LOOK_AT = """
    SELECT max(seq), count(*) FROM (
        SELECT seq FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL AND seq > %(cursor)s
        ORDER BY seq LIMIT %(window)s) next
"""
NEXT = """
    SELECT j.id, j.seq, j.conversation_id,
        EXISTS (SELECT FROM messages m
            WHERE m.reply_id = CASE j.type WHEN 'send_message' THEN uuid_or_null(j.payload ->> 'message_id') ELSE j.id END
                AND m.status IN ('sending', 'held') AND m.send_started_at IS NOT NULL) AS may_have_left,
        j.type, NOT EXISTS (SELECT FROM job_types t WHERE t.type = j.type AND NOT t.paused) AS is_paused
    FROM dead_letters_matching(%(filter)s, %(as_of)s) j
    WHERE j.seq > %(cursor)s AND j.seq <= %(end)s ORDER BY j.seq LIMIT %(limit)s
"""
MOVE = """
    UPDATE replays SET cursor_seq = %(cursor)s, next_due_at = now() + make_interval(secs => %(due_in)s),
        restarted = restarted + %(restarted)s, joined = joined + %(joined)s, left_out = left_out + %(left_out)s,
        left_paused = left_paused + %(left_paused)s, not_deliveries = not_deliveries + %(not_deliveries)s,
        paused_types = ARRAY (SELECT DISTINCT unnest(paused_types || %(paused_types)s::text[]) ORDER BY 1)
    WHERE id = %(id)s
"""
# What matched at the start and was not there any more when its turn came was restarted or closed by somebody else.
FINISH = """
    UPDATE replays SET state = 'done', ended_at = now(),
        skipped = greatest(total - restarted - joined - left_out - left_paused - not_deliveries, 0)
    WHERE id = %(id)s
"""


@dataclass(frozen=True, slots=True)
class Stepped:
    """Not moved: far enough ahead, held back, in other hands, done or stopped. `due_in` are the seconds until each restart."""

    has_moved: bool
    due_in: Sequence[float] = ()


def step(connection: Conn, replay_id: UUID) -> Stepped:
    """One step, in the caller's transaction."""
    connection.execute(BRIEFLY)
    with connection.cursor(row_factory=class_row(Plan)) as cursor:
        plan = cursor.execute(LOCK, {"id": replay_id}).fetchone()
    if plan is None:
        return Stepped(has_moved=False)
    if plan.is_disabled:  # what would be sent there would only die once more; a person enables it and resumes
        connection.execute(STOP, {"id": replay_id, "who": BY_ITSELF})
        audit.record(connection, who=BY_ITSELF, what="stop_replay", target_type="replay", target_id=replay_id,
                     reason="the endpoint is disabled")  # fmt: skip
        return Stepped(has_moved=False)
    at_most = room(plan.rate, plan.due_in)
    if at_most < 1 or is_held_back(connection, plan.id, plan.rate):
        return Stepped(has_moved=False)
    looked = one(connection, LOOK_AT, {"cursor": plan.cursor, "window": WINDOW})
    assert looked is not None
    end, count = looked
    found = _next(connection, plan, end, at_most + 1) if count else []
    taken = Taken(plan.due_in, plan.cursor)
    took_all = take(connection, plan, taken, found[:at_most]) and len(found) <= at_most
    if took_all and count:
        taken.cursor = end
    take_siblings(connection, plan, taken)
    moved = taken.cursor > plan.cursor
    if moved:
        _record(connection, plan, taken)
    if took_all and count < WINDOW:
        _finish(connection, plan)
        return Stepped(has_moved=False, due_in=taken.due_in)
    return Stepped(moved, taken.due_in)


def _next(connection: Conn, plan: Plan, end: int, limit: int) -> list[Next]:
    parameters = {
        "filter": Jsonb(plan.filter),
        "as_of": plan.created_at,
        "cursor": plan.cursor,
        "end": end,
        "limit": limit,
    }
    with connection.cursor(row_factory=class_row(Next)) as cursor:
        return cursor.execute(NEXT, parameters).fetchall()


def _record(connection: Conn, plan: Plan, taken: Taken) -> None:
    parameters = {"id": plan.id, "cursor": taken.cursor, "due_in": taken.slot, "restarted": taken.counts["restarted"],
                  "joined": taken.counts["joined"], "left_out": taken.counts["kept"],
                  "left_paused": taken.counts["paused"], "paused_types": list(taken.paused_types),
                  "not_deliveries": taken.counts["not_deliveries"]}  # fmt: skip
    connection.execute(MOVE, parameters)
    if taken.jobs:
        audit.record(connection, who=plan.who, what="replay_jobs", target_type="replay", target_id=plan.id,
                     jobs=taken.jobs)  # fmt: skip


def _finish(connection: Conn, plan: Plan) -> None:
    connection.execute(FINISH, {"id": plan.id})
    ended = known(connection, plan.id)
    audit.record(connection, who=plan.who, what="finish_replay", target_type="replay", target_id=plan.id,
                 restarted=ended.restarted, joined=ended.joined, left_out=ended.left_out,
                 left_paused=ended.left_paused, not_deliveries=ended.not_deliveries or None, skipped=ended.skipped)  # fmt: skip
