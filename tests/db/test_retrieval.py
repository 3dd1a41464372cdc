"""The demo handbooks through a real database and the stand-in's encoder: questions find their section, in their language."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from local.standins.encoder import ENCODER, widen
from shared.conversation.language import detect
from shared.db.pool import Database
from shared.knowledge import Language
from shared.knowledge.ingest import add_document, embed_document, read_document, replace_chunks
from shared.knowledge.search import Hit, floor_for, is_relevant, search
from shared.knowledge.upload import read_upload

DEMO = Path(__file__).parents[2] / "local" / "demo"


class StandinEmbedder:
    """The stand-in's encoder, without its server."""

    model = "standin-embedding"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        rows: list[list[float]] = widen(ENCODER.encode(texts), 1536).tolist()
        return rows


EMBEDDER = StandinEmbedder()


def questions() -> list[tuple[str, Language, str]]:
    """Question, language and the heading of the section that answers it (empty: none does)."""
    with (DEMO / "questions.csv").open(encoding="utf-8", newline="") as file:
        return [
            (row["question"], "nl" if row["language"] == "nl" else "en", row["section_heading"].strip())
            for row in csv.DictReader(file)
        ]


@pytest.fixture(scope="module")
def found(database: Database) -> dict[str, list[Hit]]:
    """The hits of every question, searched in the language that the question is detected to be in."""
    asked = [question for question, _, _ in questions()]
    for path in sorted((DEMO / "handbook").glob("*.md")):
        with database.connection() as connection:
            added = add_document(connection, read_upload(path.name, path.read_bytes(), None, "", detect=detect))
            document = read_document(connection, added.id)
        assert document is not None
        chunks = embed_document(document, {}, EMBEDDER)  # takes long, and nobody holds a connection for long
        with database.transaction() as connection:
            assert replace_chunks(connection, document, chunks)
    vectors = EMBEDDER.embed(asked)
    with database.connection(deadline=90) as connection:
        return {
            question: search(
                connection,
                question=question,
                embedding=vector,
                embedding_model=EMBEDDER.model,
                language=detect(question) or "nl",
                asker=None,
            )
            for question, vector in zip(asked, vectors, strict=True)
        }


def test_questions_are_recognised_as_dutch_or_english() -> None:
    assert [question for question, language, _ in questions() if detect(question) != language] == []


def test_the_right_section_is_among_eight(found: dict[str, list[Hit]]) -> None:
    answerable = [(question, language, heading) for question, language, heading in questions() if heading]
    missed = [
        question
        for question, language, heading in answerable
        if not any(hit.heading_path[-1:] == [heading] and hit.language == language for hit in found[question])
    ]
    assert len(answerable) >= 30
    assert len(missed) <= 3, missed


def test_the_best_hit_is_in_the_questions_language(found: dict[str, list[Hit]]) -> None:
    for question, language, heading in questions():
        if heading:
            assert found[question][0].language == language, question


def test_the_floor_lets_every_answerable_question_through(found: dict[str, list[Hit]]) -> None:
    floor = floor_for(EMBEDDER.model, None)
    relevant = {question: is_relevant(hits, floor) for question, hits in found.items()}
    assert all(relevant[question] for question, _, heading in questions() if heading)
    assert not all(relevant[question] for question, _, heading in questions() if not heading)
