"""Search: bound to the asker, never across models, in both languages, whatever the question holds."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from shared.db.pool import Conn, Database, one
from shared.knowledge import Language
from shared.knowledge.ingest import vector_literal
from shared.knowledge.search import FLOORS, Hit, floor_for, is_relevant, search

ADD_PERSON = "INSERT INTO people (phone, name) VALUES (%(phone)s, %(name)s) RETURNING id"
ADD_CHUNK = """
    INSERT INTO chunks (document_id, person_id, ordinal, heading_path, text, search_text, language, content_sha256, embedding,
        embedding_model)
    VALUES (%(document_id)s, %(person_id)s, 0, '{}', %(text)s, %(text)s, %(language)s, '', %(embedding)s::halfvec, %(model)s)
"""
ADD_DOCUMENT = """
    INSERT INTO documents (title, content, content_sha256, language, collection, source_name, state)
    VALUES (%(name)s, '', '', 'nl', %(collection)s, %(name)s, %(state)s) RETURNING id
"""
CLEAR = "TRUNCATE documents, people, ai_jobs CASCADE"


def axis(number: int, lean: float = 0.0) -> list[float]:
    """A vector along one axis, turned a little towards axis 0."""
    return [lean if place == 0 else float(place == number) for place in range(1536)]


def add_chunk(
    connection: Conn,
    text: str,
    vector: list[float],
    *,
    person_id: UUID | None = None,
    language: Language = "nl",
    model: str = "m",
    state: str = "ready",
    collection: str = "",
) -> None:
    document_id = None
    if person_id is None:
        row = one(connection, ADD_DOCUMENT, {"name": str(uuid4()), "collection": collection, "state": state})
        assert row is not None
        document_id = row[0]
    values = {"document_id": document_id, "person_id": person_id, "text": text, "language": language}
    connection.execute(ADD_CHUNK, {**values, "embedding": vector_literal(vector), "model": model})


def ask(
    connection: Conn,
    question: str,
    vector: list[float],
    *,
    asker: UUID | None = None,
    language: Language = "nl",
    collection: str | None = None,
    limit: int = 8,
) -> list[Hit]:
    return search(
        connection,
        question=question,
        embedding=vector,
        embedding_model="m",
        language=language,
        asker=asker,
        collection=collection,
        limit=limit,
    )


def texts(hits: list[Hit]) -> list[str]:
    return [hit.text for hit in hits]


@pytest.fixture
def connection(database: Database) -> Iterator[Conn]:
    with database.connection() as lent:
        lent.execute(CLEAR)
        yield lent


def test_private_chunks_are_found_only_by_their_person(connection: Conn) -> None:
    people: list[UUID] = []
    for number in (1, 2):
        row = one(connection, ADD_PERSON, {"phone": f"+3161234567{number}", "name": f"p{number}"})
        assert row is not None
        people.append(row[0])
        add_chunk(connection, f"Saldo verlof van p{number}: {number}0 uur", axis(1), person_id=people[-1])
    add_chunk(connection, "Verlof voor iedereen", axis(2, 0.5))

    question = "saldo verlof"
    assert sorted(texts(ask(connection, question, axis(1), asker=people[0]))) == [
        "Saldo verlof van p1: 10 uur",
        "Verlof voor iedereen",
    ]
    assert sorted(texts(ask(connection, question, axis(1), asker=people[1]))) == [
        "Saldo verlof van p2: 20 uur",
        "Verlof voor iedereen",
    ]
    assert texts(ask(connection, question, axis(1), asker=None)) == ["Verlof voor iedereen"]
    assert texts(ask(connection, question, axis(1), asker=uuid4())) == ["Verlof voor iedereen"]
    own = ask(connection, question, axis(1), asker=people[0])[0]
    assert (own.document_id, own.document_title) == (None, "")


def test_models_are_never_mixed(connection: Conn) -> None:
    add_chunk(connection, "verlof nieuw", axis(1))
    add_chunk(connection, "verlof oud", axis(1), model="other")
    assert texts(ask(connection, "verlof", axis(1))) == ["verlof nieuw"]


def test_waiting_documents_are_found_and_failed_ones_are_not(connection: Conn) -> None:
    for state in ("ready", "waiting", "failed"):
        add_chunk(connection, state, axis(1), state=state)
    assert sorted(texts(ask(connection, "x", axis(1)))) == ["ready", "waiting"]


def test_a_collection_narrows(connection: Conn) -> None:
    add_chunk(connection, "hr", axis(1), collection="hr")
    add_chunk(connection, "it", axis(1), collection="it")
    assert texts(ask(connection, "x", axis(1), collection="it")) == ["it"]
    assert len(ask(connection, "x", axis(1))) == 2


def test_any_one_word_is_enough_in_both_dictionaries(connection: Conn) -> None:
    add_chunk(connection, "De fietsen staan in de kelder", axis(900))
    add_chunk(connection, "Bicycles are parked downstairs", axis(901), language="en")
    for number in range(60):  # nearer by their vectors, so that only words can bring the two up
        add_chunk(connection, f"iets anders {number}", axis(0, 1.0))
    dutch = ask(connection, "hoe kom ik in de kelders van het pand", axis(0, 1.0))
    assert [hit.text for hit in dutch if hit.text_rank > 0] == ["De fietsen staan in de kelder"]
    assert dutch[0].text_rank == 0  # one list alone counts less than the first of the vectors
    english = ask(connection, "who parks a bicycle here?", axis(0, 1.0), language="en")
    assert [hit.text for hit in english if hit.text_rank > 0] == ["Bicycles are parked downstairs"]
    assert all(hit.cosine == pytest.approx(1.0, abs=1e-3) for hit in english if hit.text_rank == 0)


def test_both_lists_together_win(connection: Conn) -> None:
    add_chunk(connection, "alleen dichtbij", axis(1))
    add_chunk(connection, "fiets en dichtbij", axis(1, 0.2))
    add_chunk(connection, "fiets ver weg", axis(7))
    hits = ask(connection, "fiets", axis(1))
    assert texts(hits)[0] == "fiets en dichtbij"
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(isinstance(value, float) for hit in hits for value in (hit.cosine, hit.text_rank, hit.score))


def test_the_readers_language_wins_when_both_say_it(connection: Conn) -> None:
    add_chunk(connection, "badge", axis(1, 0.05), language="nl")
    add_chunk(connection, "badge", axis(1), language="en")
    assert [hit.language for hit in ask(connection, "badge", axis(1), language="nl")] == ["nl", "en"]
    assert [hit.language for hit in ask(connection, "badge", axis(1), language="en")] == ["en", "nl"]


@pytest.mark.parametrize(
    "question",
    [
        "", "   ", "?!", "👍", "de het een", "'; DROP TABLE chunks; --", "a & b | !c <-> d:*", "(((", "\\' \\\\ :*A",
        "https://example.org/a?x=1&y=2|z'\\", "nul\0 en \ud800 en \u202e", "%s %(asker)s {}", "woord " * 5000, "x" * 20_000,
        "it's o'clock", "مرحبا كيف",
    ],
)  # fmt: skip
def test_any_question_is_searched(connection: Conn, question: str) -> None:
    add_chunk(connection, "it's o'clock at https://example.org/a?x=1&y=2", axis(1), language="en")
    assert len(ask(connection, question, axis(1))) == 1


def test_quoted_words_match(connection: Conn) -> None:
    add_chunk(connection, "See https://example.org/a?x=1&y=2 for the form", axis(1), language="en")
    assert ask(connection, "what is https://example.org/a?x=1&y=2", axis(1))[0].text_rank > 0


def test_nothing_stored_nothing_found(connection: Conn) -> None:
    assert ask(connection, "verlof", axis(1)) == []
    assert not is_relevant([], 0.0)


def test_the_limit_holds(connection: Conn) -> None:
    for number in range(20):
        add_chunk(connection, f"verlof {number}", axis(1))
    assert len(ask(connection, "verlof", axis(1))) == 8
    assert len(ask(connection, "verlof", axis(1), limit=3)) == 3


def test_floors() -> None:
    assert floor_for("standin-embedding", None) == 0.16
    assert floor_for("prod-Text-Embedding-3-Small", None) == FLOORS["text-embedding-3-small"]
    assert floor_for("embeddings", None) == min(FLOORS.values())
    assert floor_for("standin-embedding", 0.0) == 0.0


def test_relevance_is_the_nearest_hits(connection: Conn) -> None:
    add_chunk(connection, "dichtbij", axis(1, 0.5))
    add_chunk(connection, "ver", axis(9))
    hits = ask(connection, "zomaar", axis(1))
    assert is_relevant(hits, 0.8)
    assert not is_relevant(hits, 0.95)
