"""A reply without the saga: the writes of jobs that race or are driven at random, one message a job."""

from __future__ import annotations

COVER = "UPDATE messages SET answered_by = %(id)s WHERE id = ANY (%(ids)s) AND answered_by IS NULL"
SAVE_DRAFT = """
    INSERT INTO messages (conversation_id, from_self, source, purpose, body, status, reply_id, part, parts)
    VALUES (%(conversation_id)s, true, 'ai', 'answer', '200 uur. [1]', 'draft', %(id)s, 1, 1)
"""
GIVE_UP = "UPDATE messages SET status = 'failed' WHERE reply_id = %(id)s AND status = 'draft'"
TO_SENDING = """
    UPDATE messages SET status = 'sending', send_attempt = send_attempt + 1, send_started_at = now()
    WHERE reply_id = %(id)s AND status IN ('draft', 'failed')
"""
TO_SENT = "UPDATE messages SET status = 'sent' WHERE reply_id = %(id)s AND status = 'sending'"
