"""Restarting what died: the same row runs again, its history kept; or it joins the conversation's active job.

A restart releases the messages that the burial covered, unless the reply was drafted: a draft is sent as it is, and what may
have been sent is looked at, never sent blindly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from shared.db.pool import Conn, one

LOCK_CONVERSATION = """
    SELECT FROM conversations WHERE id = (SELECT conversation_id FROM ai_jobs WHERE id = %(id)s) FOR NO KEY UPDATE
"""
FAILED_JOB = (
    "SELECT type, conversation_id FROM ai_jobs WHERE id = %(id)s AND status = 'failed' AND closed_at IS NULL FOR UPDATE"
)
EXISTS = "SELECT status FROM ai_jobs WHERE id = %(id)s"
REPLY_STATES = "SELECT array_agg(status) FROM messages WHERE reply_id = %(id)s"
ACTIVE_SIBLING = """
    SELECT id FROM ai_jobs
    WHERE conversation_id = %(conversation_id)s AND type = 'autoreply' AND status IN ('pending', 'processing') FOR UPDATE
"""
RELEASE = "UPDATE messages SET answered_by = NULL WHERE answered_by = %(id)s AND NOT from_self"
RERUN_SIBLING = "UPDATE ai_jobs SET rerun = true, updated_at = now() WHERE id = %(sibling)s"
CLOSE_JOINED = """
    UPDATE ai_jobs SET closed_at = now(), closed_by = %(who)s, closed_reason = 'joined', updated_at = now()
    WHERE id = %(id)s AND status = 'failed' AND closed_at IS NULL
"""
RESTART = """
    UPDATE ai_jobs SET status = 'pending', attempts = 0, claims = 0, run = run + 1, run_started_at = now(),
        next_run_at = now(), rerun = false, updated_at = now()
    WHERE id = %(id)s AND status = 'failed' AND closed_at IS NULL
"""

type Restarted = Literal["restarted", "joined", "kept", "not failed", "not found"]


def restart(connection: Conn, job_ids: Sequence[UUID], *, who: str) -> dict[UUID, Restarted]:
    """Restart failed jobs, row by row; what became of each.

    "joined": the conversation's active job takes its messages along. "kept": part of its reply may have been sent while
    another job is active, so it stays where it is. "not failed": it is running, waiting, done or closed.
    """
    return {job_id: _restart(connection, job_id, who) for job_id in job_ids}


def _restart(connection: Conn, job_id: UUID, who: str) -> Restarted:
    with connection.transaction():
        key = {"id": job_id, "who": who}
        connection.execute(LOCK_CONVERSATION, key)
        job = one(connection, FAILED_JOB, key)
        if job is None:
            return "not failed" if one(connection, EXISTS, key) else "not found"
        if job[0] != "autoreply":
            connection.execute(RESTART, key)
            return "restarted"
        states = one(connection, REPLY_STATES, key)
        drafted = set(states[0] or ()) if states else set()
        sibling = one(connection, ACTIVE_SIBLING, {"conversation_id": job[1]})
        if sibling is not None and drafted & {"sending", "held", "sent", "delivered", "read"}:
            return "kept"
        if sibling is not None or not drafted:
            connection.execute(RELEASE, key)
        if sibling is not None:
            connection.execute(RERUN_SIBLING, {"sibling": sibling[0]})
            connection.execute(CLOSE_JOINED, key)
            return "joined"
        connection.execute(RESTART, key)
        return "restarted"
