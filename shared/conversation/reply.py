"""The send saga: intent, send, confirm; so that a message is accepted by Twilio at most once.

Twilio's create call has no idempotency key. So the intent ("sending") is committed before the request leaves, and whoever
finds it later knows that the message may have arrived: then evidence decides (reconcile.py), never a blind second try. A reply
of several parts is sent one part after another, each by a saga of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.types.json import Jsonb

from shared.boundary import Boundary, Checkpoint, pass_by
from shared.clients.deadline import TooLate, boot_clock
from shared.clients.twilio import Line, Template
from shared.conversation import consent
from shared.conversation.codes import Kind, meaning
from shared.conversation.evidence import LOOK_EVERY_SECONDS
from shared.conversation.held_back import hold_back
from shared.conversation.parts import Outbound
from shared.conversation.reconcile import Reconciler
from shared.conversation.window import template_for
from shared.db.pool import Conn, one
from shared.errors import FailureKind, PermanentError, classify
from shared.queue.job import Complete, Continue, Lease, Snooze, Verdict, Write
from shared.queue.outcome import Stopped
from shared.settings import Settings

INTENT_SECONDS = 2.0  # at most this long after the intent may the request begin
ONE_AT_A_TIME_SECONDS = 2.0

COVER = """
    UPDATE messages SET answered_by = %(reply_id)s
    WHERE id = ANY (%(ids)s) AND NOT from_self AND answered_by IS NULL
"""
# What the machine has written leaves in automatic mode alone, and only while it covers something: a person who takes the
# conversation over, or answers its messages, comes before it. Confirmations go out in any case, and so does the word that a
# person was asked; an apology covers nothing. A new try waits behind that of an earlier part alone, and nothing else behind it.
INTENT = """
    WITH intended AS (
        UPDATE messages m SET status = 'sending', send_attempt = m.send_attempt + 1, send_started_at = now(),
            error_code = NULL, held_reason = NULL, evidence = NULL, lookups_empty = 0, last_lookup_at = NULL,
            lookups_failing_since = NULL,
            template_sid = CASE WHEN is_open AND (m.retry_of IS NULL OR m.template_sid IS NULL) THEN NULL ELSE t.sid END,
            template_variables = CASE WHEN is_open AND (m.retry_of IS NULL OR m.template_sid IS NULL) THEN NULL
                ELSE t.variables END
        FROM conversations c
            CROSS JOIN (SELECT %(template_sid)s::text AS sid, %(template_variables)s::jsonb AS variables) AS t
            CROSS JOIN LATERAL (
                SELECT coalesce(c.last_inbound_at > now() - interval '24 hours', false) AS is_open) AS hours
        WHERE m.id = %(id)s AND c.id = m.conversation_id AND m.provider_sid IS NULL
            AND (m.status IN ('draft', 'failed') OR m.status = 'held' AND m.send_started_at IS NULL)
            AND (c.opted_out_at IS NULL OR m.purpose = 'consent') AND m.held_reason IS DISTINCT FROM 'opted_out'
            AND (is_open OR t.sid IS NOT NULL)
            AND (m.source = 'admin' OR m.purpose IN ('consent', 'person') OR c.mode = 'auto' AND (
                m.purpose = 'apology' OR EXISTS (
                    SELECT FROM messages q JOIN messages f ON q.answered_by = f.reply_id
                    WHERE f.id = coalesce(m.retry_of, m.id))))
            AND NOT EXISTS (
                SELECT FROM messages e
                WHERE e.conversation_id = m.conversation_id AND e.from_self AND e.id <> m.id
                    AND (e.status = 'sending' OR e.status = 'draft' AND e.seq < m.seq AND e.retry_of IS NULL))
            AND NOT EXISTS (
                SELECT FROM messages f JOIN messages e ON e.reply_id = f.reply_id AND e.part < f.part
                    JOIN messages r ON r.retry_of = e.id AND r.status = 'draft'
                WHERE f.id = m.retry_of)
        RETURNING m.id, m.send_attempt, m.template_sid
    ), noted AS (
        INSERT INTO message_events (message_id, attempt, what, detail)
        SELECT id, send_attempt, 'intent', template_sid FROM intended
    )
    SELECT send_attempt, template_sid FROM intended
