"""One person in SQL: what is known about them, their conversations, and how their own record stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from psycopg.rows import class_row

from shared.db.pool import Conn
from shared.knowledge import Language

CONVERSATIONS_SHOWN = 5

# The job that will make the record, or could not: looked for where its partial index is small.
FIND = """
    SELECT p.id, p.phone, p.name, p.language, p.department, p.attributes, p.external_id, p.left_at,
        coalesce(p.left_at <= now(), false) AS has_left, p.created_at, p.updated_at,
        c.text AS record, c.created_at AS record_at, j.id AS job_id, j.status AS job_state, j.error_class AS job_problem
    FROM people p
        LEFT JOIN chunks c ON c.person_id = p.id AND c.ordinal = 0
        LEFT JOIN LATERAL (
            SELECT id, status, error_class, seq FROM ai_jobs
            WHERE status = 'pending' AND type = 'embed_record'
                AND payload ->> 'record' = 'person' AND payload ->> 'id' = p.id::text
            UNION ALL
            SELECT id, status, error_class, seq FROM ai_jobs
            WHERE status = 'processing' AND type = 'embed_record'
                AND payload ->> 'record' = 'person' AND payload ->> 'id' = p.id::text
            UNION ALL
            SELECT id, status, error_class, seq FROM ai_jobs
            WHERE status = 'failed' AND closed_at IS NULL AND type = 'embed_record'
                AND payload ->> 'record' = 'person' AND payload ->> 'id' = p.id::text
            ORDER BY seq DESC LIMIT 1
        ) j ON true
    WHERE p.id = %(id)s
"""
CONVERSATIONS = """
    SELECT id, address, last_inbound_at FROM conversations
    WHERE person_id = %(id)s OR address = %(phone)s ORDER BY last_inbound_at DESC NULLS LAST, id LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class PersonOne:
    """A person. `record` is what answers to them alone may use; `job_…` is of the job that makes it, unless that is done."""

    id: UUID
    phone: str
    name: str
    language: Language | None
    department: str | None
    attributes: dict[str, str]
    external_id: str | None
    left_at: datetime | None
    has_left: bool
    created_at: datetime
    updated_at: datetime
    record: str | None
    record_at: datetime | None
    job_id: UUID | None
    job_state: str | None
    job_problem: str | None

    @property
    def record_state(self) -> Literal["ready", "renewed", "waiting", "failed", "left", "none"]:
        """How their own record stands; "renewed": it can be found as it was, and is being made anew."""
        if self.job_state in ("pending", "processing"):
            return "renewed" if self.record else "waiting"
        if self.record:
            return "ready"
        if self.has_left:
            return "left"
        return "failed" if self.job_state else "none"


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation with a person."""

    id: UUID
    address: str
    last_inbound_at: datetime | None


def find_person(connection: Conn, person_id: UUID) -> PersonOne | None:
    """One person, or None."""
    with connection.cursor(row_factory=class_row(PersonOne)) as cursor:
        return cursor.execute(FIND, {"id": person_id}).fetchone()


def conversations_of(connection: Conn, person: PersonOne) -> list[ConversationRow]:
    """Their conversations, the latest first: those that are linked, and the one of their number."""
    with connection.cursor(row_factory=class_row(ConversationRow)) as cursor:
        parameters = {"id": person.id, "phone": person.phone, "limit": CONVERSATIONS_SHOWN}
        return cursor.execute(CONVERSATIONS, parameters).fetchall()
