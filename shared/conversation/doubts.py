"""The rows about a message that may have left: what is known of it, and what each look at Twilio's list leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from shared.conversation.evidence import Doubt
from shared.conversation.parts import Outbound
from shared.db.pool import Conn, one

FAILING_SECONDS_AT_MOST = 30 * 60.0
RIVAL_SECONDS = 120.0

DOUBT = """
    SELECT m.id, m.send_attempt AS attempt, m.body, m.template_sid, m.when_absent,
        coalesce(m.in_doubt_since, m.send_started_at) AS since, m.lookups_empty AS empties, clock_timestamp() AS now,
        extract(epoch FROM clock_timestamp() - m.send_started_at)::float8 AS waited,
        extract(epoch FROM clock_timestamp() - m.last_lookup_at)::float8 AS since_look,
        (SELECT count(*)::int FROM message_events e WHERE e.message_id = m.id AND e.what = 'resend') AS resends,
        EXISTS (SELECT FROM messages o
            WHERE o.conversation_id = m.conversation_id AND o.from_self AND o.id <> m.id AND o.provider_sid IS NULL
                AND (o.status IN ('sending', 'held') OR o.held_reason = 'closed') AND o.send_started_at
                    > coalesce(m.in_doubt_since, m.send_started_at) - make_interval(secs => %(rival_seconds)s)) AS has_rival
    FROM messages m
    WHERE m.id = %(id)s AND m.status IN ('sending', 'held') AND m.provider_sid IS NULL AND m.send_started_at IS NOT NULL
"""
# What the list has to show before it may count as up to date: the last message that Twilio is known to have, to this address,
# else from our number.
ANCHOR_TO_ADDRESS = """
    SELECT provider_sid FROM messages
    WHERE conversation_id = %(conversation_id)s AND from_self AND provider_sid IS NOT NULL AND id <> %(id)s
    ORDER BY coalesce(send_started_at, created_at) DESC, seq DESC LIMIT 1
"""
ANCHOR_OF_ALL = """
    SELECT provider_sid FROM messages
    WHERE from_self AND provider_sid IS NOT NULL AND id <> %(id)s ORDER BY seq DESC LIMIT 1
"""
OURS = """
    SELECT sid FROM unnest(%(sids)s::text[]) AS listed (sid)
    WHERE EXISTS (SELECT FROM messages WHERE provider_sid = sid)
        OR EXISTS (SELECT FROM messages WHERE second_sid = sid)
"""
LOOKED = """
    WITH looked AS (
        UPDATE messages SET last_lookup_at = CASE WHEN %(counts)s THEN clock_timestamp() ELSE last_lookup_at END,
            lookups_empty = lookups_empty + CASE WHEN %(counts)s THEN 1 ELSE 0 END, lookups_failing_since = NULL
        WHERE id = %(id)s AND status IN ('sending', 'held') AND send_attempt = %(attempt)s
        RETURNING id, send_attempt
    )
    INSERT INTO message_events (message_id, attempt, what)
    SELECT id, send_attempt, 'lookup_empty' FROM looked WHERE %(counts)s
"""
# The empty ones have to be in a row: a look that failed in between may have been the one that would have shown it.
FAILED = """
    WITH looked AS (
        UPDATE messages SET lookups_failing_since = coalesce(lookups_failing_since, clock_timestamp()), lookups_empty = 0
        WHERE id = %(id)s AND status IN ('sending', 'held') AND send_attempt = %(attempt)s
        RETURNING id, send_attempt, extract(epoch FROM clock_timestamp() - lookups_failing_since)::float8 AS failing
    ), noted AS (
        INSERT INTO message_events (message_id, attempt, what, detail)
        SELECT id, send_attempt, 'lookup_failed', %(word)s FROM looked
    )
    SELECT failing FROM looked
"""
FOREIGN = """
    INSERT INTO message_events (message_id, attempt, what) VALUES (%(id)s, %(attempt)s, 'lookup_foreign')
