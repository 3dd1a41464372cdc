"""What retrieval finds for a question, and why: so that who adds documents can see what an answer would be made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

from shared import telemetry
from shared.clients.deadline import deadline
from shared.conversation.language import detect
from shared.errors import Failure, classify
from shared.knowledge import Language
from shared.knowledge.ingest import vector_literal
from shared.knowledge.search import HITS, Hit, floor_for, search
from shared.ops.routes import Route, page
from shared.ops.visit import Visit
from shared.ops.words import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared.clients.azure_openai import Embedder

EMBEDDING_SECONDS = 6.0  # a person waits, and one of the console's few threads with them
QUESTION_CHARACTERS = 1000
METER_WIDTH = 120  # of the drawing; cosines from 0 to 1


@dataclass(frozen=True, slots=True)
class Found:
    """A hit with its figures in words: `near` is how far the meter goes."""

    hit: Hit
    cosine: str
    text_rank: str
    score: str
    near: float
    is_above: bool
    is_own_language: bool


def ask(visit: Visit) -> Response:
    """The question, and what it finds."""
    question = visit.query.text("q", QUESTION_CHARACTERS)
    if question is None:
        return visit.page("documents/search.html", question=None)
    told = detect(question)
    language: Language = told or visit.settings.default_language
    answer = embedded(visit.services.embedder, question)
    if isinstance(answer, Failure):
        telemetry.warning("console_search_failed", error_class=answer.error_class)
        return visit.page("documents/search.html", question=question, failure=answer)
    model, vector = answer
    with visit.database.connection() as connection:
        hits = search(
            connection, question=question, embedding=vector, embedding_model=model, language=language, asker=None
        )
    floor = floor_for(model, visit.settings.retrieval_floor)
    found = [_in_words(visit.words, hit, floor, language) for hit in hits]
    return visit.page(
        "documents/search.html", question=question, failure=None, found=found, most=HITS, language=language, told=told,
        floor=decimal(visit.words, floor, 2), mark=_along(floor), is_answered=any(row.is_above for row in found),
    )  # fmt: skip


def embedded(
    open_embedder: Callable[[], Embedder], question: str, seconds: float = EMBEDDING_SECONDS
) -> tuple[str, Sequence[float]] | Failure:
    """The model's name and the question's vector within `seconds`, or what went wrong: whatever it is, it is told."""
    try:
        embedder = open_embedder()
        with deadline(seconds):
            vector = embedder.embed([question])[0]
        vector_literal(vector)
    except Exception as error:  # noqa: BLE001 - the model's libraries raise what they like
        return classify(error)
    return embedder.model, vector


def decimal(words: Words, value: float, digits: int) -> str:
    """0.123, or 0,123 in Dutch."""
    shown = f"{value:.{digits}f}"
    return shown.replace(".", ",") if words.language == "nl" else shown


def _in_words(words: Words, hit: Hit, floor: float, language: Language) -> Found:
    return Found(
        hit=hit,
        cosine=decimal(words, hit.cosine, 3),
        text_rank=decimal(words, hit.text_rank, 3),
        score=decimal(words, hit.score, 3),
        near=_along(hit.cosine),
        is_above=hit.cosine >= floor,
        is_own_language=hit.language == language,
    )


def _along(cosine: float) -> float:
    return round(min(max(cosine, 0.0), 1.0) * METER_WIDTH, 1)


ROUTES: tuple[Route, ...] = (page("/documents/search", ask),)
