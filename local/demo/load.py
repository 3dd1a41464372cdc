"""Puts the demo's documents and people into a database that has none."""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString

from shared.conversation.language import detect
from shared.db.pool import Conn, one
from shared.knowledge.ingest import add_document
from shared.knowledge.people_file import read_table
from shared.knowledge.people_rows import rows_of
from shared.knowledge.upload import read_upload

FOLDER = Path(__file__).parent
PEOPLE = FOLDER / "people.csv"
HANDBOOKS = FOLDER / "handbook"

HAS_DOCUMENTS = "SELECT EXISTS (SELECT FROM documents)"
HAS_PEOPLE = "SELECT EXISTS (SELECT FROM people)"
ADD_PERSON = """
    INSERT INTO people (name, phone, language, department, external_id)
    VALUES (%(name)s, %(phone)s, %(language)s, %(department)s, %(external_id)s) ON CONFLICT (phone) DO NOTHING
"""
WAITING = "SELECT count(*) FROM documents WHERE state = 'waiting'"


def load_demo(connection: Conn) -> tuple[int, int]:
    """Add the handbooks and the people where there are none; how many documents and people were added."""
    documents = people = 0
    if not _exists(connection, HAS_DOCUMENTS):
        for path in sorted(HANDBOOKS.glob("*.md")):
            add_document(connection, read_upload(path.name, path.read_bytes(), None, "handbook", detect=detect))
            documents += 1
    if not _exists(connection, HAS_PEOPLE):
        for row in rows_of(read_table(PEOPLE.name, PEOPLE.read_bytes())):
            people += connection.execute(ADD_PERSON, row.as_json()).rowcount
    return documents, people


def waiting(connection: Conn) -> int:
    """How many documents are not embedded yet."""
    row = one(connection, WAITING)
    return int(row[0]) if row else 0


def _exists(connection: Conn, sql: LiteralString) -> bool:
    row = one(connection, sql)
    return bool(row and row[0])
