"""What to do with a conversation's open messages: a pure decision over what was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.conversation.consent import Language, asks_for_person, begins
from shared.conversation.courtesy import asks_nothing, has_words
from shared.conversation.inbound import NO_QUESTION
from shared.conversation.thread import OpenMessage, Thread
from shared.settings import Settings


@dataclass(frozen=True, slots=True)
class Nothing:
    """No answer. `reason` flags the conversation for a person; `is_settled` says that none is due to these messages."""

    reason: str | None = None
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One of the small lines; `reason` flags the conversation for a person."""

    purpose: Literal["decline", "limit", "media", "person", "welcome", "unclear"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question for the documents."""

    text: str


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A question that a person answers: what the documents say is put to that person, not to the employee."""

    text: str


type Decision = Nothing | Line | Question | Suggestion


def decide(thread: Thread, settings: Settings) -> Decision:
    """The rules in their order: consent, a person at work, age, who asks, what is asked, how often."""
    situation = thread.situation
    if thread.ai_reply_already_exists:
        return Nothing()
    if situation.is_opted_out:
        return Nothing(is_settled=True)
    if situation.mode == "manual":
        return _beside_a_person(thread, settings)
    if not thread.fresh:
        return Nothing("too_late")
    if _is_stranger(thread, settings):
        return Nothing(is_settled=True) if situation.declined_today else Line("decline")
    if any(asks_for_person(message.body) for message in thread.fresh):
        return Line("person", "asked")
    if not (asking := [message for message in thread.fresh if not _is_courtesy(message)]):
        return Nothing(is_settled=True)
    if all(begins(message.body) for message in asking):
        return Line("welcome")
    if situation.answers_today >= settings.sender_daily_limit:
        return Nothing("limit", is_settled=True) if situation.limited_today else Line("limit", "limit")
    if not thread.text:
        return Line("media", "media")
    if not has_words(thread.text):
        return Line("unclear")
    return Question(thread.text)


def _beside_a_person(thread: Thread, settings: Settings) -> Decision:
    """Strangers, words for the person, and what exceeds the day's limit cost no model call here either."""
    is_no_question = (
        not has_words(thread.text)
        or any(asks_for_person(message.body) for message in thread.fresh)
        or all(_is_courtesy(message) or begins(message.body) for message in thread.fresh)
    )
    is_enough = thread.situation.drafts_today > settings.sender_daily_limit
    if is_no_question or is_enough or _is_stranger(thread, settings):
        return Nothing("manual")
    return Suggestion(thread.text)


def _is_courtesy(message: OpenMessage) -> bool:
    """Thanks, a thumb under a message, or one taken back: none asks anything."""
    return asks_nothing(message.body) or any(item.get("type") in NO_QUESTION for item in message.media)


def _is_stranger(thread: Thread, settings: Settings) -> bool:
    return not thread.situation.is_known and settings.unknown_senders == "decline"


def language_of(thread: Thread, detected: Language | None, default: Language) -> Language:
    """The message's own language; when unsure the conversation's, the person's, the default."""
    for language in (detected, thread.situation.language, thread.situation.person_language):
        match language:
            case "nl" | "en":
                return language
    return default
