"""From a question to the text of its answer: retrieve, ask the model, ground; or say honestly that the documents do not say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shared.conversation import words
from shared.conversation.consent import Language
from shared.conversation.text import MESSAGE_UNITS, shorten, utf16_units
from shared.conversation.thread import Thread
from shared.jobs.services import Services
from shared.knowledge.followup import with_earlier
from shared.knowledge.ground import Grounded, ground
from shared.knowledge.prompt import Prompt, Turn, build_prompt
from shared.knowledge.search import Hit, floor_for, is_relevant, search


@dataclass(frozen=True, slots=True)
class Drafted:
    """An answer that may be saved; `reason` flags the conversation for a person."""

    body: str
    purpose: str
    language: Language
    citations: Sequence[dict[str, Any]] = ()
    model: str | None = None
    prompt_version: str | None = None
    sources_hash: str | None = None
    reason: str | None = None


def make_answer(
    services: Services, thread: Thread, question: str, language: Language, *, for_person: bool = False
) -> Drafted:
    """Answer a question from what its asker may see. Raises what the model's client raises.

    What a person will look at first (`for_person`) does not say that a digital assistant answers.
    """
    notice = "" if for_person else _notice(services, thread, language)
    hits = _retrieve(services, thread, question, language)
    if not hits:
        return _unanswered(notice, language, None, None)
    prompt = build_prompt(question=question, language=language, hits=hits, history=_turns(thread))
    answer = services.chat.answer(prompt.messages)
    grounded = ground(answer.text, prompt.sources, language)
    if grounded is None:
        return _unanswered(notice, language, answer.model, prompt)
    return Drafted(
        body=_fitted(grounded, notice),
        purpose="answer",
        language=language,
        citations=[citation.as_json() for citation in grounded.citations],
        model=answer.model,
        prompt_version=prompt.version,
        sources_hash=prompt.sources_hash,
    )


def _retrieve(services: Services, thread: Thread, question: str, language: Language) -> list[Hit]:
    """The chunks for the prompt; none when not even the nearest is near enough to ask the model."""
    earlier = next((text for from_self, text in reversed(thread.history) if not from_self), None)
    query = with_earlier(question, earlier)
    model = services.embedder.model
    embedding = services.embedder.embed([query])[0]
    with services.database.connection() as connection:
        hits = search(
            connection,
            question=query,
            embedding=embedding,
            embedding_model=model,
            language=language,
            asker=thread.situation.person_id if thread.situation.is_known else None,
        )
    return hits if is_relevant(hits, floor_for(model, services.settings.retrieval_floor)) else []


def _unanswered(notice: str, language: Language, model: str | None, prompt: Prompt | None) -> Drafted:
    return Drafted(
        body=notice + words.line("unanswered", language),
        purpose="unanswered",
        language=language,
        model=model,
        prompt_version=prompt.version if prompt else None,
        sources_hash=prompt.sources_hash if prompt else None,
        reason="unanswered",
    )


def _turns(thread: Thread) -> list[Turn]:
    return [Turn(from_self, text) for from_self, text in thread.history]


def _notice(services: Services, thread: Thread, language: Language) -> str:
    """The line that a digital assistant answers: first in a conversation, and again after 30 days."""
    if not services.settings.ai_notice or thread.situation.was_told:
        return ""
    return words.notice(language)


def _fitted(grounded: Grounded, notice: str) -> str:
    """One message: the text is shortened if it must be, the notice and the line of sources stay whole."""
    text, _, sources = grounded.body.rpartition("\n\n")
    sources = shorten(sources, MESSAGE_UNITS // 2)
    room = MESSAGE_UNITS - utf16_units(f"{notice}\n\n{sources}")
    return f"{notice}{shorten(text, room)}\n\n{sources}"
