"""Chunks as people read them: the passages that an answer is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from shared.db.pool import Conn
from shared.knowledge.sources import source_label

FIND = """
    SELECT c.id, c.document_id, coalesce(d.title, '') AS title, c.heading_path, c.text
    FROM chunks c LEFT JOIN documents d ON d.id = c.document_id
    WHERE c.id = ANY (%(ids)s)
"""


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk; `document_id` is None for a person's own record."""

    id: UUID
    document_id: UUID | None
    title: str
    heading_path: list[str]
    text: str

    @property
    def label(self) -> str:
        """Document › heading › heading, as employees see it."""
        return source_label(self.title, self.heading_path)


def find(connection: Conn, chunk_ids: Sequence[UUID]) -> dict[UUID, Passage]:
    """The chunks that still exist: a changed document has others."""
    if not chunk_ids:
        return {}
    with connection.cursor(row_factory=class_row(Passage)) as cursor:
        return {found.id: found for found in cursor.execute(FIND, {"ids": list(chunk_ids)})}
