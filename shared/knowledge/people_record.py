"""A person's own record: what the organisation knows about them, as one chunk that only they can find."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from shared.clients.azure_openai import Embedder
from shared.db.pool import Conn, one
from shared.knowledge import Language
from shared.knowledge.ingest import vector_literal
from shared.knowledge.plain import one_line

RECORD_CHARACTERS = 4000  # about 1,000 tokens: one chunk, and half a prompt at most

# The heading is also how an answer names its source.
_HEADING: dict[Language, str] = {"nl": "Jouw gegevens", "en": "Your details"}
_LABELS: dict[Language, tuple[str, str, str]] = {
    "nl": ("Naam", "Afdeling", "Personeelsnummer"),
    "en": ("Name", "Department", "Employee number"),
}

READ_PERSON = """
    SELECT id, name, coalesce(language, %(default_language)s) AS language, department, external_id, attributes,
        coalesce(left_at <= now(), false) AS has_left
    FROM people WHERE id = %(id)s
"""
LOCK_PERSON = "SELECT FROM people WHERE id = %(id)s FOR SHARE"
KNOWN_EMBEDDING = """
    SELECT embedding::text FROM chunks
    WHERE person_id = %(id)s AND embedding_model = %(model)s AND content_sha256 = %(content_sha256)s
"""
PUT_RECORD = """
    INSERT INTO chunks (person_id, ordinal, heading_path, text, search_text, language, content_sha256, embedding,
        embedding_model)
    VALUES (%(person_id)s, 0, ARRAY[%(heading)s], %(text)s, %(search_text)s, %(language)s, %(content_sha256)s,
        %(embedding)s::halfvec, %(model)s)
    ON CONFLICT (person_id, ordinal) WHERE person_id IS NOT NULL DO UPDATE
    SET heading_path = excluded.heading_path, text = excluded.text, search_text = excluded.search_text,
        language = excluded.language, content_sha256 = excluded.content_sha256, embedding = excluded.embedding,
        embedding_model = excluded.embedding_model, created_at = now()
"""
DELETE_RECORD = "DELETE FROM chunks WHERE person_id = %(id)s"
DELETE_OF_LEAVERS = """
    DELETE FROM chunks c USING people p WHERE p.id = c.person_id AND p.left_at <= now()
"""
# Those whose job waits, runs or has died are left out: a dead one is a person's to restart, not to be made anew each minute.
EMBED_ANEW = """
    WITH stale AS MATERIALIZED (
        SELECT person_id::text AS id FROM chunks WHERE person_id IS NOT NULL AND embedding_model <> %(model)s
    ), active AS MATERIALIZED (
        SELECT payload ->> 'id' AS id FROM ai_jobs
        WHERE EXISTS (SELECT FROM stale) AND type = 'embed_record' AND status = 'pending'
        UNION ALL
        SELECT payload ->> 'id' FROM ai_jobs
        WHERE EXISTS (SELECT FROM stale) AND type = 'embed_record' AND status = 'processing'
        UNION ALL
        SELECT payload ->> 'id' FROM ai_jobs
        WHERE EXISTS (SELECT FROM stale) AND type = 'embed_record' AND status = 'failed' AND closed_at IS NULL
    )
    INSERT INTO ai_jobs (payload, next_run_at)
    SELECT jsonb_build_object('type', 'embed_record', 'record', 'person', 'id', id),
        now() + make_interval(secs => row_number() OVER () / %(a_second)s)
    FROM stale WHERE id NOT IN (SELECT id FROM active WHERE id IS NOT NULL)
    LIMIT %(limit)s
"""
RECORDS_A_SECOND = (
    20.0  # fall due: a few of a worker's slots, so that answers and documents do not wait behind everybody
)
ANEW_AT_ONCE = 1000  # of a minute's refresh


@dataclass(frozen=True, slots=True)
class Person:
    """A row of people, as the job that embeds it reads it."""

    id: UUID
    name: str
    language: Language
    department: str | None
    external_id: str | None
    attributes: dict[str, str]
    has_left: bool


@dataclass(frozen=True, slots=True)
class Record:
    """The text of a person's chunk; `embedded` is what is embedded and what full text looks at."""

    heading: str
    text: str

    @property
    def embedded(self) -> str:
        """The heading on the first line, then the text."""
        return f"{self.heading}\n{self.text}"

    @property
    def sha256(self) -> bytes:
        """The digest of `embedded`."""
        return hashlib.sha256(self.embedded.encode()).digest()


def read_person(connection: Conn, person_id: UUID, default_language: Language) -> Person | None:
    """A person, or None when there is none of this id."""
    with connection.cursor(row_factory=class_row(Person)) as cursor:
        return cursor.execute(READ_PERSON, {"id": person_id, "default_language": default_language}).fetchone()


def record_of(person: Person) -> Record:
    """What is known about a person, a line each, in their language; what does not fit is left out."""
    name, department, number = _LABELS[person.language]
    lines = [
        (name, person.name),
        (department, person.department),
        (number, person.external_id),
        *person.attributes.items(),
    ]
    text = ""
    for label, value in lines:
        line = f"{one_line(label)}: {one_line(str(value))}" if value else ""
        if line and len(text) + len(line) < RECORD_CHARACTERS:
            text += f"\n{line}" if text else line
    return Record(_HEADING[person.language], text)


def known_embedding(connection: Conn, person_id: UUID, record: Record, embedding_model: str) -> str | None:
    """The vector of the record where it is embedded by this model already, as Postgres reads it."""
    parameters = {"id": person_id, "model": embedding_model, "content_sha256": record.sha256}
    row = one(connection, KNOWN_EMBEDDING, parameters)
    return str(row[0]) if row else None


def embed_record(record: Record, embedder: Embedder) -> str:
    """The vector of a record, as Postgres reads it. No connection is held meanwhile. Raises what the embedder raises."""
    return vector_literal(embedder.embed([record.embedded])[0])


def put_record(
    connection: Conn,
    person: Person,
    record: Record,
    embedding: str,
    *,
    embedding_model: str,
    default_language: Language,
) -> bool:
    """Put a person's record in the place of the one before, inside the caller's transaction.

    False, and nothing is changed, when the person was changed while the record was embedded: whoever did so has enqueued a job
    of its own.
    """
    connection.execute(LOCK_PERSON, {"id": person.id})
    if read_person(connection, person.id, default_language) != person:
        return False
    values = {
        "person_id": person.id,
        "heading": record.heading,
        "text": record.text,
        "search_text": record.embedded,
        "language": person.language,
        "content_sha256": record.sha256,
        "embedding": embedding,
        "model": embedding_model,
    }
    connection.execute(PUT_RECORD, values)
    return True


def refresh_records(connection: Conn, embedding_model: str) -> int:
    """Drop the records of those who have left, and enqueue, at most 1,000 at once, those that another model has embedded.

    How many were enqueued. A search never mixes models: until then such a record is not found.
    """
    connection.execute(DELETE_OF_LEAVERS)
    return connection.execute(
        EMBED_ANEW, {"model": embedding_model, "limit": ANEW_AT_ONCE, "a_second": RECORDS_A_SECOND}
    ).rowcount
