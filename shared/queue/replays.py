"""Replaying dead letters by the thousand: a plan in the table `replays`, which any process can carry on.

One step is one short transaction: it locks the plan's row, restarts the next few dead letters in their order, each due a
little later than the one before, and moves the cursor. So whoever is killed in a step has done nothing, two who are at
it at once take turns, and none is skipped or taken twice. What died after the plan was made is not part of it.

The plan is ahead of the clock by a few seconds at most, and waits while its restarted jobs are due and nobody takes them, so
that live jobs never queue up behind a replay.

Dead deliveries may go to another endpoint instead: each then gets a delivery and a job of its own, due at its slot, and its
dead letter is closed. What is no delivery stays a dead letter.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from shared import audit, telemetry
from shared.db.pool import Conn, Database, one
from shared.db.text import storable
from shared.errors import DatabaseAway, UserError, classify
from shared.queue.closing import stated
from shared.queue.dead_letters import Count, Filter, count_dead
from shared.queue.replay import restart_row

RATE_AT_LEAST, RATE_AT_MOST = 0.01, 1000.0  # restarts a second
STEP = 50  # restarted in one transaction: its locks keep messages of so many conversations waiting
WINDOW = 500  # dead letters that a step looks at, matching or not
SIBLINGS_AT_MOST = 100  # of the conversations of one step, that join at once; the cursor meets the others
AHEAD_SECONDS = 10.0  # of a slow replay; a fast one, whose jobs could crowd the live ones, less
AHEAD_SECONDS_AT_LEAST = 3.0
AHEAD_JOBS = 30
BACKLOG_SECONDS = 2.0  # of its rate, due and not taken: the replay waits
DRIVE_SECONDS = 0.1  # that a worker spends on replays between two polls
DELIVERY = "deliver_event"  # the type of the jobs that can go to another endpoint
BY_ITSELF = "antwoord"  # who stops a replay whose endpoint was disabled meanwhile

# Somebody else has what a restart needs: it is tried again, a fraction of a second later.
HELD = (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)

ENDPOINT = "SELECT id, disabled_at IS NOT NULL FROM webhook_endpoints WHERE name = %(name)s"
ENDPOINT_NAMES = "SELECT name FROM webhook_endpoints WHERE disabled_at IS NULL ORDER BY name"
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
RUNNING = """
    SELECT id, rate, extract(epoch FROM next_due_at - now())::float8 FROM replays WHERE state = 'running' ORDER BY created_at
"""
# A conversation that somebody holds must not make a step hold fifty others for long.
BRIEFLY = "SET LOCAL lock_timeout = '500ms'"
LOCK = """
    SELECT id, who, reason, filter, rate, cursor_seq, created_at, to_endpoint,
        EXISTS (SELECT FROM webhook_endpoints n WHERE n.id = to_endpoint AND n.disabled_at IS NOT NULL) AS is_disabled,
        extract(epoch FROM greatest(next_due_at, now()) - now())::float8 AS due_in
    FROM replays WHERE id = %(id)s AND state = 'running' FOR NO KEY UPDATE SKIP LOCKED
