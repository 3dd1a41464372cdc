"""Restarting what died, row by row: the same row runs again, its history kept; or it joins the conversation's active job.

A restart releases the messages that the burial covered, unless the reply was drafted: a draft is sent as it is, and what may
have been sent is looked at, never sent blindly. Every restart is audited in its own transaction. Thousands, at a rate, are
a plan of their own: replays.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

import psycopg

from shared import audit
from shared.db.pool import Conn, one
from shared.queue.closing import LOCK_CONVERSATION, STATES, close_row

TRIES = 3

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
        next_run_at = now() + make_interval(secs => %(due_in)s), replay_id = %(replay_id)s, rerun = false,
        has_crashed = false, updated_at = now()
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
type Restarted = Literal["restarted", "joined", "kept", "not failed", "not found"]


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
