"""Restarting what died, row by row: the same row runs again, its history kept; or it joins the conversation's active job.

A restart releases the messages that the burial covered, unless the reply was drafted: a draft is sent as it is, and what may
have been sent is looked at, never sent blindly. Every restart is audited in its own transaction. Thousands, at a rate, are
a plan of their own: replays.py.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import psycopg

from shared import audit
from shared.db.pool import Conn, one
from shared.errors import UserError
from shared.queue.closing import LOCK_CONVERSATION, STATES, close_row
from shared.queue.closing import cancel as cancel
from shared.queue.closing import close as close

TRIES = 3
RESTART_AT_MOST = 1000  # in one call: a person waits for it
BATCH = 50  # restarted in one transaction: its locks keep messages of so many conversations waiting

FAILED_JOB = (
    "SELECT type, conversation_id FROM ai_jobs WHERE id = %(id)s AND status = 'failed' AND closed_at IS NULL FOR UPDATE"
)
EXISTS = "SELECT FROM ai_jobs WHERE id = %(id)s"
ACTIVE_SIBLING = """
    SELECT id FROM ai_jobs
    WHERE conversation_id = %(conversation_id)s AND type = 'autoreply' AND status IN ('pending', 'processing') FOR UPDATE
"""
RELEASE = "UPDATE messages SET answered_by = NULL WHERE answered_by = %(id)s AND NOT from_self"
# What was drafted and never left is not sent any more when its messages are answered by another job.
DROP_DRAFT = """
    UPDATE messages SET status = 'failed', held_reason = 'joined'
    WHERE reply_id = %(id)s AND from_self AND status = 'held' AND send_started_at IS NULL
"""
RERUN_SIBLING = "UPDATE ai_jobs SET rerun = true, updated_at = now() WHERE id = %(sibling)s"
RESTART = """
    UPDATE ai_jobs SET status = 'pending', attempts = 0, claims = 0, run = run + 1, run_started_at = now(),
        next_run_at = now() + make_interval(secs => %(due_in)s), replay_id = %(replay_id)s, rerun = false, updated_at = now()
    WHERE id = %(id)s AND status = 'failed' AND closed_at IS NULL
"""
# The person was asked because this job died; should it die again, its burial asks again.
UNFLAG = """
    UPDATE conversations c SET needs_person_since = NULL, needs_person_reason = NULL
    FROM ai_jobs j WHERE j.id = %(id)s AND c.id = j.conversation_id AND c.needs_person_reason = j.error_class
"""
# An apology that could not be sent says nothing true any more when the answer itself is tried again.
CLOSE_APOLOGY = """
    UPDATE ai_jobs a SET closed_at = now(), closed_by = %(who)s, closed_reason = 'restarted', updated_at = now()
    FROM ai_jobs j WHERE j.id = %(id)s AND a.conversation_id = j.conversation_id AND a.type = 'send_message'
        AND a.status = 'failed' AND a.closed_at IS NULL AND EXISTS (
            SELECT FROM messages m WHERE m.id::text = a.payload ->> 'message_id' AND m.purpose = 'apology'
                AND m.status = 'failed')
"""
# The oldest first: of several in one conversation it is the one that runs, and the others join it.
MATCHING = """
    SELECT j.id, EXISTS (
            SELECT FROM messages m
            WHERE m.reply_id = CASE j.type WHEN 'send_message' THEN (j.payload ->> 'message_id')::uuid ELSE j.id END
                AND m.status IN ('sending', 'held') AND m.send_started_at IS NOT NULL)
    FROM ai_jobs j LEFT JOIN conversations c ON c.id = j.conversation_id
    WHERE j.status = 'failed' AND j.closed_at IS NULL
        AND (%(type)s::text IS NULL OR j.type = %(type)s)
        AND (%(phone)s::text IS NULL OR c.address = %(phone)s)
        AND (%(error_class)s::text IS NULL OR j.error_class = %(error_class)s)
        AND (%(since)s::timestamptz IS NULL OR j.updated_at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR j.updated_at < %(until)s)
    ORDER BY j.seq
"""

type Restarted = Literal["restarted", "joined", "kept", "not failed", "not found"]


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the dead letters that matched.

    `left_out` may have arrived, or are being sent: each is for a person to look at. `skipped` were restarted or closed by
    somebody else meanwhile. `more` are left for another call.
    """

    restarted: int = 0
    joined: int = 0
    left_out: int = 0
    skipped: int = 0
    more: int = 0