"""
# Those of a type that was paused meanwhile wait for a person, and must not hold back the others.
BACKLOG = """
    SELECT count(*) FROM (
        SELECT FROM ai_jobs j WHERE j.status = 'pending' AND j.replay_id = %(id)s AND j.next_run_at <= now()
            AND EXISTS (SELECT FROM job_types t WHERE t.type = j.type AND NOT t.paused)
        LIMIT %(limit)s) due
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
# What would join one that this step has restarted, however much later in the order: one answer for all that was asked.
SIBLINGS = """
    SELECT j.id FROM dead_letters_matching(%(filter)s, %(as_of)s) j
    WHERE j.conversation_id = ANY (%(conversations)s) AND j.type = 'autoreply' AND j.seq > %(cursor)s
        AND NOT EXISTS (SELECT FROM messages m WHERE m.reply_id = j.id)
    ORDER BY j.seq LIMIT %(limit)s
"""
# Without a conversation there is nothing to join, release or flag, so all of them are restarted in one.
RESTART_ALL = """
    UPDATE ai_jobs j SET status = 'pending', attempts = 0, claims = 0, run = run + 1, run_started_at = now(),
        next_run_at = now() + make_interval(secs => next.due_in), replay_id = %(replay_id)s, rerun = false,
        has_crashed = false, updated_at = now()
    FROM unnest(%(ids)s::uuid[], %(due_in)s::float8[]) AS next (id, due_in)
    WHERE j.id = next.id AND j.status = 'failed' AND j.closed_at IS NULL
    RETURNING j.id
"""
# Each goes to another endpoint as a delivery of its own.
SEND_ELSEWHERE = """
    SELECT dead_job, new_delivery, new_job
    FROM send_elsewhere(%(ids)s, %(due_in)s, %(to_endpoint)s, %(replay_id)s, %(who)s, %(reason)s)
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


@dataclass(frozen=True, slots=True)
class Became:
    """Where a replay's restarted jobs are: those that are not here are done, closed, or were restarted by hand."""

    waiting: int
    running: int
    died_again: int


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a replay would do: `seconds` is how long its restarts take at its rate."""

    total: int
    left_out: int
    left_paused: int
    paused_types: list[str]
    joining: int
    seconds: float
    counts: list[Count]
    not_deliveries: int = 0
    to: str | None = None

    @property
    def restarted(self) -> int:
        """How many would run of their own, or go to the other endpoint."""
        return self.total - self.left_out - self.left_paused - self.joining - self.not_deliveries


def dry_run(connection: Conn, wanted: Filter, *, rate: float, to: str | None = None) -> DryRun:
    """Count what a replay would restart, and change nothing.

    `to` names the endpoint that deliveries go to instead of their own. Raises UserError for a rate that cannot be, and for
    an endpoint that is not there or disabled.
    """
    _check_rate(rate)
    find_endpoint(connection, to)
    counts = count_dead(connection, wanted)
    if to is not None:
        deliveries = [found for found in counts if found.type == DELIVERY]
        others = sum(found.count for found in counts if found.type != DELIVERY)
        paused = sum(found.left_paused for found in deliveries)
        sent = sum(found.count for found in deliveries) - paused
        types = [DELIVERY] if paused else []
        return DryRun(sent + paused + others, 0, paused, types, 0, sent / rate, counts, others, to)
    total, left_out = sum(found.count for found in counts), sum(found.left_out for found in counts)
    joining, left_paused = sum(found.joining for found in counts), sum(found.left_paused for found in counts)
    paused_types = sorted({found.type for found in counts if found.left_paused})
    seconds = (total - left_out - left_paused - joining) / rate
    return DryRun(total, left_out, left_paused, paused_types, joining, seconds, counts)


def start(connection: Conn, wanted: Filter, *, who: str, reason: str, rate: float, to: str | None = None) -> Replay:
    """Make the plan: all dead letters that match now, `rate` a second; deliveries to the endpoint `to`, if that is given.

    Raises UserError for a wrong rate, no reason, and an endpoint that is not there or disabled.
    """
    _check_rate(rate)
    said = stated(reason, "the replay")
    with connection.transaction():
        parameters = {"who": storable(who), "reason": said, "filter": wanted.as_jsonb(), "rate": rate,
                      "to_endpoint": find_endpoint(connection, to)}  # fmt: skip
        row = one(connection, START, parameters)
        assert row is not None
        audit.record(connection, who=who, what="start_replay", target_type="replay", target_id=row[0],
                     filter=wanted.as_json(), rate=rate, total=row[1], reason=said, to=to)  # fmt: skip
        return _known(connection, row[0])


def find_endpoint(connection: Conn, name: str | None) -> UUID | None:
    """The endpoint of this name, if one is named. Raises UserError when there is none, or it is disabled."""
    if name is None:
        return None
    found = one(connection, ENDPOINT, {"name": storable(name)})
    if found is None:
        raise UserError(f"There is no endpoint {storable(name)}: see `endpoints list`.", name="no_endpoint")
    endpoint_id, is_disabled = found
    if is_disabled:
        raise UserError(f"The endpoint {name} is disabled: enable it first.", name="endpoint_is_disabled")
    return UUID(str(endpoint_id))


def endpoint_names(connection: Conn) -> list[str]:
    """The endpoints that deliveries can be sent to."""
    return [str(name) for (name,) in connection.execute(ENDPOINT_NAMES)]


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
            step = _step(connection, replay_id)
        for due_in in step.due_in:
            wake(due_in)
        if not step.has_moved or time.monotonic() > ends:
            with database.connection() as connection:
                return _known(connection, replay_id)


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


def ahead(rate: float) -> float:
    """How far a plan may run ahead of the clock, in seconds."""
    return min(max(AHEAD_JOBS / rate, AHEAD_SECONDS_AT_LEAST), AHEAD_SECONDS)


@dataclass(slots=True)
class _Step:
    """What one transaction does; `slot` is the due time of the next restart, in seconds from now."""

    plan: dict[str, Any]
    slot: float
    cursor: int
    counts: Counter[str] = field(default_factory=Counter)
    due_in: list[float] = field(default_factory=list)
    jobs: list[UUID] = field(default_factory=list)
    paused_types: set[str] = field(default_factory=set)
    conversations: set[UUID] = field(default_factory=set)  # whose other dead letters can join what was restarted


@dataclass(frozen=True, slots=True)
class _Stepped:
    has_moved: bool
    due_in: Sequence[float] = ()


def _step(connection: Conn, replay_id: UUID) -> _Stepped:
    """One step, in the caller's transaction. Not moved: far enough ahead, held back, in other hands, done or stopped."""
    connection.execute(BRIEFLY)
    with connection.cursor(row_factory=dict_row) as cursor:
        plan = cursor.execute(LOCK, {"id": replay_id}).fetchone()
    if plan is None:
        return _Stepped(has_moved=False)
    if plan["is_disabled"]:  # what would be sent there would only die once more; a person enables it and resumes
        connection.execute(STOP, {"id": replay_id, "who": BY_ITSELF})
        audit.record(connection, who=BY_ITSELF, what="stop_replay", target_type="replay", target_id=replay_id,
                     reason="the endpoint is disabled")  # fmt: skip
        return _Stepped(has_moved=False)
    room = min(STEP, math.floor((ahead(plan["rate"]) - plan["due_in"]) * plan["rate"]) + 1)
    if room < 1 or _is_held_back(connection, plan):
        return _Stepped(has_moved=False)
    looked = one(connection, LOOK_AT, {"cursor": plan["cursor_seq"], "window": WINDOW})
    assert looked is not None
    end, count = looked
    found: Sequence[Sequence[Any]] = ()
    if count:
        parameters = {"filter": Jsonb(plan["filter"]), "as_of": plan["created_at"], "cursor": plan["cursor_seq"],
                      "end": end, "limit": room + 1}  # fmt: skip
        found = connection.execute(NEXT, parameters).fetchall()
    step = _Step(plan, plan["due_in"], plan["cursor_seq"])
    took_all = _take(connection, step, found[:room]) and len(found) <= room
    if took_all and count:
        step.cursor = end
    _take_siblings(connection, step)
    moved = step.cursor > plan["cursor_seq"]
    if moved:
        _record(connection, step)
    if took_all and count < WINDOW:
        connection.execute(FINISH, {"id": replay_id})
        _audit_end(connection, replay_id, plan["who"])
        return _Stepped(has_moved=False, due_in=step.due_in)
    return _Stepped(moved, step.due_in)


