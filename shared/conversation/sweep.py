"""What came in at Twilio and never reached us: listed there now and then, and taken in as if its webhook had come.

Twilio gives a webhook up after some seconds. An outage of ours that is longer would lose messages; this finds them. It takes
them in by the webhook's own statement, so that whichever comes second, the list or a late webhook, changes nothing. They keep
their own time: what is older than 24 hours is flagged for a person, like everything that waited so long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from shared import telemetry
from shared.clients.twilio import Line, Received
from shared.conversation import attention, consent
from shared.conversation.inbound import STORE, Inbound, parameters
from shared.conversation.text import storable
from shared.db.pool import Conn, Database, one
from shared.errors import DatabaseAway, classify

GRACE_SECONDS = 120.0  # a webhook may still be on its way

# What was answered before this application was installed is not its business.
SINCE = """
    SELECT greatest(now() - make_interval(hours => %(hours)s), (SELECT min(applied_at) FROM schema_migrations)),
        now() - make_interval(secs => %(grace)s)
"""
UNKNOWN = """
    SELECT sid FROM unnest(%(sids)s::text[]) AS listed (sid)
    WHERE NOT EXISTS (SELECT FROM messages m WHERE m.provider_sid = sid)
"""
BEFORE = """
    SELECT last_inbound_at, consent_changed_at > %(created)s FROM conversations WHERE address = %(address)s
    FOR NO KEY UPDATE
"""
# A word that changed nothing then (STOP from somebody who had stopped) counts as well: it is what they said last.
SAID_SINCE = """
    SELECT m.body, m.raw ->> 'OptOutType' FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE c.address = %(address)s AND NOT m.from_self AND m.created_at > %(created)s
"""
IS_STALE = "SELECT %(created)s < now() - interval '24 hours'"
# Everything of this transaction carries its moment; the message came at its own.
KEEP_TIME = """
    WITH message AS (
        UPDATE messages SET created_at = least(%(created)s, now()),
            answered_by = CASE WHEN %(is_stale)s AND %(is_question)s AND c.opted_out_at IS NULL THEN NULL ELSE answered_by END
        FROM conversations c
        WHERE provider_sid = %(sid)s AND c.id = conversation_id
        RETURNING conversation_id, answered_by IS NULL AS is_open
    )
    UPDATE conversations c SET
        last_inbound_at = greatest(%(last_inbound_at)s::timestamptz, least(%(created)s, now())),
        consent_changed_at = CASE c.consent_changed_at WHEN now() THEN least(%(created)s, now()) ELSE c.consent_changed_at END
    FROM message WHERE c.id = message.conversation_id
    RETURNING c.id, message.is_open
"""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The chore: how far back it looks, and what it needs for taking a message in."""

    line: Line
    wake: Callable[[float], None]
    hours: int
    settle_seconds: float
    default_language: str

    def take_in(self, database: Database) -> int:
        """Take in what never came; returns how many. A list that cannot be had is a warning: the next round looks again.

        Raises DatabaseAway or psycopg.OperationalError.
        """
        with database.connection() as connection:
            limits = one(connection, SINCE, {"hours": self.hours, "grace": GRACE_SECONDS})
        assert limits is not None
        since, until = limits
        if since >= until:
            return 0
        try:
            inbox = self.line.inbound(since=since)
        except Exception as error:  # noqa: BLE001 - whatever it is, the queue must go on
            failure = classify(error)
            telemetry.warning("sweep_failed", error_class=failure.error_class, error=failure.text)
            return 0
        if not inbox.reaches:
            telemetry.warning("sweep_cut_short", messages=len(inbox.messages))
        listed = [message for message in inbox.messages if message.created <= until]
        with database.connection() as connection:
            unknown = {row[0] for row in connection.execute(UNKNOWN, {"sids": [message.sid for message in listed]})}
        missed = sorted((message for message in reversed(listed) if message.sid in unknown), key=_by_time)
        taken = sum(self._take(database, message) for message in missed)
        if taken:
            telemetry.error("messages_missed", taken_in=taken)
        return taken

    def _take(self, database: Database, message: Received) -> bool:
        """Take one in, in a transaction of its own; False when somebody else has, or when it cannot be stored."""
        try:
            with database.transaction() as connection:
                due_in = self._store(connection, message)
        except (DatabaseAway, psycopg.OperationalError):
            raise
        except Exception as error:  # noqa: BLE001 - one that cannot be stored must not keep the others out
            telemetry.error("sweep_skipped", sid=message.sid, error=classify(error).text)
            return False
        if due_in is not None:
            self.wake(due_in)
        return True

    def _store(self, connection: Conn, message: Received) -> float | None:
        """Store it with its own time; how soon its job is due, if it has one."""
        key: dict[str, Any] = {"address": message.address, "created": message.created, "sid": message.sid}
        before = one(connection, BEFORE, key)
        stale = one(connection, IS_STALE, key)
        is_stale = bool(stale and stale[0])
        change, _ = consent.change(message.body)
        is_overtaken = bool(change and before and (before[1] or self._has_said_since(connection, key)))
        given = parameters(
            _inbound(message), settle_seconds=self.settle_seconds, default_language=self.default_language
        ) | {"consent": None if is_overtaken else change, "confirmed": is_stale or is_overtaken}
        stored = one(connection, STORE, given)
        if stored is None or stored[0] is None:
            return None
        key |= {"last_inbound_at": before and before[0], "is_stale": is_stale, "is_question": change is None}
        kept = one(connection, KEEP_TIME, key)
        if kept and is_stale and kept[1]:
            connection.execute(attention.FLAG, {"conversation_id": kept[0], "reason": "overdue"})
        return None if stored[1] is None else float(stored[1])

    @staticmethod
    def _has_said_since(connection: Conn, key: dict[str, Any]) -> bool:
        """Whether they have opted out or in again after the message, or Twilio has taken it so."""
        later = connection.execute(SAID_SINCE, key)
        return any(consent.change(body, kind)[0] in ("stop", "start") for body, kind in later)


def _by_time(message: Received) -> datetime:
    return message.created


def _inbound(message: Received) -> Inbound:
    """The message as its webhook would have brought it, as far as the list tells: what came with it has no address there."""
    body = storable(message.body)
    raw: dict[str, str | list[str]] = {
        "Listed": "true",
        "sid": message.sid,
        "from": f"whatsapp:{message.address}",
        "date_sent": message.created.isoformat(),
        "num_media": str(message.media),
        "body": body,
    }
    return Inbound(
        sid=message.sid,
        address=message.address,
        external_user_id=None,
        profile_name=None,
        body=body,
        media=[{"type": "unknown"}] * min(message.media or int(not body.strip()), 10),
        opt_out_type=None,
        raw=raw,
    )
