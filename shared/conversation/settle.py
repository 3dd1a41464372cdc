"""What a person does about a message that is held, or that never went out: look again, send it again, or let it be.

Nothing here sends. "Send again" looks first as well: it says what follows when Twilio does not have the message. Each is one
transaction with its line in the audit log, in the order of locks that everybody keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from psycopg.rows import class_row

from shared import audit
from shared.conversation import undelivered
from shared.db.pool import Conn, one
from shared.db.text import storable
from shared.errors import UserError
from shared.queue import replay
from shared.queue.closing import CLOSE_MESSAGES, REASON_LIMIT, close_row
from shared.queue.job import LOCK_CONVERSATION

WHERE_IT_IS = "SELECT conversation_id FROM messages WHERE id = %(id)s AND from_self"
READ = """
    SELECT m.id, m.conversation_id, m.reply_id, m.status, m.provider_sid IS NOT NULL AS is_accepted,
        m.status = 'held' AND m.send_started_at IS NOT NULL AS is_in_doubt, m.send_attempt, j.id AS job_id,
        c.opted_out_at IS NOT NULL AND m.purpose <> 'consent' AS is_opted_out,
        m.source <> 'admin' AND m.purpose NOT IN ('consent', 'person') AND c.mode = 'manual' AS is_taken_over,
        m.source <> 'admin' AND m.purpose NOT IN ('consent', 'person', 'apology') AND NOT EXISTS (
            SELECT FROM messages q JOIN messages f ON q.answered_by = f.reply_id WHERE f.id = coalesce(m.retry_of, m.id)
        ) AS is_answered,
        EXISTS (SELECT FROM messages r WHERE r.retry_of = coalesce(m.retry_of, m.id)
            AND r.status IN ('draft', 'sending', 'held', 'sent', 'delivered', 'read')) AS is_retried
    FROM messages m JOIN conversations c ON c.id = m.conversation_id
    LEFT JOIN ai_jobs j ON j.conversation_id = m.conversation_id AND j.status = 'failed'
        AND j.closed_at IS NULL AND (j.id = m.reply_id OR j.payload ->> 'message_id' = m.reply_id::text)
    WHERE m.id = %(id)s
"""
LOCK_DEAD = "SELECT FROM ai_jobs WHERE id = %(job_id)s AND status = 'failed' AND closed_at IS NULL FOR NO KEY UPDATE"
WHEN_ABSENT = """
    WITH told AS (
        UPDATE messages SET when_absent = %(when_absent)s
        WHERE reply_id = %(reply_id)s AND from_self AND status = 'held' AND send_started_at IS NOT NULL
        RETURNING id, send_attempt
    )
    INSERT INTO message_events (message_id, attempt, what, detail) SELECT id, send_attempt, 'released', %(what)s FROM told
"""
# The flag said that this job had died; others stay.
UNFLAG = """
    UPDATE conversations c SET needs_person_since = NULL, needs_person_reason = NULL
    FROM ai_jobs j WHERE j.id = %(job_id)s AND c.id = j.conversation_id AND c.needs_person_reason = j.error_class
