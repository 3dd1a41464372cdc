"""What people do to a conversation: take it over, hand it back, answer it themselves, and say that it needs nobody any more.

Each action is one transaction with its line in the audit log, and takes its locks in the order that everybody keeps:
conversation, job, messages. In the wrong state it raises UserError, and nothing has changed.
"""

from __future__ import annotations

from uuid import UUID

from shared import audit
from shared.conversation import held_back, inbound, outgoing, suggestions
from shared.db.pool import Conn
from shared.errors import UserError

SET_MODE = "UPDATE conversations SET mode = %(mode)s WHERE id = %(id)s"
# `seen_seq` null: all of them.
NO_ANSWER_DUE = """
    UPDATE messages SET answered_by = id
    WHERE conversation_id = %(id)s AND NOT from_self AND answered_by IS NULL
        AND (%(seen_seq)s::bigint IS NULL OR seq <= %(seen_seq)s)
"""
# These flags say that messages wait for a person; others say that something went wrong, and stay until somebody resolves it.
CLEAR_WAITING = """
    UPDATE conversations SET needs_person_since = NULL, needs_person_reason = NULL
    WHERE id = %(id)s AND needs_person_reason IN ('manual', 'overdue')
"""
CLEAR_ANY = "UPDATE conversations SET needs_person_since = NULL, needs_person_reason = NULL WHERE id = %(id)s"
# Up to what the person has seen: what is open, what a burial covered, and what the machine's answer has not answered for
# certain: unsent, in doubt, or not delivered. A new try of that one finds nothing left to answer.
COVER_SEEN = """
    UPDATE messages q SET answered_by = %(reply_id)s
    WHERE q.conversation_id = %(id)s AND NOT q.from_self AND q.seq <= %(seen_seq)s
        AND (q.answered_by IS NULL OR q.answered_by = ANY (%(dead)s) OR EXISTS (
            SELECT FROM messages r WHERE r.reply_id = q.answered_by AND r.source IN ('ai', 'system')
                AND r.status IN ('draft', 'sending', 'held', 'failed')))
"""
# Nobody can answer these on WhatsApp any more; left open, they would ask for a person again and again.
CLOSE_STALE = """
    UPDATE messages SET answered_by = id
    WHERE conversation_id = %(id)s AND NOT from_self AND answered_by IS NULL AND created_at < now() - interval '24 hours'
"""


def take_over(connection: Conn, conversation_id: UUID, *, who: str) -> None:
    """From now on a person answers: an answer of the machine that waits is held back, and new ones become suggestions."""
    with connection.transaction():
        conversation = outgoing.lock(connection, conversation_id)
        if conversation.mode == "manual":
            raise UserError("A person has taken this conversation over already.", name="already_manual")
        connection.execute(SET_MODE, {"id": conversation_id, "mode": "manual"})
        waiting = held_back.waiting(connection, conversation_id)
        lines = held_back.waiting_lines(connection, conversation_id)
        if waiting is not None:
            _withdraw(connection, conversation_id, waiting, who=who)
        for line in lines:
            held_back.withdraw(connection, line.job_id, line.message_id, who=who)
        held_back.flag_waiting(connection, conversation_id)
        audit.record(connection, who=who, what="take_over", target_type="conversation", target_id=conversation_id,
                     held_back=waiting and waiting[0])  # fmt: skip


def hand_back(
    connection: Conn, conversation_id: UUID, *, who: str, answer_waiting: bool, seen_seq: int | None = None
) -> None:
    """From now on the machine answers what comes in; what is open gets an answer only with `answer_waiting`.

    `seen_seq` is the newest message that the person has seen: later ones are answered in any case.
    """
    with connection.transaction():
        conversation = outgoing.lock(connection, conversation_id)
        if conversation.mode == "auto":
            raise UserError("This conversation is answered automatically already.", name="already_auto")
        connection.execute(SET_MODE, {"id": conversation_id, "mode": "auto"})
        settled = 0
        if not answer_waiting:
            settled = connection.execute(NO_ANSWER_DUE, {"id": conversation_id, "seen_seq": seen_seq}).rowcount
        job_id = None if conversation.is_opted_out else inbound.join(connection, conversation_id)
        suggestions.put_aside(connection, conversation_id, who=who, only_answered=False)
        connection.execute(CLEAR_WAITING, {"id": conversation_id})
        audit.record(connection, who=who, what="hand_back", target_type="conversation", target_id=conversation_id,
                     settled=settled, job=job_id)  # fmt: skip


def send_own(connection: Conn, conversation_id: UUID, text: str, *, who: str, seen_seq: int) -> UUID:
    """Send a person's own answer; returns the message's id. `seen_seq` is the newest message that the person has seen.

    It takes the place of what the machine would have said to the same messages, and closes the dead letters that it answers.
    Raises UserError when the employee has opted out or last wrote more than 24 hours ago, or the text is empty or too long.
    """
    with connection.transaction():
        conversation = outgoing.lock(connection, conversation_id)
        body = outgoing.sendable(text)
        outgoing.check_reachable(conversation)
        waiting = held_back.waiting(connection, conversation_id)
        lines = held_back.waiting_lines(connection, conversation_id)
        dead = outgoing.unanswered_dead(connection, conversation)
        message_id = outgoing.post(connection, conversation, body, purpose="message")
        covered = connection.execute(
            COVER_SEEN, {"id": conversation_id, "reply_id": message_id, "seen_seq": seen_seq, "dead": dead}
        ).rowcount
        if waiting is not None and outgoing.covering_nothing(connection, waiting[:1]):
            _withdraw(connection, conversation_id, waiting, who=who)
        closed = outgoing.close_answered(connection, dead, who=who)
        outgoing.withdraw_tries(connection, conversation, who=who)
        needless = outgoing.covering_nothing(connection, [line.message_id for line in lines])
        for line in lines:  # an apology covers nothing: it says that a dead letter's question was passed on
            if line.message_id in needless and (not line.is_apology or len(closed) == len(dead)):
                held_back.withdraw(connection, line.job_id, line.message_id, who=who)
        suggestions.put_aside(connection, conversation_id, who=who, only_answered=True)
        outgoing.clear_flag(connection, conversation)
        audit.record(connection, who=who, what="send_own", target_type="conversation", target_id=conversation_id,
                     message=message_id, covers=covered, closed=closed or None)  # fmt: skip
        return message_id


def resolve(connection: Conn, conversation_id: UUID, *, who: str) -> None:
    """Say that nobody needs to look at the conversation any more."""
    with connection.transaction():
        conversation = outgoing.lock(connection, conversation_id)
        if not conversation.needs_person:
            raise UserError("This conversation does not ask for a person.", name="nothing_to_resolve")
        connection.execute(CLEAR_ANY, {"id": conversation_id})
        connection.execute(CLOSE_STALE, {"id": conversation_id})
        audit.record(connection, who=who, what="resolve", target_type="conversation", target_id=conversation_id)


def _withdraw(connection: Conn, conversation_id: UUID, waiting: tuple[UUID, bool], *, who: str) -> None:
    """Close a waiting autoreply with its draft; messages that have joined it since get a job of their own."""
    job_id, is_joined = waiting
    held_back.withdraw(connection, job_id, job_id, who=who)
    if is_joined:
        inbound.join(connection, conversation_id)
