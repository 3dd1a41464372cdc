"""A conversation's messages as its page shows them: by day, each with the sources that its text cites. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from shared.conversation.detail import Conversation, Drafting, Message
from shared.conversation.suggestions import Suggestion
from shared.knowledge.passages import Passage
from shared.ops.times import local

_MEDIA = ("image", "audio", "video", "text", "application")


@dataclass(frozen=True, slots=True)
class Source:
    """One number of an answer's source line. `passages` are those of its chunks that still exist."""

    number: int
    label: str
    document_id: UUID | None
    passages: list[Passage]


@dataclass(frozen=True, slots=True)
class Day:
    """The messages of one day, oldest first."""

    moment: datetime
    messages: list[Message]


def by_day(messages: Iterable[Message]) -> list[Day]:
    """The messages, parted at midnight on the clock that the pages show."""
    parted = itertools.groupby(messages, key=lambda message: local(message.created_at).date())
    return [Day(found[0].created_at, found) for _, group in parted if (found := list(group))]


def with_job(messages: Sequence[Message]) -> set[UUID]:
    """The messages that a job is shown beside: of several that one job is for, the last."""
    return {of_job.id for of_job in {message.job_id: message for message in messages if message.job_id}.values()}


def clock(moment: datetime) -> str:
    """The time of day."""
    return f"{local(moment):%H:%M}"


def chunk_ids(cited: Iterable[Sequence[Mapping[str, Any]]]) -> list[UUID]:
    """The chunks of several texts' citations."""
    return [UUID(name) for citations in cited for citation in citations for name in citation["chunk_ids"]]


def sources(citations: Sequence[Mapping[str, Any]], passages: Mapping[UUID, Passage]) -> list[Source]:
    """What a text cites, with what is there to read."""
    return [
        Source(
            citation["number"],
            citation["label"],
            UUID(citation["document_id"]) if citation["document_id"] else None,
            [passages[UUID(name)] for name in citation["chunk_ids"] if UUID(name) in passages],
        )
        for citation in citations
    ]


def kinds_of_media(message: Message) -> list[str]:
    """What was attached, as words of the catalogue: image, audio, video, application (a file), or what it is called."""
    named = [str(item.get("type", "")) for item in message.media]
    return [name.split("/")[0] if name.split("/")[0] in _MEDIA else name or "unknown" for name in named]


def progress(conversation: Conversation, drafting: Drafting | None, suggestion: Suggestion | None) -> str | None:
    """How it stands with the suggestion that was asked for last: making, failed, nothing (was found), or no word."""
    if drafting is None:
        return None
    if drafting.state in ("pending", "processing"):
        return "making" if drafting.type == "suggest" or conversation.mode == "manual" else None
    if drafting.state == "failed" and (suggestion is None or suggestion.created_at < drafting.created_at):
        return "failed"
    found_nothing = drafting.state == "done" and not drafting.has_suggestion and suggestion is None
    return "nothing" if found_nothing and conversation.needs_person_reason == "unanswered" else None