def _is_held_back(connection: Conn, plan: dict[str, Any]) -> bool:
    limit = math.floor(BACKLOG_SECONDS * plan["rate"]) + 1
    row = one(connection, BACKLOG, {"id": plan["id"], "limit": limit + 1})
    return row is not None and row[0] > limit


def _take(connection: Conn, step: _Step, found: Sequence[Sequence[Any]]) -> bool:
    """Restart these in their order; False when it must stop before the last, because somebody holds what one of them needs."""
    for take, group in itertools.groupby(found, partial(_way, step)):
        try:
            take(connection, step, list(group))
        except HELD as held:
            telemetry.warning("replay_waits", replay_id=step.plan["id"], error=classify(held).text)
            return False
    return True


def _way(step: _Step, row: Sequence[Any]) -> Callable[[Conn, _Step, Sequence[Sequence[Any]]], None]:
    """How a dead letter is dealt with."""
    _id, _seq, conversation_id, may_have_left, job_type, is_paused = row
    if step.plan["to_endpoint"] is not None:
        return _leave_others if job_type != DELIVERY else _leave_out if is_paused else _take_elsewhere
    if may_have_left or is_paused:
        return _leave_out
    return _take_together if conversation_id is None else _take_one_by_one


def _leave_out(_: Conn, step: _Step, rows: Sequence[Sequence[Any]]) -> None:
    """Pass these by: they stay dead letters."""
    for _id, seq, _talk, may_have_left, job_type, _is_paused in rows:
        step.counts["kept" if may_have_left else "paused"] += 1
        if not may_have_left:
            step.paused_types.add(job_type)
        step.cursor = seq


def _leave_others(_: Conn, step: _Step, rows: Sequence[Sequence[Any]]) -> None:
    """These are no deliveries, so another endpoint is nothing to them."""
    step.counts["not_deliveries"] += len(rows)
    step.cursor = rows[-1][1]


def _take_elsewhere(connection: Conn, step: _Step, rows: Sequence[Sequence[Any]]) -> None:
    slots = _slots(step, rows)
    with connection.transaction():
        parameters = {"ids": list(slots), "due_in": list(slots.values()), "to_endpoint": step.plan["to_endpoint"],
                      "replay_id": step.plan["id"], "who": step.plan["who"], "reason": step.plan["reason"]}  # fmt: skip
        sent = [row[0] for row in connection.execute(SEND_ELSEWHERE, parameters)]
    _restarted(step, rows, slots, sent)


