"""What to do with a conversation's open messages: a pure decision over what was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.conversation.consent import Language, asks_for_person
from shared.conversation.thread import Thread
from shared.settings import Settings


@dataclass(frozen=True, slots=True)
class Nothing:
    """No answer. `reason` flags the conversation for a person; `is_settled` says that none is due to these messages."""

    reason: str | None = None
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One of the small lines; `reason` flags the conversation for a person."""

    purpose: Literal["decline", "limit", "media", "person"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question for the documents."""

    text: str


type Decision = Nothing | Line | Question


def decide(thread: Thread, settings: Settings) -> Decision:
    """The rules in their order: consent, age, a person at work, who asks, what is asked, how often."""
    situation = thread.situation
    if not thread.open:
        return Nothing()
    if situation.is_opted_out:
        return Nothing(is_settled=True)
    if not thread.fresh:
        return Nothing("too_late")
    if situation.mode == "manual":
        return Nothing("manual")
    if not situation.is_known and settings.unknown_senders == "decline":
        return Nothing(is_settled=True) if situation.declined_today else Line("decline")
    if any(asks_for_person(message.body) for message in thread.fresh):
        return Line("person", "asked")
    if situation.answers_today >= settings.sender_daily_limit:
        return Nothing(is_settled=True) if situation.limited_today else Line("limit", "limit")
    if not thread.text:
        return Line("media", "media")
    return Question(thread.text)


def language_of(thread: Thread, detected: Language | None, default: Language) -> Language:
    """The message's own language; when unsure the conversation's, the person's, the default."""
    for language in (detected, thread.situation.language, thread.situation.person_language):
        match language:
            case "nl" | "en":
                return language
    return default
