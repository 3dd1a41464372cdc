"""The documents' pages in SQL: the list by title, one document, its pieces in order, and embedding it once more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from psycopg.rows import class_row

from shared import audit
from shared.db.pool import Conn, one
from shared.errors import UserError
from shared.knowledge import Language
from shared.queue.replay import restart
from shared.queue.store import enqueue

PAGE_SIZE = 50
CHUNKS_SHOWN = 20
COLLECTIONS_OFFERED = 200
STATES: Final = ("ready", "waiting", "failed")

# `after`: the last document of the page before; when it is gone, the list begins anew.
LIST = """
    SELECT d.id, d.title, d.language, d.collection, d.source_name, d.state, d.reason, d.updated_at,
        (SELECT count(*) FROM chunks c WHERE c.document_id = d.id)::int AS chunks
    FROM documents d LEFT JOIN documents a ON a.id = %(after)s
    WHERE (%(id)s::uuid IS NULL OR d.id = %(id)s)
        AND (%(state)s::text IS NULL OR d.state = %(state)s)
        AND (a.id IS NULL OR (lower(d.title), d.id) > (lower(a.title), a.id))
    ORDER BY lower(d.title), d.id LIMIT %(limit)s
"""
COUNTS = "SELECT state, count(*)::int FROM documents GROUP BY state"
COLLECTIONS = """
    SELECT DISTINCT collection FROM documents WHERE collection <> '' ORDER BY collection LIMIT %(limit)s
"""
CHUNKS = """
    SELECT id, ordinal, heading_path, text FROM chunks
    WHERE document_id = %(id)s AND ordinal >= %(first)s ORDER BY ordinal LIMIT %(limit)s
"""
PLACE = "SELECT ordinal FROM chunks WHERE document_id = %(id)s AND id = %(chunk_id)s"
# The newest job that died of it, if there is one: restarted, it is no dead letter any more.
DEAD_JOB = """
    SELECT id FROM ai_jobs
    WHERE status = 'failed' AND closed_at IS NULL AND type = 'embed_record' AND payload ->> 'record' = 'document'
        AND payload ->> 'id' = %(id)s::text
    ORDER BY seq DESC LIMIT 1
"""
WAIT_AGAIN = """
    UPDATE documents SET state = 'waiting', reason = NULL, updated_at = now()
    WHERE id = %(id)s AND state = 'failed' RETURNING title
"""


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document without its content; `reason` says why it failed."""

    id: UUID
    title: str
    language: Language
    collection: str
    source_name: str
    state: Literal["waiting", "ready", "failed"]
    reason: str | None
    updated_at: datetime
    chunks: int

    @property
    def problem(self) -> str:
        """The name of what went wrong, as errors are classed; empty when nothing did."""
        return (self.reason or "").partition(":")[0]

    @property
    def detail(self) -> str:
        """What was said about it, for who wants to know."""
        return (self.reason or "").partition(": ")[2]


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A piece of a document, as it is found."""

    id: UUID
    ordinal: int
    heading_path: list[str]
    text: str


def list_documents(connection: Conn, *, state: str | None, after: UUID | None) -> tuple[list[DocumentRow], UUID | None]:
    """A page of documents by title, and the `after` of the next page, if there is one."""
    parameters = {"id": None, "state": state, "after": after, "limit": PAGE_SIZE + 1}
    with connection.cursor(row_factory=class_row(DocumentRow)) as cursor:
        rows = cursor.execute(LIST, parameters).fetchall()
    return rows[:PAGE_SIZE], rows[PAGE_SIZE - 1].id if len(rows) > PAGE_SIZE else None


def find_document(connection: Conn, document_id: UUID) -> DocumentRow | None:
    """One document."""
    parameters = {"id": document_id, "state": None, "after": None, "limit": 1}
    with connection.cursor(row_factory=class_row(DocumentRow)) as cursor:
        return cursor.execute(LIST, parameters).fetchone()


def count_by_state(connection: Conn) -> dict[str, int]:
    """How many documents are in each state."""
    return {str(state): int(number) for state, number in connection.execute(COUNTS)}


def collections(connection: Conn) -> list[str]:
    """The names of the collections that there are."""
    return [str(row[0]) for row in connection.execute(COLLECTIONS, {"limit": COLLECTIONS_OFFERED})]


def chunks_of(connection: Conn, document_id: UUID, *, first: int) -> tuple[list[ChunkRow], int | None]:
    """The pieces from the one numbered `first` on (from 0), and where the next page begins, if there is one."""
    parameters = {"id": document_id, "first": first, "limit": CHUNKS_SHOWN + 1}
    with connection.cursor(row_factory=class_row(ChunkRow)) as cursor:
        rows = cursor.execute(CHUNKS, parameters).fetchall()
    return rows[:CHUNKS_SHOWN], rows[CHUNKS_SHOWN].ordinal if len(rows) > CHUNKS_SHOWN else None


def place_of(connection: Conn, document_id: UUID, chunk_id: UUID) -> int | None:
    """The number of a piece in its document; None when it is there no more."""
    row = one(connection, PLACE, {"id": document_id, "chunk_id": chunk_id})
    return int(row[0]) if row else None


def embed_again(connection: Conn, document_id: UUID, *, who: str) -> None:
    """Have a failed document embedded once more, in one transaction. Raises UserError when it has not failed."""
    key = {"id": document_id}
    with connection.transaction():
        dead = one(connection, DEAD_JOB, key)
        became = restart(connection, [dead[0]], who=who) if dead else {}
        if "restarted" not in became.values():
            enqueue(connection, {"type": "embed_record", "record": "document", "id": str(document_id)})
        waiting = one(connection, WAIT_AGAIN, key)
        if waiting is None:
            raise UserError(
                "This document has not failed, so there is nothing to do again.", name="document_not_failed"
            )
        audit.record(connection, who=who, what="embed_document", target_type="document", target_id=document_id,
                     title=waiting[0])  # fmt: skip
