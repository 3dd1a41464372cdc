"""Documents in the database: stored with the job that embeds them, embedded, and their chunks swapped in one transaction.

The chunks of the content before stay searchable until those of the new content take their place.
"""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from pgvector import HalfVector
from psycopg.rows import class_row

from shared import audit
from shared.clients.azure_openai import Embedder
from shared.db.pool import Conn, one
from shared.errors import PermanentError
from shared.knowledge import Language
from shared.knowledge.chunk import Chunk, chunk_document, embedded_text
from shared.knowledge.upload import NewDocument
from shared.queue.job import Write
from shared.queue.store import enqueue

REASON_LIMIT = 500

# Nothing is returned when the same content is there already and has not failed.
ADD_DOCUMENT = """
    INSERT INTO documents AS d (title, content, content_sha256, language, collection, source_name)
    VALUES (%(title)s, %(content)s, %(content_sha256)s, %(language)s, %(collection)s, %(source_name)s)
    ON CONFLICT (collection, source_name) DO UPDATE
    SET title = excluded.title, content = excluded.content, content_sha256 = excluded.content_sha256,
        language = excluded.language, state = 'waiting', reason = NULL, updated_at = now()
    WHERE (d.content_sha256, d.language) IS DISTINCT FROM (excluded.content_sha256, excluded.language)
        OR d.state = 'failed'
    RETURNING d.id, d.xmax = 0
"""
FIND_DOCUMENT = "SELECT id FROM documents WHERE collection = %(collection)s AND source_name = %(source_name)s"
READ_DOCUMENT = """
    SELECT id, title, content, content_sha256, language, collection, source_name, state FROM documents WHERE id = %(id)s
"""
LIST_DOCUMENTS = """
    SELECT d.id, d.title, d.language, d.collection, d.source_name, d.state, d.reason, d.updated_at,
        (SELECT count(*) FROM chunks c WHERE c.document_id = d.id)::int AS chunks
    FROM documents d ORDER BY d.collection, d.source_name
"""
KNOWN_EMBEDDINGS = """
    SELECT content_sha256, embedding::text FROM chunks WHERE document_id = %(id)s AND embedding_model = %(model)s
"""
# The row's lock keeps two jobs of one document apart; what was embedded must still be what is stored.
MARK_READY = """
    UPDATE documents SET state = 'ready', reason = NULL, updated_at = now()
    WHERE id = %(id)s AND content_sha256 = %(content_sha256)s AND language = %(language)s
"""
DELETE_CHUNKS = "DELETE FROM chunks WHERE document_id = %(id)s"
INSERT_CHUNK = """
    INSERT INTO chunks (document_id, ordinal, heading_path, text, search_text, language, content_sha256, embedding,
        embedding_model)
    VALUES (%(document_id)s, %(ordinal)s, %(heading_path)s, %(text)s, %(search_text)s, %(language)s, %(content_sha256)s,
        %(embedding)s::halfvec, %(embedding_model)s)
"""
REMOVE_DOCUMENT = "DELETE FROM documents WHERE id = %(id)s RETURNING title, collection, source_name"
# A search never mixes models: after a change of model a document is found again once it is embedded anew.
EMBED_ANEW = """
    WITH stale AS (
        UPDATE documents d SET state = 'waiting', updated_at = now()
        WHERE d.state = 'ready' AND NOT EXISTS (
            SELECT FROM chunks c WHERE c.document_id = d.id AND c.embedding_model = %(model)s)
        RETURNING d.id
    )
    INSERT INTO ai_jobs (payload)
    SELECT jsonb_build_object('type', 'embed_record', 'record', 'document', 'id', id) FROM stale
"""
FAIL_DOCUMENT = """
    UPDATE documents SET state = 'failed', reason = %(reason)s, updated_at = now() WHERE id = %(id)s AND state = 'waiting'
"""


@dataclass(frozen=True, slots=True)
class Added:
    """What became of a document that was added."""

    id: UUID
    outcome: Literal["added", "replaced", "unchanged"]


@dataclass(frozen=True, slots=True)
class Document:
    """A row of documents, as the job that embeds it reads it."""

    id: UUID
    title: str
    content: str
    content_sha256: bytes
    language: Language
    collection: str
    source_name: str
    state: str


@dataclass(frozen=True, slots=True)
class EmbeddedChunk:
    """A chunk with the vector of its embedded text, as Postgres reads it."""

    chunk: Chunk
    language: Language
    content_sha256: bytes
    embedding: str
    embedding_model: str


def add_document(connection: Conn, new: NewDocument) -> Added:
    """Store a document and enqueue its embed_record job, in one transaction.

    The same collection and name replace the content; the same content changes nothing, unless embedding it failed before.
    """
    key = {"collection": new.collection, "source_name": new.source_name}
    values = {
        **key,
        "title": new.title,
        "content": new.content,
        "content_sha256": new.content_sha256,
        "language": new.language,
    }
    with connection.transaction():
        stored = one(connection, ADD_DOCUMENT, values)
        if stored is None:
            unchanged = one(connection, FIND_DOCUMENT, key)
            assert unchanged is not None
            return Added(unchanged[0], "unchanged")
        enqueue(connection, {"type": "embed_record", "record": "document", "id": str(stored[0])})
        return Added(stored[0], "added" if stored[1] else "replaced")


