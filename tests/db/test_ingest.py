"""Documents in the database: added once, embedded once, swapped whole, and never from a content that is not there any more."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from uuid import UUID, uuid4

import psycopg
import pytest

from shared.db.pool import Conn, Database, one
from shared.errors import PermanentError
from shared.knowledge import Language
from shared.knowledge.ingest import (
    Document,
    add_document,
    embed_anew,
    embed_document,
    fail_document,
    known_embeddings,
    list_documents,
    read_document,
    replace_chunks,
    vector_literal,
)
from shared.knowledge.upload import NewDocument, read_upload

JOBS = "SELECT payload FROM ai_jobs WHERE payload ->> 'id' = %(id)s ORDER BY seq"
CHUNKS = "SELECT ordinal, heading_path, text, search_text FROM chunks WHERE document_id = %(id)s ORDER BY ordinal"
CLEAR = "TRUNCATE documents, ai_jobs CASCADE"


class CountingEmbedder:
    """Remembers what it was asked to embed; the vector says how often."""

    def __init__(self, model: str = "counting", width: int = 1536) -> None:
        self.model = model
        self.width = width
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += texts
        return [[1.0, *([0.25] * (self.width - 1))] for _ in texts]


@pytest.fixture(autouse=True)
def _empty(database: Database) -> None:
    with database.connection() as connection:
        connection.execute(CLEAR)


def new(content: str, name: str = "regels.md", language: Language = "nl", collection: str = "") -> NewDocument:
    return read_upload(name, content.encode(), language, collection, detect=lambda text: None)


def stored(connection: Conn, document_id: UUID) -> Document:
    document = read_document(connection, document_id)
    assert document is not None
    return document


def embed(connection: Conn, document_id: UUID, embedder: CountingEmbedder) -> bool:
    document = stored(connection, document_id)
    chunks = embed_document(document, known_embeddings(connection, document_id, embedder.model), embedder)
    with connection.transaction():
        return replace_chunks(connection, document, chunks)


def test_adding_enqueues_one_job(database: Database) -> None:
    with database.connection() as connection:
        added = add_document(connection, new("# Regels\ntekst"))
        document = stored(connection, added.id)
        assert added.outcome == "added"
        assert (document.title, document.state, document.language, document.collection) == (
            "Regels",
            "waiting",
            "nl",
            "",
        )
        payload = {"type": "embed_record", "record": "document", "id": str(added.id)}
        assert connection.execute(JOBS, {"id": str(added.id)}).fetchall() == [(payload,)]
        assert read_document(connection, uuid4()) is None


def test_adding_again_replaces_or_changes_nothing(database: Database) -> None:
    with database.connection() as connection:
        first = add_document(connection, new("# Regels\ntekst"))
        embed(connection, first.id, CountingEmbedder())
        assert stored(connection, first.id).state == "ready"

        again = add_document(connection, new("# Regels\ntekst"))
        assert (again.id, again.outcome, stored(connection, first.id).state) == (first.id, "unchanged", "ready")

        changed = add_document(connection, new("# Regels 2\nandere tekst"))
        document = stored(connection, first.id)
        assert (changed.id, changed.outcome, document.state, document.title) == (
            first.id,
            "replaced",
            "waiting",
            "Regels 2",
        )
        assert add_document(connection, new("# Regels 2\nandere tekst", language="en")).outcome == "replaced"
        assert len(connection.execute(JOBS, {"id": str(first.id)}).fetchall()) == 3

        other = add_document(connection, new("# Regels\ntekst", collection="hr"))
        assert other.outcome == "added"
        assert other.id != first.id


def failed(connection: Conn, document_id: UUID, reason: str) -> bool:
    write = fail_document(document_id, reason)
    return connection.execute(write.sql, write.parameters).rowcount > 0


def test_a_failed_document_is_tried_again(database: Database) -> None:
    with database.connection() as connection:
        added = add_document(connection, new("tekst"))
        assert failed(connection, added.id, "het model bestaat niet " * 100)
        listed = list_documents(connection)[0]
        assert (listed.state, listed.chunks) == ("failed", 0)
        assert listed.reason
        assert len(listed.reason) == 500
        assert not failed(connection, added.id, "nog eens")
        assert add_document(connection, new("tekst")).outcome == "replaced"
        assert (stored(connection, added.id).state, list_documents(connection)[0].reason) == ("waiting", None)


def test_document_and_job_are_one_transaction(database: Database) -> None:
    with database.connection() as connection:
        connection.execute("ALTER TABLE ai_jobs RENAME TO away")
        try:
            with pytest.raises(psycopg.errors.UndefinedTable):
                add_document(connection, new("tekst"))
        finally:
            connection.execute("ALTER TABLE away RENAME TO ai_jobs")
        assert list_documents(connection) == []


def test_twenty_at_once_make_one_document_and_one_job(database: Database) -> None:
    outcomes: list[str] = []

    def add() -> None:
        with database.connection(wait=20) as connection:
            outcomes.append(add_document(connection, new("# Regels\ntekst")).outcome)

    threads = [threading.Thread(target=add) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["added"] + ["unchanged"] * 19
    with database.connection() as connection:
        assert one(connection, "SELECT count(*) FROM ai_jobs") == (1,)


def test_chunks_hold_what_was_embedded(database: Database) -> None:
    embedder = CountingEmbedder()
    with database.connection() as connection:
        added = add_document(connection, new("Vooraf.\n\n# Boek\n\n## Verlof\n\nTien dagen.\n"))
        assert embed(connection, added.id, embedder)
        assert connection.execute(CHUNKS, {"id": added.id}).fetchall() == [
            (0, [], "Vooraf.", "Vooraf."),
            (1, ["Boek", "Verlof"], "Tien dagen.", "Boek › Verlof\nTien dagen."),
        ]
        assert embedder.texts == ["Vooraf.", "Boek › Verlof\nTien dagen."]
        assert [(document.state, document.chunks) for document in list_documents(connection)] == [("ready", 2)]


def test_the_same_content_is_embedded_once(database: Database) -> None:
    embedder = CountingEmbedder()
    with database.connection() as connection:
        added = add_document(connection, new("# A\n\neen\n\n# B\n\ntwee\n\n# A\n\neen\n"))
        embed(connection, added.id, embedder)
        assert embedder.texts == ["A\neen", "B\ntwee"]

        add_document(connection, new("# B\n\ntwee\n\n# C\n\ndrie\n"))
        embed(connection, added.id, embedder)
        assert embedder.texts == ["A\neen", "B\ntwee", "C\ndrie"]
        assert [row[2] for row in connection.execute(CHUNKS, {"id": added.id})] == ["twee", "drie"]

        other = CountingEmbedder("other")
        embed(connection, added.id, other)
        assert other.texts == ["B\ntwee", "C\ndrie"]


def test_a_content_that_was_replaced_meanwhile_is_not_swapped_in(database: Database) -> None:
    embedder = CountingEmbedder()
    with database.connection() as connection:
        added = add_document(connection, new("oud"))
        document = stored(connection, added.id)
        chunks = embed_document(document, {}, embedder)
        add_document(connection, new("nieuw"))
        assert not replace_chunks(connection, document, chunks)
        assert stored(connection, added.id).state == "waiting"
        assert connection.execute(CHUNKS, {"id": added.id}).fetchall() == []


def test_two_jobs_of_one_document_end_with_one_set(database: Database) -> None:
    with database.connection() as connection:
        added = add_document(connection, new("# A\n\neen\n\n# B\n\ntwee"))
        document = stored(connection, added.id)
    chunks = embed_document(document, {}, CountingEmbedder())
    together = threading.Barrier(4)

    def swap() -> None:
        together.wait(timeout=30)
        with database.transaction() as mine:
            replace_chunks(mine, document, chunks)

    threads = [threading.Thread(target=swap) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.connection() as connection:
        assert len(connection.execute(CHUNKS, {"id": added.id}).fetchall()) == 2


def test_a_swap_that_fails_leaves_the_old_chunks(database: Database) -> None:
    with database.connection() as connection:
        added = add_document(connection, new("oud"))
        embed(connection, added.id, CountingEmbedder())
        add_document(connection, new("nieuw"))
        with pytest.raises(psycopg.DataError):
            embed(connection, added.id, CountingEmbedder("narrow", width=3))
        assert [row[2] for row in connection.execute(CHUNKS, {"id": added.id})] == ["oud"]
        assert stored(connection, added.id).state == "waiting"


def test_a_large_document_is_swapped_within_the_statement_limit(database: Database) -> None:
    text = "".join(f"# Kop {n}\n\n{'Een zin over verlof. ' * 55}\n\n" for n in range(600))
    with database.connection() as connection:
        added = add_document(connection, new(text))
        assert embed(connection, added.id, CountingEmbedder())
        assert list_documents(connection)[0].chunks == 600


def test_a_document_without_text_is_buried() -> None:
    document = Document(uuid4(), "Kop", "# Kop", b"", "nl", "", "kop.md", "waiting")
    with pytest.raises(PermanentError, match="no text"):
        embed_document(document, {}, CountingEmbedder())


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_broken_vectors_are_refused(number: float) -> None:
    with pytest.raises(PermanentError, match="not finite"):
        vector_literal([0.1, number])


def test_after_a_change_of_model_what_the_old_one_embedded_is_embedded_anew_once(database: Database) -> None:
    with database.connection() as connection:
        added = add_document(connection, new("# Regels\ntekst"))
        embed(connection, added.id, CountingEmbedder("old"))
        assert embed_anew(connection, "old") == 0
        assert embed_anew(connection, "new") == 1
        assert embed_anew(connection, "new") == 0
        assert len(connection.execute(JOBS, {"id": str(added.id)}).fetchall()) == 2
        embedder = CountingEmbedder("new")
        assert embed(connection, added.id, embedder)
        assert len(embedder.texts) == 1
        assert embed_anew(connection, "new") == 0
        assert stored(connection, added.id).state == "ready"