"""
RELEASE = """
    WITH released AS (
        UPDATE messages SET status = 'draft', held_reason = NULL, in_doubt_since = coalesce(in_doubt_since, send_started_at),
            send_started_at = NULL, when_absent = NULL, lookups_empty = 0, last_lookup_at = NULL, lookups_failing_since = NULL
        WHERE id = %(id)s AND status IN ('sending', 'held') AND send_attempt = %(attempt)s AND provider_sid IS NULL
        RETURNING id, send_attempt
    )
    INSERT INTO message_events (message_id, attempt, what) SELECT id, send_attempt, 'resend' FROM released
"""
# A crash while looking is a failed look. The job lives on until that has lasted too long; then its burial holds the message.
KEEP_ALIVE = """
    UPDATE messages SET lookups_failing_since = coalesce(lookups_failing_since, clock_timestamp())
    WHERE reply_id = %(reply_id)s AND from_self AND status = 'sending'
        AND (lookups_failing_since IS NULL
            OR lookups_failing_since > clock_timestamp() - make_interval(secs => %(failing_seconds)s))
"""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """A message of which nobody knows whether it left; seconds and times by the database's clock at the moment of reading."""

    id: UUID
    attempt: int
    body: str
    template_sid: str | None
    when_absent: str | None
    since: datetime
    empties: int
    now: datetime
    waited: float
    since_look: float | None
    resends: int
    has_rival: bool

    @property
    def doubt(self) -> Doubt:
        """The part of it that is judged."""
        return Doubt(self.body, self.since, self.waited, self.empties, self.since_look, self.resends, self.has_rival)


@dataclass(frozen=True, slots=True)
class Anchor:
    """The sid that an up-to-date list shows; `is_to_address`: in the list of what went to this address."""

    sid: str
    is_to_address: bool


def read(connection: Conn, message_id: UUID) -> Doubtful | None:
    """The message, if it is still in doubt."""
    with connection.cursor(row_factory=class_row(Doubtful)) as cursor:
        return cursor.execute(DOUBT, {"id": message_id, "rival_seconds": RIVAL_SECONDS}).fetchone()


def anchor(connection: Conn, message: Outbound) -> Anchor | None:
    """What a list must show to be believed; None when nothing was ever confirmed."""
    key = {"id": message.id, "conversation_id": message.conversation_id}
    row = one(connection, ANCHOR_TO_ADDRESS, key)
    if row is not None:
        return Anchor(row[0], is_to_address=True)
    row = one(connection, ANCHOR_OF_ALL, key)
    return None if row is None else Anchor(row[0], is_to_address=False)


def ours(connection: Conn, sids: Sequence[str]) -> set[str]:
    """Those of the sids that are on rows of ours."""
    return {row[0] for row in connection.execute(OURS, {"sids": list(sids)})}


def note_empty(connection: Conn, found: Doubtful, *, counts: bool) -> None:
    """A look that did not show it; one that came too soon after the last does not count."""
    connection.execute(LOOKED, {"id": found.id, "attempt": found.attempt, "counts": counts})


def note_failed(connection: Conn, found: Doubtful, word: str) -> float:
    """A look that told nothing; for how many seconds that has been going on."""
    row = one(connection, FAILED, {"id": found.id, "attempt": found.attempt, "word": word})
    return 0.0 if row is None else float(row[0])


def note_foreign(connection: Conn, found: Doubtful) -> None:
    """A look that showed a message which nobody can place."""
    connection.execute(FOREIGN, {"id": found.id, "attempt": found.attempt})


def release(connection: Conn, found: Doubtful) -> None:
    """It is not with Twilio: it may be sent again."""
    connection.execute(RELEASE, {"id": found.id, "attempt": found.attempt})


def keep_alive(connection: Conn, reply_id: UUID) -> bool:
    """Whether something of a reply is being sent and may still be looked up; notes that looking did not come to its end."""
    parameters = {"reply_id": reply_id, "failing_seconds": FAILING_SECONDS_AT_MOST}
    return connection.execute(KEEP_ALIVE, parameters).rowcount > 0
