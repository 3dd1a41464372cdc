"""Putting jobs aside: a waiting one is cancelled, a dead letter is closed with a reason. The row stays for who asks later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from shared import audit
from shared.db.pool import Conn, one
from shared.db.text import storable
from shared.errors import UserError

REASON_LIMIT = 500

LOCK_CONVERSATION = """
    SELECT FROM conversations WHERE id = (SELECT conversation_id FROM ai_jobs WHERE id = %(id)s) FOR NO KEY UPDATE
"""
PENDING_JOB = "SELECT type FROM ai_jobs WHERE id = %(id)s AND status = 'pending' FOR NO KEY UPDATE"
DEAD_LETTER = "SELECT type FROM ai_jobs WHERE id = %(id)s AND status = 'failed' AND closed_at IS NULL FOR NO KEY UPDATE"
EXISTS = "SELECT FROM ai_jobs WHERE id = %(id)s"
CLOSE = """
    UPDATE ai_jobs SET status = 'failed', closed_at = now(), closed_by = %(who)s, closed_reason = %(reason)s,
        updated_at = now()
    WHERE id = %(id)s AND status = %(status)s AND closed_at IS NULL
"""
# The messages of a job's reply; what a send_message sends is a reply of its own. One that is held and surely never left is as
# good as a draft.
STATES = """
    SELECT coalesce(array_agg(CASE WHEN m.status = 'held' AND m.send_started_at IS NULL THEN 'draft' ELSE m.status END), '{}')
    FROM messages m JOIN ai_jobs j ON j.id = %(id)s
    WHERE m.from_self AND m.reply_id = CASE j.type WHEN 'send_message' THEN uuid_or_null(j.payload ->> 'message_id') ELSE j.id END
"""
CANCEL_MESSAGES = """
    UPDATE messages m SET status = 'failed', held_reason = 'cancelled'
    FROM ai_jobs j
    WHERE j.id = %(id)s AND m.from_self AND m.provider_sid IS NULL
        AND (m.status IN ('draft', 'failed') OR m.status = 'held' AND m.send_started_at IS NULL)
        AND m.reply_id = CASE j.type WHEN 'send_message' THEN uuid_or_null(j.payload ->> 'message_id') ELSE j.id END
"""
# A dead letter that is closed takes along what never went out, and what nobody can tell about.
CLOSE_MESSAGES = """
    WITH closed AS (
        UPDATE messages m SET status = 'failed', held_reason = 'closed', when_absent = NULL
        FROM ai_jobs j
        WHERE j.id = %(id)s AND m.from_self AND m.provider_sid IS NULL AND m.status IN ('held', 'draft', 'failed')
            AND m.held_reason IS DISTINCT FROM 'in_template'
            AND m.reply_id = CASE j.type WHEN 'send_message' THEN uuid_or_null(j.payload ->> 'message_id') ELSE j.id END
        RETURNING m.id, m.send_attempt
    )
    INSERT INTO message_events (message_id, attempt, what) SELECT id, send_attempt, 'closed' FROM closed
"""
# Nothing is held any more that a person was asked to look at; other reasons to ask for one stay.
UNFLAG_HELD = """
    UPDATE conversations c SET needs_person_since = NULL, needs_person_reason = NULL
    FROM ai_jobs j
    WHERE j.id = %(id)s AND c.id = j.conversation_id AND c.needs_person_reason = 'held'
        AND NOT EXISTS (SELECT FROM messages m WHERE m.conversation_id = c.id AND m.status = 'held')
"""
# What an autoreply without a draft would have answered is covered by it; a person's conversation stays open for that person.
COVER_CANCELLED = """
    UPDATE messages m SET answered_by = j.id
    FROM ai_jobs j JOIN conversations c ON c.id = j.conversation_id
    WHERE j.id = %(id)s AND c.mode = 'auto' AND m.conversation_id = c.id AND NOT m.from_self AND m.answered_by IS NULL
"""
# What has joined since the draft was made was never part of it.
FOLLOW_UP = """
    INSERT INTO ai_jobs (payload, conversation_id)
    SELECT payload, conversation_id FROM ai_jobs WHERE id = %(id)s AND rerun
"""
CANCEL_DOCUMENT = """
    UPDATE documents d SET state = 'failed', reason = 'cancelled', updated_at = now()
    FROM ai_jobs j
    WHERE j.id = %(id)s AND j.payload ->> 'record' = 'document' AND d.id = uuid_or_null(j.payload ->> 'id')
        AND d.state = 'waiting' AND NOT EXISTS (
            SELECT FROM ai_jobs o WHERE o.type = 'embed_record' AND o.status IN ('pending', 'processing')
                AND o.payload ->> 'id' = j.payload ->> 'id')
"""
CANCEL_IMPORT = """
    UPDATE imports i SET state = 'failed', reason = 'cancelled', ended_at = now(), content = NULL
    FROM ai_jobs j
    WHERE j.id = %(id)s AND i.id = uuid_or_null(j.payload ->> 'import_id') AND i.state IN ('waiting', 'running')
