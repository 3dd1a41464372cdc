"""What follows when Twilio has accepted a message and could not deliver it: people are told, and what passes is tried again.

The reply counts as given: its messages stay covered and its job is done. A new try is a message of its own with a
`send_message` of its own, so that what Twilio says about the first is never taken for the second.
"""

from __future__ import annotations

from uuid import UUID

from shared.conversation import attention, consent
from shared.conversation.codes import Kind, meaning
from shared.db.pool import Conn, one

WAITS = (60.0, 600.0)  # seconds before the first and the second new try

READ = """
    SELECT m.conversation_id, coalesce(m.retry_of, m.id) AS first, m.template_sid IS NOT NULL AS is_template,
        (SELECT count(*)::int FROM messages r WHERE r.retry_of = coalesce(m.retry_of, m.id)) AS retries
    FROM messages m WHERE m.id = %(id)s
"""
TRY_AGAIN = """
    WITH retry AS (
        INSERT INTO messages (id, conversation_id, from_self, source, purpose, body, status, reply_id, part, parts, citations,
            language, model, prompt_version, sources_hash, parameters, retry_of, template_sid)
        SELECT new.id, m.conversation_id, true, m.source, m.purpose, m.body, 'draft', new.id, 1, 1, m.citations,
            m.language, m.model, m.prompt_version, m.sources_hash, m.parameters, %(first)s,
            %(template_sid)s
        FROM messages m CROSS JOIN (SELECT gen_random_uuid() AS id) AS new
        WHERE m.id = %(first)s
        RETURNING id, conversation_id
    ), noted AS (
        INSERT INTO message_events (message_id, attempt, what, detail)
        SELECT %(id)s, send_attempt, 'retried', error_code FROM messages WHERE id = %(id)s
    )
    INSERT INTO ai_jobs (payload, conversation_id, next_run_at)
    SELECT jsonb_build_object('type', 'send_message', 'message_id', id), conversation_id, now() + make_interval(secs => %(wait)s)
    FROM retry
"""


def follow_up(connection: Conn, message_id: UUID, code: str | None, *, template_sid: str | None) -> None:
    """Flag the conversation, and enqueue another try if the code says that it may well arrive then.

    What failed because the 24 hours were over goes out in the template this time, if there is one.
    """
    row = one(connection, READ, {"id": message_id})
    assert row is not None, "whoever asks has just changed it"
    conversation_id, first, is_template, retries = row
    connection.execute(attention.FLAG, {"conversation_id": conversation_id, "reason": "undelivered"})
    said = meaning(code)
    if said.kind is Kind.OPTED_OUT:
        stop = consent.opt_out(conversation_id)
        connection.execute(stop.sql, stop.parameters)
    is_outside = said.kind is Kind.OUTSIDE_WINDOW and template_sid is not None and not is_template
    if retries < len(WAITS) and (said.is_passing or is_outside):
        key = {"first": first, "id": message_id, "wait": 0.0 if is_outside else WAITS[retries]}
        connection.execute(TRY_AGAIN, key | {"template_sid": template_sid if is_outside else None})


def send_anew(connection: Conn, message_id: UUID) -> None:
    """Enqueue another try because a person asks for it, in a transaction that has locked the conversation."""
    row = one(connection, READ, {"id": message_id})
    assert row is not None, "whoever asks has just read it"
    connection.execute(TRY_AGAIN, {"first": row[1], "id": message_id, "wait": 0.0, "template_sid": None})