"""


@dataclass(frozen=True, slots=True)
class _Message:
    id: UUID
    conversation_id: UUID
    reply_id: UUID
    status: str
    is_accepted: bool
    is_in_doubt: bool
    send_attempt: int
    job_id: UUID | None
    is_opted_out: bool
    is_taken_over: bool
    is_answered: bool
    is_retried: bool


def look_again(connection: Conn, message_id: UUID, *, who: str) -> None:
    """Ask Twilio once more about a held message; whatever it says, nothing is sent. Raises UserError when it is not held."""
    with connection.transaction():
        found = _locked(connection, message_id)
        if not found.is_in_doubt or found.job_id is None:
            raise UserError("This message is not held: there is nothing to look up.", name="not_held")
        _restart(connection, found, found.job_id, who=who, what="look_again", when_absent="hold")


def send_again(connection: Conn, message_id: UUID, *, who: str) -> None:
    """Send a message that never arrived, once Twilio has shown that it does not have it; the parts behind it follow.

    One that Twilio took and could not deliver is sent as a new message. Raises UserError when it went out, or is under way, and
    when it would not be sent: to who has opted out, or where a person answers or has answered.
    """
    with connection.transaction():
        found = _locked(connection, message_id)
        is_undelivered = found.status == "failed" and found.is_accepted and not found.is_retried
        is_unsent = not found.is_accepted and found.status in ("held", "failed") and found.job_id is not None
        if is_undelivered or is_unsent:
            _check_wanted(found)
        if is_undelivered:
            undelivered.send_anew(connection, found.id, who=who)
            audit.record(connection, who=who, what="send_again", target_type="conversation",
                         target_id=found.conversation_id, message=found.id)  # fmt: skip
            return
        if not is_unsent or found.job_id is None:
            raise UserError("This message has gone out, or is on its way: it is not sent again.", name="not_to_send")
        _restart(connection, found, found.job_id, who=who, what="send_again", when_absent="resend")


def close_without_sending(connection: Conn, message_id: UUID, *, who: str, reason: str = "") -> None:
    """Let a held or unsent message be, with the parts behind it: its job is closed, and nothing of it goes out any more.

    Should Twilio tell later that it has it after all, that is recorded. Raises UserError when it went out, or is under way.
    """
    with connection.transaction():
        found = _locked(connection, message_id)
        if found.is_accepted or found.status not in ("held", "failed") or found.job_id is None:
            raise UserError(
                "This message has gone out, or is on its way: there is nothing to close.", name="not_to_close"
            )
        connection.execute(UNFLAG, {"job_id": found.job_id})
        close_row(connection, found.job_id, who=who, reason="closed_without_sending", status="failed")
        connection.execute(CLOSE_MESSAGES, {"id": found.job_id})
        audit.record(connection, who=who, what="close_without_sending", target_type="conversation",
                     target_id=found.conversation_id, message=found.id, job=found.job_id,
                     reason=" ".join(storable(reason).split())[:REASON_LIMIT] or None)  # fmt: skip


def _check_wanted(found: _Message) -> None:
    """What the intent would refuse is refused here, where somebody reads why."""
    if found.is_opted_out:
        raise UserError("This employee has opted out: nothing may be sent until they send START.", name="opted_out")
    if found.is_taken_over:
        raise UserError(
            "A person has taken this conversation over: answer it yourself, or hand it back first.", name="taken_over"
        )
    if found.is_answered:
        raise UserError("What this message answers has been answered meanwhile.", name="answered_meanwhile")


def _restart(
    connection: Conn, found: _Message, job_id: UUID, *, who: str, what: str, when_absent: Literal["hold", "resend"]
) -> None:
    connection.execute(WHEN_ABSENT, {"reply_id": found.reply_id, "when_absent": when_absent, "what": what})
    became = replay.restart_row(connection, job_id, who=who, looks_again=True)
    if became != "restarted":
        raise UserError(
            "Another answer of this conversation is being made: try again when it has gone out.",
            name="answer_under_way",
        )
    audit.record(connection, who=who, what=what, target_type="conversation", target_id=found.conversation_id,
                 message=found.id, job=job_id)  # fmt: skip


def _locked(connection: Conn, message_id: UUID) -> _Message:
    """A message of ours with its dead letter, if it has one, read under the locks of conversation and job."""
    where = one(connection, WHERE_IT_IS, {"id": message_id})
    if where is None:
        raise UserError("There is no such message.", name="no_message")
    connection.execute(LOCK_CONVERSATION, {"conversation_id": where[0]})
    with connection.cursor(row_factory=class_row(_Message)) as cursor:
        found = cursor.execute(READ, {"id": message_id}).fetchone()
    assert found is not None, "a message is never deleted"
    if found.job_id is not None:
        connection.execute(LOCK_DEAD, {"job_id": found.job_id})
    return found