"""
WHY_NOT = """
    SELECT m.provider_sid IS NOT NULL OR m.status IN ('sent', 'delivered', 'read') AS is_accepted,
        c.opted_out_at IS NOT NULL AND m.purpose <> 'consent' OR coalesce(m.held_reason = 'opted_out', false) AS is_opted_out,
        m.source <> 'admin' AND m.purpose NOT IN ('consent', 'person') AND (
            c.mode = 'manual' OR m.purpose <> 'apology' AND NOT EXISTS (
                SELECT FROM messages q JOIN messages f ON q.answered_by = f.reply_id WHERE f.id = coalesce(m.retry_of, m.id)
            )) AS is_taken_over,
        NOT coalesce(c.last_inbound_at > now() - interval '24 hours', false) AND %(template_sid)s::text IS NULL
            AS is_outside_window
    FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE m.id = %(id)s
"""
CANCEL = """
    UPDATE messages SET status = 'failed', held_reason = CASE held_reason WHEN 'refused' THEN held_reason ELSE 'opted_out' END
    WHERE reply_id = %(reply_id)s AND from_self AND provider_sid IS NULL
        AND (status IN ('draft', 'failed') OR status = 'held' AND send_started_at IS NULL)
"""
TAKE_BACK = """
    WITH taken AS (
        UPDATE messages SET status = 'draft', send_started_at = NULL
        WHERE id = %(id)s AND status = 'sending' AND send_attempt = %(attempt)s
        RETURNING id, send_attempt
    )
    INSERT INTO message_events (message_id, attempt, what, detail) SELECT id, send_attempt, 'not_sent', %(word)s FROM taken
"""
REFUSED = """
    WITH refused AS (
        UPDATE messages SET status = 'failed', error_code = %(code)s, held_reason = 'refused'
        WHERE id = %(id)s AND status = 'sending' AND send_attempt = %(attempt)s
        RETURNING id, send_attempt
    )
    INSERT INTO message_events (message_id, attempt, what, detail) SELECT id, send_attempt, 'refused', %(code)s FROM refused
"""
DOUBTED = """
    INSERT INTO message_events (message_id, attempt, what, detail)
    SELECT id, send_attempt, 'ambiguous', %(word)s FROM messages
    WHERE id = %(id)s AND status = 'sending' AND send_attempt = %(attempt)s
"""
# Another sid than a callback has told: Twilio has accepted two requests for this message.
CONFIRM = """
    WITH confirmed AS (
        UPDATE messages SET provider_sid = coalesce(provider_sid, %(sid)s), evidence = coalesce(evidence, 'answer'),
            second_sid = CASE WHEN provider_sid <> %(sid)s THEN %(sid)s ELSE second_sid END, when_absent = NULL,
            status = CASE WHEN status IN ('sending', 'held') THEN 'sent' ELSE status END,
            held_reason = CASE WHEN status IN ('sending', 'held') THEN NULL ELSE held_reason END
        WHERE id = %(id)s AND status NOT IN ('draft', 'received')
        RETURNING id, conversation_id, send_attempt, provider_sid <> %(sid)s AS is_second
    ), noted AS (
        INSERT INTO message_events (message_id, attempt, what, detail)
        SELECT id, send_attempt, CASE WHEN is_second THEN 'second_sid' ELSE 'accepted' END, %(sid)s FROM confirmed
    )
    UPDATE conversations c SET needs_person_since = coalesce(needs_person_since, now()), needs_person_reason = 'sent_twice'
    FROM confirmed WHERE c.id = confirmed.conversation_id AND confirmed.is_second
"""
# One template takes what is left of a reply: the parts behind it go out in it, or not at all.
IN_TEMPLATE = """
    UPDATE messages SET status = 'failed', held_reason = 'in_template'
    WHERE reply_id = %(reply_id)s AND from_self AND provider_sid IS NULL AND part > %(part)s
        AND (status IN ('draft', 'failed') OR status = 'held' AND send_started_at IS NULL)