def read_document(connection: Conn, document_id: UUID) -> Document | None:
    """A document, or None when it has been removed."""
    with connection.cursor(row_factory=class_row(Document)) as cursor:
        return cursor.execute(READ_DOCUMENT, {"id": document_id}).fetchone()


def known_embeddings(connection: Conn, document_id: UUID, embedding_model: str) -> dict[bytes, str]:
    """The vectors of a document's present chunks by the SHA-256 of what was embedded, of this model only."""
    rows = connection.execute(KNOWN_EMBEDDINGS, {"id": document_id, "model": embedding_model})
    return {bytes(digest): str(embedding) for digest, embedding in rows}


def embed_document(document: Document, known: Mapping[bytes, str], embedder: Embedder) -> list[EmbeddedChunk]:
    """Cut a document into chunks and embed those whose text is not in `known` yet, each text once.

    No connection is held meanwhile. Raises what the embedder raises, and PermanentError("no_text").
    """
    texts = {chunk: embedded_text(chunk) for chunk in chunk_document(document.content, document.source_name)}
    if not texts:
        raise PermanentError("no_text", f"{document.source_name} holds no text to answer from.")
    digests = {text: hashlib.sha256(text.encode()).digest() for text in texts.values()}
    fresh = [text for text, digest in digests.items() if digest not in known]
    vectors = embedder.embed(fresh) if fresh else []
    new = {digests[text]: vector_literal(vector) for text, vector in zip(fresh, vectors, strict=True)}
    return [
        EmbeddedChunk(chunk, document.language, digest, new.get(digest) or known[digest], embedder.model)
        for chunk, digest in ((chunk, digests[text]) for chunk, text in texts.items())
    ]


def replace_chunks(connection: Conn, document: Document, chunks: Sequence[EmbeddedChunk]) -> bool:
    """Swap a document's chunks and set it ready, inside the caller's transaction.

    False, and nothing is changed, when the document was replaced or removed while its chunks were embedded: whoever did so
    has enqueued a job of its own.
    """
    key = {"id": document.id, "content_sha256": document.content_sha256, "language": document.language}
    if connection.execute(MARK_READY, key).rowcount == 0:
        return False
    connection.execute(DELETE_CHUNKS, {"id": document.id})
    rows = [
        {
            "document_id": document.id,
            "ordinal": item.chunk.ordinal,
            "heading_path": list(item.chunk.heading_path),
            "text": item.chunk.text,
            "search_text": embedded_text(item.chunk),
            "language": item.language,
            "content_sha256": item.content_sha256,
            "embedding": item.embedding,
            "embedding_model": item.embedding_model,
        }
        for item in chunks
    ]
    with connection.cursor() as cursor:
        cursor.executemany(INSERT_CHUNK, rows)
    return True


def embed_anew(connection: Conn, embedding_model: str) -> int:
    """Enqueue the documents that were embedded by another model; how many there were."""
    return connection.execute(EMBED_ANEW, {"model": embedding_model}).rowcount


def remove_document(connection: Conn, document_id: UUID, *, who: str) -> str | None:
    """Remove a document with its chunks, audited; its title, or None when there is no such document."""
    with connection.transaction():
        removed = one(connection, REMOVE_DOCUMENT, {"id": document_id})
        if removed is None:
            return None
        title, collection, source_name = map(str, removed)
        audit.record(connection, who=who, what="remove_document", target_type="document", target_id=document_id,
                     title=title, collection=collection, name=source_name)  # fmt: skip
        return title


def fail_document(document_id: UUID, reason: str) -> Write:
    """The write that says why a waiting document could not be embedded; it changes nothing once it waits no more."""
    return Write(FAIL_DOCUMENT, {"id": document_id, "reason": reason[:REASON_LIMIT]})


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document in a list, without its content."""

    id: UUID
    title: str
    language: Language
    collection: str
    source_name: str
    state: str
    reason: str | None
    updated_at: datetime.datetime
    chunks: int


def list_documents(connection: Conn) -> list[ListedDocument]:
    """All documents, by collection and name."""
    with connection.cursor(row_factory=class_row(ListedDocument)) as cursor:
        return cursor.execute(LIST_DOCUMENTS).fetchall()


def vector_literal(vector: Sequence[float]) -> str:
    """A vector as Postgres reads it. Raises PermanentError if it isn't finite."""
    if not all(map(math.isfinite, vector)):
        raise PermanentError("broken_answer", "The model gave a vector with numbers that are not finite.")
    return HalfVector(list(vector)).to_text()
