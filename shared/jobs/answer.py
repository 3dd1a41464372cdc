"""From a question to the text of its answer: retrieve, ask the model, ground; or say honestly that the documents do not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.clients.azure_openai import Answer
from shared.conversation import words
from shared.conversation.consent import Language
from shared.conversation.thread import Thread
from shared.jobs.services import Services
from shared.knowledge.followup import with_earlier
from shared.knowledge.ground import ground
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
    parameters: Mapping[str, Any] | None = None
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
        return _unanswered(notice, language)
    prompt = build_prompt(question=question, language=language, hits=hits, history=_turns(thread))
    answer = services.chat.answer(prompt.messages)
    # Of an answer that was cut off nobody knows what it still had to say: a condition, an exception, "not".
    grounded = ground(answer.text, prompt.sources, language) if answer.is_whole else None
    if grounded is None:
        return _unanswered(notice, language, answer, prompt)
    return Drafted(
        body=notice + grounded.body,
        purpose="answer",
        language=language,
        citations=[citation.as_json() for citation in grounded.citations],
        model=answer.model,
        prompt_version=prompt.version,
        sources_hash=prompt.sources_hash,
        parameters=answer.parameters,
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


def _unanswered(notice: str, language: Language, answer: Answer | None = None, prompt: Prompt | None = None) -> Drafted:
    return Drafted(
        body=notice + words.line("unanswered", language),
        purpose="unanswered",
        language=language,
        model=answer.model if answer else None,
        prompt_version=prompt.version if prompt else None,
        sources_hash=prompt.sources_hash if prompt else None,
        parameters=answer.parameters if answer else None,
        reason="unanswered",
    )


def _turns(thread: Thread) -> list[Turn]:
    return [Turn(from_self, text) for from_self, text in thread.history]


def _notice(services: Services, thread: Thread, language: Language) -> str:
    """The lines above an answer: that a digital assistant gives it (first in a conversation, and again after 30 days), and
    that something was sent along which nobody has looked at."""
    is_due = services.settings.ai_notice and not thread.situation.was_told
    return (words.notice(language) if is_due else "") + (words.unseen(language) if thread.has_unseen else "")