"""


@dataclass(frozen=True, slots=True)
class Sender:
    """How messages leave: Twilio's line, and the settings that say what follows when one may have left."""

    line: Line
    settings: Settings
    checkpoint: Checkpoint = pass_by
    reconciler: Reconciler = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        may_resend = settings.ambiguous_send == "resend"
        found = Reconciler(
            self.line, settings.reconcile_window_seconds, may_resend, settings.twilio_template_sid, self.checkpoint
        )
        object.__setattr__(self, "reconciler", found)

    def deliver(self, lease: Lease, parts: Sequence[Outbound]) -> Verdict:
        """Take the parts of a reply, in their order, from wherever the rows say they are to "sent": one a step.

        Raises HeldError when one may have been sent and nobody can tell, and what Twilio's client raised when it surely was not
        sent. Whoever calls this has saved the parts as drafts before.
        """
        if any(part.template_sid and part.is_accepted for part in parts):
            return Complete([_the_rest_is_in_it(part) for part in parts if part.template_sid and part.is_accepted])
        left = [part for part in parts if not part.is_accepted and part.held_reason != "in_template"]
        if not left:
            return Complete()
        message = left[0]
        if message.status == "draft" and any(part.status == "failed" for part in parts if part.part < message.part):
            raise PermanentError("earlier_part", "the part before it did not arrive, so the rest was not sent")
        if lease.is_stopping():
            raise Stopped("the worker stops before the message was sent")
        if message.is_in_doubt:
            snooze = self.reconciler.look(lease, message)
            return snooze if snooze is not None else Continue()
        return self._send(lease, message, left)

    def _send(self, lease: Lease, message: Outbound, left: Sequence[Outbound]) -> Verdict:
        began = boot_clock()
        template = self._template(left)
        with lease.transaction() as connection:
            intent = one(connection, INTENT, {
                "id": message.id, "template_sid": template and template.sid,
                "template_variables": template and Jsonb(dict(template.variables)),
            })  # fmt: skip
            if intent is None:
                return self._not_now(connection, message, template)
        self.checkpoint(Boundary.INTENDED)
        key = {"id": message.id, "attempt": int(intent[0])}
        used = template if intent[1] is not None else None
        try:
            sid = self.line.send(
                to=message.address, body=message.body, status_callback=self._callback(key),
                not_after=began + INTENT_SECONDS, template=used,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - each is an outcome: sent, not sent, or who knows
            self.checkpoint(Boundary.SENT)
            return self._not_confirmed(lease, message, key, error)
        self.checkpoint(Boundary.SENT)
        writes = [Write(CONFIRM, {"id": message.id, "sid": sid})]
        return Continue(writes) if len(left) > 1 else Complete(writes)

    def _not_confirmed(self, lease: Lease, message: Outbound, key: dict[str, Any], error: Exception) -> Verdict:
        failure = classify(error, idempotent=False)
        word = failure.error_class
        match failure.kind:
            case _ if isinstance(error, TooLate):
                lease.insist(Write(TAKE_BACK, key | {"word": word}))
                return Snooze(1.0, "too long between the intent and the request: nothing was sent")
            case FailureKind.AMBIGUOUS:
                lease.insist(Write(DOUBTED, key | {"word": word}))
                self.checkpoint(Boundary.DOUBTED)
                return Snooze(LOOK_EVERY_SECONDS, f"it may have been sent: {failure.text}")
            case FailureKind.PERMANENT:
                code = getattr(error, "code", None)
                lease.insist(Write(REFUSED, key | {"code": code and str(code)}))
                if meaning(code).kind is Kind.OPTED_OUT:
                    rest = Write(CANCEL, {"reply_id": message.reply_id})
                    return Complete([consent.opt_out(message.conversation_id), rest])
            case _:
                lease.insist(Write(TAKE_BACK, key | {"word": word}))
        raise error

    def _callback(self, key: dict[str, Any]) -> str:
        return f"{self.settings.public_base_url}/api/twilio/status?message={key['id']}&try={key['attempt']}"

    def _template(self, left: Sequence[Outbound]) -> Template | None:
        """What takes the place of the parts that are left, should WhatsApp's 24 hours be over."""
        sid = self.settings.twilio_template_sid
        return None if sid is None else template_for(sid, [part.body for part in left])

    @staticmethod
    def _not_now(connection: Conn, message: Outbound, template: Template | None) -> Verdict:
        """Why the intent was refused, in the transaction that was refused, so that nothing changes in between."""
        row = one(connection, WHY_NOT, {"id": message.id, "template_sid": template and template.sid})
        assert row is not None, "a message is never deleted"
        is_accepted, is_opted_out, is_taken_over, is_outside_window = row
        if is_accepted:
            return Continue()  # a callback has told meanwhile
        if is_opted_out:
            return Complete([Write(CANCEL, {"reply_id": message.reply_id})])
        if is_taken_over:
            hold_back(connection, message.reply_id)
            return Complete()
        if is_outside_window:
            raise PermanentError(
                "outside_window", "the last message came more than 24 hours ago: WhatsApp allows no free text"
            )
        return Snooze(ONE_AT_A_TIME_SECONDS, "an earlier message of the conversation is still on its way")


def _the_rest_is_in_it(message: Outbound) -> Write:
    return Write(IN_TEMPLATE, {"reply_id": message.reply_id, "part": message.part})
