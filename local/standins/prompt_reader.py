"""Reads the prompt that the application writes: numbered sources, history, question, and what is outside of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_SOURCE = re.compile(r'<source n="(\d+)" title="([^">]*)">\n?(.*?)</source>', re.DOTALL)
_HISTORY = re.compile(r"<history>\n?(.*?)</history>", re.DOTALL)
_QUESTION = re.compile(r'<question language="([a-z]{2})">\n?(.*?)</question>', re.DOTALL)
_SMALL_DUTCH = (
    "de het een en van is dat niet je ik we hoe wat wie waar hoeveel wanneer mag kan moet krijg heb voor met op aan om "
    "bij naar uit als ook nog geen mijn jouw onze zijn wordt worden door over dan er te deze dit welke weer"
)
_SMALL_ENGLISH = (
    "the a an and of is that not you i we how what who where many much when may can must get have for with on at to "
    "by from if also no my your our are be been by over than there this these those which do does it in or will"
)
_DUTCH, _ENGLISH = frozenset(_SMALL_DUTCH.split()), frozenset(_SMALL_ENGLISH.split())


@dataclass(frozen=True, slots=True)
class Source:
    """One numbered source."""

    number: int
    title: str
    text: str


@dataclass(slots=True)
class Prompt:
    """The parts of a user message; `outside` is the text that is in none of them."""

    question: str = ""
    language: str = "nl"
    history: str = ""
    sources: list[Source] = field(default_factory=list)
    outside: str = ""


def read_prompt(messages: Sequence[Mapping[str, Any]]) -> Prompt:
    """Read the last user message. A question or history that is not the last one does not count as such."""
    text = next((text_of(message) for message in reversed(messages) if message.get("role") == "user"), "")
    prompt = Prompt()
    rest = text
    for found in _SOURCE.finditer(text):
        prompt.sources.append(Source(int(found[1]), found[2].strip(), found[3].strip()))
    rest = _SOURCE.sub("\n", rest)
    questions, histories = list(_QUESTION.finditer(rest)), list(_HISTORY.finditer(rest))
    if questions:
        prompt.language, prompt.question = questions[-1][1], questions[-1][2].strip()
    if histories:
        prompt.history = histories[-1][1].strip()
    for found in sorted(questions[-1:] + histories[-1:], key=lambda found: -found.start()):
        rest = rest[: found.start()] + "\n" + rest[found.end() :]
    prompt.outside = rest.strip()
    return prompt


def text_of(message: Mapping[str, Any]) -> str:
    """A message's text, also when its content is a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def words(text: str) -> list[str]:
    """The words of a text in lower case."""
    return re.findall(r"[^\W_]+", text.lower())


def is_small(word: str) -> bool:
    """Whether a word says nothing about the subject."""
    return word in _DUTCH or word in _ENGLISH


def language_of(text: str) -> str | None:
    """nl or en by the small words that occur; None when they don't tell."""
    found = words(text)
    dutch, english = sum(word in _DUTCH for word in found), sum(word in _ENGLISH for word in found)
    if dutch == english:
        return None
    return "nl" if dutch > english else "en"
