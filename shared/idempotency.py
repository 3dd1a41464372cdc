"""The receive store: what a sender sends twice, at once, or again after a crash, is stored once.

An id is taken first, for 60 seconds and with an owner's token; the second transaction stores the event with its deliveries and
jobs and completes the id, or does nothing. Whoever is killed between the two has the id until its time is over, by the
database's clock; then the sender's next try takes it over, whatever its body is, since nothing was stored of the other's; and an
owner that comes too late completes nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID, uuid4

from shared.db.pool import Conn, Database, one

LOCK_SECONDS = 60.0
KEPT_HOURS = 72
BATCH = 500  # of each source, in one short transaction
BATCHES = 10

# The statements themselves are functions of migration 0007: each is one round trip and a transaction of its own.
TAKE = """
    SELECT outcome, answered, event, locked_for FROM take_receipt(
        %(source)s, %(key)s, %(body_sha256)s, %(idempotency_key)s, %(owner)s, make_interval(secs => %(seconds)s))
"""
COMPLETE = """
    SELECT outcome, event, jobs FROM complete_receipt(
        %(source)s, %(key)s, %(owner)s, %(answer)s, %(event)s, %(type)s, %(subject)s, %(occurred_at)s, %(data)s::jsonb, %(raw)s,
        %(content_type)s, %(body)s, %(held_reason)s)
"""
RELEASE = """
    DELETE FROM webhook_receipts
    WHERE source_id = %(source)s AND key = %(key)s AND owner = %(owner)s AND state = 'processing'
"""
PRUNE_COMPLETED = """
    WITH old AS MATERIALIZED (
        SELECT found.source_id, found.key FROM webhook_sources s CROSS JOIN LATERAL (
            SELECT r.source_id, r.key FROM webhook_receipts r
            WHERE r.source_id = s.id AND r.state = 'completed' AND r.completed_at < now() - make_interval(hours => %(hours)s)
            ORDER BY r.completed_at LIMIT %(size)s FOR UPDATE SKIP LOCKED) AS found
    )
    DELETE FROM webhook_receipts r USING old WHERE r.source_id = old.source_id AND r.key = old.key
"""
# Taken, and never come back to by the sender.
PRUNE_ABANDONED = """
    WITH old AS MATERIALIZED (
        SELECT source_id, key FROM webhook_receipts
        WHERE state = 'processing' AND locked_until < now() - make_interval(hours => %(hours)s)
        ORDER BY locked_until LIMIT %(size)s FOR UPDATE SKIP LOCKED
    )
    DELETE FROM webhook_receipts r USING old WHERE r.source_id = old.source_id AND r.key = old.key
"""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One request that wants its id: `key` is the sender's id. `owner` is a token that nobody else has."""

    source_id: UUID
    key: str
    body_sha256: bytes
    idempotency_key: str | None = None
    owner: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True)
class Taken:
    """The id is ours until its lock is over."""


@dataclass(frozen=True, slots=True)
class Running:
    """Somebody else has it in hand, for so many seconds at most."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Completed:
    """It was done before; `status` is what was answered then."""

    status: int
    event_id: UUID


@dataclass(frozen=True, slots=True)
class Conflict:
    """It was done before, with another body or another idempotency key."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event as it is stored; `data` and `body` are JSON, `raw` what the sender's signature covers."""

    id: UUID
    type: str
    subject: str | None
    occurred_at: datetime | None
    data: str
    raw: bytes
    content_type: str | None
    body: bytes
    held_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What the second transaction did.

    `stored`; `known`: the event was there already, longer ago than receipts are kept; `conflict`: so it was, with another body;
    `lost`: another owner has the id now. `jobs` is how many were made.
    """

    outcome: Literal["stored", "known", "conflict", "lost"]
    event_id: UUID | None
    jobs: int


def body_hash(raw: bytes) -> bytes:
    """What tells one body from another."""
    return hashlib.sha256(raw).digest()


class ReceiveStore:
    """Statements, each a transaction of its own on the connection that is given."""

    def take(
        self, connection: Conn, receipt: Receipt, *, seconds: float = LOCK_SECONDS
    ) -> Taken | Running | Completed | Conflict:
        """Take the id for so many seconds; doing it twice with one receipt is doing it once."""
        row = one(connection, TAKE, {
            "source": receipt.source_id, "key": receipt.key, "body_sha256": receipt.body_sha256,
            "idempotency_key": receipt.idempotency_key, "owner": receipt.owner, "seconds": seconds,
        })  # fmt: skip
        assert row is not None
        match row[0]:
            case "taken":
                return Taken()
            case "running":
                return Running(max(float(row[3]), 0.0))
            case "completed":
                return Completed(int(row[1]), row[2])
            case _:
                return Conflict()

    def complete(self, connection: Conn, receipt: Receipt, event: NewEvent, *, answer: int = 200) -> Stored:
        """Store the event with its deliveries and jobs, and complete the id; doing it twice is doing it once."""
        row = one(connection, COMPLETE, {
            "source": receipt.source_id, "key": receipt.key, "owner": receipt.owner, "answer": answer, "event": event.id,
            "type": event.type, "subject": event.subject, "occurred_at": event.occurred_at, "data": event.data,
            "raw": event.raw, "content_type": event.content_type, "body": event.body, "held_reason": event.held_reason,
        })  # fmt: skip
        assert row is not None
        return Stored(row[0], row[1], int(row[2]))

    def release(self, connection: Conn, receipt: Receipt) -> bool:
        """Give the id back, so that the sender may try again at once; False when it is not this owner's."""
        return connection.execute(RELEASE, _key(receipt)).rowcount > 0

    def prune(self, database: Database) -> int:
        """Forget what was completed, or taken and left, more than 72 hours ago, a little at a time; how many."""
        pruned, at_most = 0, {"hours": KEPT_HOURS, "size": BATCH}
        for statement in (PRUNE_COMPLETED, PRUNE_ABANDONED):
            for _ in range(BATCHES):
                with database.connection() as connection:
                    count = connection.execute(statement, at_most).rowcount
                pruned += count
                if not count:
                    break
        return pruned


def _key(receipt: Receipt) -> dict[str, object]:
    return {"source": receipt.source_id, "key": receipt.key, "owner": receipt.owner}