def restart(connection: Conn, job_ids: Sequence[UUID], *, who: str) -> dict[UUID, Restarted]:
    """Restart failed jobs, row by row; what became of each.

    "joined": the conversation's active job takes its messages along. "kept": part of its reply may have been sent while
    another job is active, so it stays where it is. "not failed": it is running, waiting, done or closed.
    """
    became: dict[UUID, Restarted] = {}
    for job_id in job_ids:
        with connection.transaction():
            became[job_id] = restart_row(connection, job_id, who=who, looks_again=True)
            if became[job_id] in ("restarted", "joined"):
                audit.record(connection, who=who, what="restart_job", target_type="job", target_id=job_id,
                             became=became[job_id])  # fmt: skip
    return became


def restart_matching(
    connection: Conn,
    *,
    who: str,
    state: str | None = "failed",
    job_type: str | None = None,
    phone: str | None = None,
    error_class: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    at_most: int = RESTART_AT_MOST,
) -> Counts:
    """Restart the dead letters that match every filter that is given, `at_most` in a call; `since` ≤ when it died < `until`.

    Of a conversation the oldest runs and the others join it. What may have arrived is left out. Give it a connection that
    is in no transaction: it commits every 50 jobs, with a line in the audit log. Raises UserError for another state.
    """
    if state not in (None, "failed"):
        raise UserError("Only jobs that have failed can be restarted.", name="only_failed")
    filters = {"type": job_type, "phone": phone, "error_class": error_class, "since": since, "until": until}
    found = connection.execute(MATCHING, filters).fetchall()
    wanted = [job_id for job_id, may_have_left in found if not may_have_left]
    counts: Counter[str] = Counter()
    for batch in itertools.batched(wanted[:at_most], BATCH, strict=False):
        with connection.transaction():
            became = {job_id: _restart_or_skip(connection, job_id, who) for job_id in batch}
            done = [job_id for job_id, what in became.items() if what in ("restarted", "joined")]
            if done:
                audit.record(connection, who=who, what="restart_jobs", target_type="job", jobs=done, filter=filters)
        counts.update(became.values())
    return Counts(
        restarted=counts["restarted"],
        joined=counts["joined"],
        left_out=len(found) - len(wanted) + counts["kept"],
        skipped=counts["not failed"] + counts["not found"],
        more=max(len(wanted) - at_most, 0),
    )


def _restart_or_skip(connection: Conn, job_id: UUID, who: str) -> Restarted:
    """One of many: what the database refuses for this one must not stop the others."""
    try:
        return restart_row(connection, job_id, who=who)
    except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
        return "not failed"


def restart_row(
    connection: Conn,
    job_id: UUID,
    *,
    who: str,
    looks_again: bool = False,
    due_in: float = 0.0,
    replay_id: UUID | None = None,
) -> Restarted:
    """Restart one job in a savepoint of the caller's transaction, due in so many seconds, as part of a replay or by hand.

    `looks_again`: also one whose message may have been sent; it will be looked at, not sent.
    """
    run = {"id": job_id, "due_in": due_in, "replay_id": replay_id}
    for tries_left in reversed(range(TRIES)):
        try:
            with connection.transaction():
                return _restart_locked(connection, run, who, looks_again=looks_again)
        except psycopg.errors.UniqueViolation:
            # The active job finished and made its follow-up while we waited for its row: that one is there to be joined now.
            if not tries_left:
                raise
    raise AssertionError("unreachable")


def _restart_locked(connection: Conn, run: dict[str, Any], who: str, *, looks_again: bool) -> Restarted:
    job_id: UUID = run["id"]
    key = {"id": job_id}
    connection.execute(LOCK_CONVERSATION, key)
    job = one(connection, FAILED_JOB, key)
    if job is None:
        return "not failed" if one(connection, EXISTS, key) is not None else "not found"
    states = one(connection, STATES, key)
    drafted = set(states[0]) if states else set()
    if drafted & {"sending", "held"} and not looks_again:
        return "kept"
    if job[0] != "autoreply":
        connection.execute(UNFLAG, key)
        connection.execute(RESTART, run)
        return "restarted"
    sibling = one(connection, ACTIVE_SIBLING, {"conversation_id": job[1]})
    if sibling is not None and drafted & {"sending", "held", "sent", "delivered", "read"}:
        return "kept"
    connection.execute(UNFLAG, key)
    connection.execute(CLOSE_APOLOGY, {**key, "who": who})
    if sibling is not None or not drafted:
        connection.execute(RELEASE, key)
    if sibling is not None:
        connection.execute(DROP_DRAFT, key)
        connection.execute(RERUN_SIBLING, {"sibling": sibling[0]})
        close_row(connection, job_id, who=who, reason="joined", status="failed")
        return "joined"
    connection.execute(RESTART, run)
    return "restarted"