"""
CLOSE_DELIVERY = """
    UPDATE webhook_deliveries d SET state = 'closed'
    FROM ai_jobs j
    WHERE j.id = %(id)s AND d.id = uuid_or_null(j.payload ->> 'delivery_id') AND d.state IN ('waiting', 'dead')
"""
# The file was kept for a restart; now there will be none.
FORGET_IMPORT = """
    UPDATE imports i SET content = NULL, state = 'failed', reason = coalesce(reason, 'closed'),
        ended_at = coalesce(ended_at, now())
    FROM ai_jobs j
    WHERE j.id = %(id)s AND i.id = uuid_or_null(j.payload ->> 'import_id') AND i.state <> 'done'
"""

type Cancelled = Literal["cancelled", "kept", "not pending", "not found"]
type Closed = Literal["closed", "not failed", "not found"]


def cancel(connection: Conn, job_ids: Sequence[UUID], *, who: str) -> dict[UUID, Cancelled]:
    """Cancel waiting jobs, each in a transaction of its own; what became of each.

    Nothing of a cancelled job goes out, and what it would have answered stays unanswered until a person does. "kept": its
    message may have been sent, or was, so there is nothing to cancel. "not pending": it runs, is done, or has failed.
    """
    return {job_id: _cancel(connection, job_id, who) for job_id in job_ids}


def close(connection: Conn, job_ids: Sequence[UUID], *, who: str, reason: str) -> dict[UUID, Closed]:
    """Close dead letters for good, each in a transaction of its own; what became of each.

    Raises UserError when no reason is given, or one of more than 500 characters.
    """
    said = stated(reason, "closing")
    return {job_id: _close(connection, job_id, who, said) for job_id in job_ids}


def stated(reason: str, what: str) -> str:
    """The reason that a person gave for `what`, on one line. Raises UserError when there is none, or a very long one."""
    said = " ".join(storable(reason).split())
    if not said:
        raise UserError(f"Give a reason for {what}: whoever looks later has nothing else to go by.", name="no_reason")
    if len(said) > REASON_LIMIT:
        raise UserError(f"The reason is longer than {REASON_LIMIT} characters.", name="reason_too_long")
    return said


def close_row(connection: Conn, job_id: UUID, *, who: str, reason: str, status: Literal["pending", "failed"]) -> bool:
    """Close a job that is in this state, in the caller's transaction, which has locked its conversation and the job."""
    key = {"id": job_id, "who": storable(who), "reason": reason, "status": status}
    return connection.execute(CLOSE, key).rowcount > 0


FLAG_CANCELLED = """
    UPDATE conversations SET needs_person_since = coalesce(needs_person_since, now()), needs_person_reason = 'cancelled'
    WHERE id = (SELECT conversation_id FROM ai_jobs WHERE id = %(id)s)
"""


def _cancel(connection: Conn, job_id: UUID, who: str) -> Cancelled:
    key = {"id": job_id}
    with connection.transaction():
        connection.execute(LOCK_CONVERSATION, key)
        job = one(connection, PENDING_JOB, key)
        if job is None:
            return "not pending" if one(connection, EXISTS, key) is not None else "not found"
        found = one(connection, STATES, key)
        states = set(found[0]) if found else set()
        if states - {"draft", "failed"}:
            return "kept"
        connection.execute(CANCEL_MESSAGES, key)
        if job[0] == "autoreply":
            if not states:
                connection.execute(COVER_CANCELLED, key)
            connection.execute(FLAG_CANCELLED, key)
        close_row(connection, job_id, who=who, reason="cancelled", status="pending")
        match job[0]:
            case "autoreply" if states:
                connection.execute(FOLLOW_UP, key)
            case "embed_record":
                connection.execute(CANCEL_DOCUMENT, key)
            case "import_people":
                connection.execute(CANCEL_IMPORT, key)
            case "deliver_event":
                connection.execute(CLOSE_DELIVERY, key)
        audit.record(connection, who=who, what="cancel_job", target_type="job", target_id=job_id, type=job[0])
        return "cancelled"


def _close(connection: Conn, job_id: UUID, who: str, reason: str) -> Closed:
    key = {"id": job_id}
    with connection.transaction():
        connection.execute(LOCK_CONVERSATION, key)
        job = one(connection, DEAD_LETTER, key)
        if job is None:
            return "not failed" if one(connection, EXISTS, key) is not None else "not found"
        close_row(connection, job_id, who=who, reason=reason, status="failed")
        match job[0]:
            case "autoreply" | "send_message":
                connection.execute(CLOSE_MESSAGES, key)
                connection.execute(UNFLAG_HELD, key)
            case "import_people":
                connection.execute(FORGET_IMPORT, key)
            case "deliver_event":
                connection.execute(CLOSE_DELIVERY, key)
        audit.record(connection, who=who, what="close_job", target_type="job", target_id=job_id, type=job[0],
                     reason=reason)  # fmt: skip
        return "closed"
