"""What a step of a replay does with each dead letter: restart it, let it join, send it elsewhere, or leave it.

Dead deliveries may go to another endpoint instead of their own: each then gets a delivery and a job of its own, due at its
slot, and its dead letter is closed. What is no delivery stays a dead letter.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from shared import telemetry
from shared.db.pool import Conn
from shared.errors import classify
from shared.queue.elsewhere import DELIVERY, SEND_ELSEWHERE
from shared.queue.replay import restart_row

SIBLINGS_AT_MOST = 100  # of the conversations of one step, that join at once; the cursor meets the others

# Somebody else has what a restart needs: it is tried again, a fraction of a second later.
HELD = (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)

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


@dataclass(frozen=True, slots=True)
class Plan:
    """A replay whose row a step has locked: all up to `cursor` is dealt with, and the next restart is due in `due_in` seconds."""

    id: UUID
    who: str
    reason: str
    filter: dict[str, Any]
    rate: float
    cursor: int
    created_at: datetime
    to_endpoint: UUID | None
    is_disabled: bool
    due_in: float


@dataclass(frozen=True, slots=True)
class Next:
    """A dead letter whose turn it is. `is_paused`: nobody would run it; `may_have_left`: part of its reply was perhaps sent."""

    id: UUID
    seq: int
    conversation_id: UUID | None
    may_have_left: bool
    type: str
    is_paused: bool


@dataclass(slots=True)
class Taken:
    """What one step has done; `slot` is the due time of the next restart, in seconds from now."""

    slot: float
    cursor: int
    counts: Counter[str] = field(default_factory=Counter)
    due_in: list[float] = field(default_factory=list)
    jobs: list[UUID] = field(default_factory=list)
    paused_types: set[str] = field(default_factory=set)
    conversations: set[UUID] = field(default_factory=set)  # whose other dead letters can join what was restarted


type Way = Callable[[Conn, Plan, Taken, Sequence[Next]], None]


def take(connection: Conn, plan: Plan, taken: Taken, found: Sequence[Next]) -> bool:
    """Deal with these in their order; False when it must stop before the last, because somebody holds what one of them needs."""
    for way, group in itertools.groupby(found, partial(_way, plan)):
        try:
            way(connection, plan, taken, list(group))
        except HELD as held:
            telemetry.warning("replay_waits", replay_id=plan.id, error=classify(held).text)
            return False
    return True


def take_siblings(connection: Conn, plan: Plan, taken: Taken) -> None:
    """Let the other dead letters of the conversations join what was restarted, however far behind the cursor they are."""
    if not taken.conversations:
        return
    parameters = {"filter": Jsonb(plan.filter), "as_of": plan.created_at, "cursor": taken.cursor,
                  "conversations": list(taken.conversations), "limit": SIBLINGS_AT_MOST}  # fmt: skip
    with contextlib.suppress(*HELD):  # their turn in the order comes
        for (job_id,) in connection.execute(SIBLINGS, parameters).fetchall():
            _restart(connection, plan, taken, job_id)


def _way(plan: Plan, dead: Next) -> Way:
    """How a dead letter is dealt with."""
    if plan.to_endpoint is not None:
        return _leave_others if dead.type != DELIVERY else _leave_out if dead.is_paused else _take_elsewhere
    if dead.may_have_left or dead.is_paused:
        return _leave_out
    return _take_together if dead.conversation_id is None else _take_one_by_one


def _leave_out(_connection: Conn, _plan: Plan, taken: Taken, rows: Sequence[Next]) -> None:
    """Pass these by: they stay dead letters."""
    for dead in rows:
        taken.counts["kept" if dead.may_have_left else "paused"] += 1
        if not dead.may_have_left:
            taken.paused_types.add(dead.type)
        taken.cursor = dead.seq


def _leave_others(_connection: Conn, _plan: Plan, taken: Taken, rows: Sequence[Next]) -> None:
    """These are no deliveries, so another endpoint is nothing to them."""
    taken.counts["not_deliveries"] += len(rows)
    taken.cursor = rows[-1].seq


def _take_elsewhere(connection: Conn, plan: Plan, taken: Taken, rows: Sequence[Next]) -> None:
    slots = _slots(plan, taken, rows)
    with connection.transaction():
        parameters = {"ids": list(slots), "due_in": list(slots.values()), "to_endpoint": plan.to_endpoint,
                      "replay_id": plan.id, "who": plan.who, "reason": plan.reason}  # fmt: skip
        sent = [row[0] for row in connection.execute(SEND_ELSEWHERE, parameters)]
    _restarted(plan, taken, rows, slots, sent)


def _take_together(connection: Conn, plan: Plan, taken: Taken, rows: Sequence[Next]) -> None:
    slots = _slots(plan, taken, rows)
    with connection.transaction():
        parameters = {"replay_id": plan.id, "ids": list(slots), "due_in": list(slots.values())}
        restarted = [row[0] for row in connection.execute(RESTART_ALL, parameters)]
    _restarted(plan, taken, rows, slots, restarted)


def _take_one_by_one(connection: Conn, plan: Plan, taken: Taken, rows: Sequence[Next]) -> None:
    for dead in rows:
        outcome = _restart(connection, plan, taken, dead.id)
        if outcome == "restarted":
            taken.due_in.append(taken.slot)
            taken.slot += 1 / plan.rate
        if outcome in ("restarted", "joined") and dead.conversation_id is not None:
            taken.conversations.add(dead.conversation_id)
        taken.cursor = dead.seq


def _slots(plan: Plan, taken: Taken, rows: Sequence[Next]) -> dict[UUID, float]:
    """When each of them is due, in seconds from now."""
    gap = 1 / plan.rate
    return {dead.id: taken.slot + number * gap for number, dead in enumerate(rows)}


def _restarted(
    plan: Plan, taken: Taken, rows: Sequence[Next], slots: dict[UUID, float], restarted: Sequence[UUID]
) -> None:
    """Of these rows those in `restarted` run again; the others went another way meanwhile."""
    taken.jobs += restarted
    taken.due_in += [slots[job_id] for job_id in restarted]
    taken.counts["restarted"] += len(restarted)
    taken.slot += len(rows) / plan.rate
    taken.cursor = rows[-1].seq


def _restart(connection: Conn, plan: Plan, taken: Taken, job_id: UUID) -> str:
    """In a savepoint: what the database refuses for this one must not stop the others."""
    try:
        outcome: str = restart_row(connection, job_id, who=plan.who, due_in=taken.slot, replay_id=plan.id)
    except psycopg.errors.IntegrityError as refused:
        telemetry.error("not_replayed", replay_id=plan.id, job_id=job_id, error=classify(refused).text)
        outcome = "refused"
    if outcome in ("restarted", "joined"):
        taken.jobs.append(job_id)
    taken.counts[outcome] += 1
    return outcome