def _take_one_by_one(connection: Conn, step: _Step, rows: Sequence[Sequence[Any]]) -> None:
    for job_id, seq, conversation_id, *_ in rows:
        outcome = _restart(connection, step, job_id)
        if outcome == "restarted":
            step.due_in.append(step.slot)
            step.slot += 1 / step.plan["rate"]
        if outcome in ("restarted", "joined"):
            step.conversations.add(conversation_id)
        step.cursor = seq


def _take_together(connection: Conn, step: _Step, rows: Sequence[Sequence[Any]]) -> None:
    slots = _slots(step, rows)
    with connection.transaction():
        parameters = {"replay_id": step.plan["id"], "ids": list(slots), "due_in": list(slots.values())}
        restarted = [row[0] for row in connection.execute(RESTART_ALL, parameters)]
    _restarted(step, rows, slots, restarted)


def _slots(step: _Step, rows: Sequence[Sequence[Any]]) -> dict[UUID, float]:
    """When each of them is due, in seconds from now."""
    gap = 1 / step.plan["rate"]
    return {row[0]: step.slot + number * gap for number, row in enumerate(rows)}


def _restarted(step: _Step, rows: Sequence[Sequence[Any]], slots: dict[UUID, float], restarted: Sequence[UUID]) -> None:
    """Of these rows those in `restarted` run again; the others went another way meanwhile."""
    step.jobs += restarted
    step.due_in += [slots[job_id] for job_id in restarted]
    step.counts["restarted"] += len(restarted)
    step.slot += len(rows) / step.plan["rate"]
    step.cursor = rows[-1][1]


def _take_siblings(connection: Conn, step: _Step) -> None:
    if not step.conversations:
        return
    parameters = {"filter": Jsonb(step.plan["filter"]), "as_of": step.plan["created_at"], "cursor": step.cursor,
                  "conversations": list(step.conversations), "limit": SIBLINGS_AT_MOST}  # fmt: skip
    with contextlib.suppress(*HELD):  # their turn in the order comes
        for (job_id,) in connection.execute(SIBLINGS, parameters).fetchall():
            _restart(connection, step, job_id)


def _restart(connection: Conn, step: _Step, job_id: UUID) -> str:
    """In a savepoint: what the database refuses for this one must not stop the others."""
    who, replay_id = step.plan["who"], step.plan["id"]
    try:
        outcome: str = restart_row(connection, job_id, who=who, due_in=step.slot, replay_id=replay_id)
    except psycopg.errors.IntegrityError as refused:
        telemetry.error("not_replayed", replay_id=replay_id, job_id=job_id, error=classify(refused).text)
        outcome = "refused"
    if outcome in ("restarted", "joined"):
        step.jobs.append(job_id)
    step.counts[outcome] += 1
    return outcome


def _record(connection: Conn, step: _Step) -> None:
    parameters = {"id": step.plan["id"], "cursor": step.cursor, "due_in": step.slot, "restarted": step.counts["restarted"],
                  "joined": step.counts["joined"], "left_out": step.counts["kept"],
                  "left_paused": step.counts["paused"], "paused_types": list(step.paused_types),
                  "not_deliveries": step.counts["not_deliveries"]}  # fmt: skip
    connection.execute(MOVE, parameters)
    if step.jobs:
        audit.record(connection, who=step.plan["who"], what="replay_jobs", target_type="replay",
                     target_id=step.plan["id"], jobs=step.jobs)  # fmt: skip


def _audit_end(connection: Conn, replay_id: UUID, who: str) -> None:
    ended = _known(connection, replay_id)
    audit.record(connection, who=who, what="finish_replay", target_type="replay", target_id=replay_id,
                 restarted=ended.restarted, joined=ended.joined, left_out=ended.left_out,
                 left_paused=ended.left_paused, not_deliveries=ended.not_deliveries or None, skipped=ended.skipped)  # fmt: skip


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


def _known(connection: Conn, replay_id: UUID) -> Replay:
    found = show(connection, replay_id)
    if found is None:
        raise UserError(f"There is no replay {replay_id}.", name="no_such_replay")
    return found


def _select(connection: Conn, replay_id: UUID | None, limit: int, state: str | None = None) -> list[Replay]:
    with connection.cursor(row_factory=class_row(Replay)) as cursor:
        return cursor.execute(SHOW, {"id": replay_id, "limit": limit, "state": state}).fetchall()


def _check_rate(rate: float) -> None:
    if not RATE_AT_LEAST <= rate <= RATE_AT_MOST:  # also what is not a number
        raise UserError(
            f"A rate of {rate:g} is not possible: give restarts a second, from {RATE_AT_LEAST:g} to {RATE_AT_MOST:,.0f}.",
            name="replay_rate",
        )
