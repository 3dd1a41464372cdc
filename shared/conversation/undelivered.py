"""What follows when Twilio has accepted a message and could not deliver it: people are told, and what passes is tried again.

The reply counts as given: its messages stay covered and its job is done. A new try is a message of its own with a
`send_message` of its own, so that what Twilio says about the first is never taken for the second.
"""

from __future__ import annotations

from uuid import UUID

from shared.conversation import attention, consent
from shared.conversation.codes import Kind, meaning
from shared.db.pool import Conn, one
from shared.queue.closing import close_row

WAITS = (60.0, 600.0)  # seconds before the first and the second new try
EARLIER_PART_WAIT = 10.0  # in which the callback of the part before it may come, so that the new tries keep their order

# No new try of a confirmation (it passes the opt-out, and another word may have come since), of what a person has closed, nor
# of what Twilio has twice: the other one may have arrived.
READ = """
    SELECT m.conversation_id, f.id AS first, f.part, m.template_sid IS NOT NULL AS is_template,
        (SELECT count(*)::int FROM messages r WHERE r.retry_of = f.id) AS retries,
        m.purpose <> 'consent' AND m.second_sid IS NULL AND NOT EXISTS (
            SELECT FROM message_events e
            WHERE e.message_id = m.id AND e.what = 'closed' AND e.attempt = m.send_attempt) AS may_retry
    FROM messages m JOIN messages f ON f.id = coalesce(m.retry_of, m.id) WHERE m.id = %(id)s
"""
# A template carried the parts behind it as well: they come along, each as the new try of its own, unless that is under way.
TRY_AGAIN = """
    WITH reply AS MATERIALIZED (
        SELECT gen_random_uuid() AS id
    ), new AS MATERIALIZED (
        SELECT p.id AS first, CASE p.id WHEN f.id THEN reply.id ELSE gen_random_uuid() END AS id, reply.id AS reply_id,
            row_number() OVER (ORDER BY p.part) AS part, count(*) OVER () AS parts
        FROM reply CROSS JOIN messages f
            JOIN messages p ON p.id = f.id OR p.reply_id = f.reply_id AND p.part > f.part AND p.held_reason = 'in_template'
                AND NOT EXISTS (
                    SELECT FROM messages t
                    WHERE t.retry_of = p.id AND (t.provider_sid IS NOT NULL OR t.status IN ('draft', 'sending')
                        OR t.status = 'held' AND t.send_started_at IS NOT NULL))
        WHERE f.id = %(first)s
    ), retry AS (
        INSERT INTO messages (id, conversation_id, from_self, source, purpose, body, status, reply_id, part, parts, citations,
            language, model, prompt_version, sources_hash, parameters, retry_of, template_sid)
        SELECT new.id, m.conversation_id, true, m.source, m.purpose, m.body, 'draft', new.reply_id, new.part, new.parts,
            m.citations, m.language, m.model, m.prompt_version, m.sources_hash, m.parameters, m.id, %(template_sid)s
        FROM messages m JOIN new ON new.first = m.id
        ORDER BY new.part
        RETURNING id, reply_id, conversation_id
    ), noted AS (
        INSERT INTO message_events (message_id, attempt, what, detail)
        SELECT %(id)s, send_attempt, 'retried', error_code FROM messages WHERE id = %(id)s
    )
    INSERT INTO ai_jobs (payload, conversation_id, next_run_at)
    SELECT jsonb_build_object('type', 'send_message', 'message_id', id), conversation_id, now() + make_interval(secs => %(wait)s)
    FROM retry WHERE id = reply_id
"""
# What waits for a restart would say the same once more.
DEAD_TRIES = """
    SELECT j.id FROM ai_jobs j
    WHERE j.conversation_id = %(conversation_id)s AND j.type = 'send_message' AND j.status = 'failed' AND j.closed_at IS NULL
        AND j.payload ->> 'message_id' IN (SELECT r.reply_id::text FROM messages r WHERE r.retry_of = %(first)s)
    ORDER BY j.seq FOR NO KEY UPDATE
"""


def follow_up(connection: Conn, message_id: UUID, code: str | None, *, template_sid: str | None) -> None:
    """Flag the conversation, and enqueue another try if the code says that it may well arrive then.

    What failed because the 24 hours were over goes out in the template this time, if there is one.
    """
    row = one(connection, READ, {"id": message_id})
    assert row is not None, "whoever asks has just changed it"
    conversation_id, first, part, is_template, retries, may_retry = row
    connection.execute(attention.FLAG, {"conversation_id": conversation_id, "reason": "undelivered"})
    said = meaning(code)
    if said.kind is Kind.OPTED_OUT:
        stop = consent.opt_out(conversation_id)
        connection.execute(stop.sql, stop.parameters)
    is_outside = said.kind is Kind.OUTSIDE_WINDOW and template_sid is not None and not is_template
    if may_retry and retries < len(WAITS) and (said.is_passing or is_outside):
        wait = WAITS[retries] if not is_outside else EARLIER_PART_WAIT if part > 1 else 0.0
        key = {"first": first, "id": message_id, "wait": wait}
        connection.execute(TRY_AGAIN, key | {"template_sid": template_sid if is_outside else None})


def send_anew(connection: Conn, message_id: UUID, *, who: str) -> None:
    """Enqueue another try because a person asks for it, in a transaction that has locked the conversation.

    Earlier tries that died are closed.
    """
    row = one(connection, READ, {"id": message_id})
    assert row is not None, "whoever asks has just read it"
    conversation_id, first = row[:2]
    key = {"conversation_id": conversation_id, "first": first}
    for (job_id,) in connection.execute(DEAD_TRIES, key).fetchall():
        close_row(connection, job_id, who=who, reason="restarted", status="failed")
    connection.execute(TRY_AGAIN, {"first": first, "id": message_id, "wait": 0.0, "template_sid": None})
