"""The prompt of one answer: the rules from `prompts/answer.md`, then sources, history and question, fenced as data.

The fences and their order are a contract with everything that reads a prompt (tests and stand-ins). `<` and `>` of text
inside are written `‹` and `›`, so that nothing inside can close a fence or open another.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.clients.azure_openai import ChatMessage
from shared.knowledge import Language
from shared.knowledge.plain import one_line, plain
from shared.knowledge.search import Hit
from shared.knowledge.sources import source_label, without_citations, without_source_line

NO_ANSWER = "NO_ANSWER"
SOURCES_CHARACTERS = 12_000  # about 3,000 tokens
HISTORY_MESSAGES = 6
HISTORY_CHARACTERS = 2_000
HISTORY_LINE_CHARACTERS = 600
QUESTION_CHARACTERS = 6_000

_RULES = Path(__file__).parent / "prompts" / "answer.md"


@dataclass(frozen=True, slots=True)
class Turn:
    """One earlier message; `from_self` means that we sent it."""

    from_self: bool
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model gets. `sources` are the hits that `[1]`, `[2]`, … stand for.

    `version` names the rules' text and `sources_hash` (SHA-256 in hex) the sources, so that an answer can be traced back.
    """

    messages: list[ChatMessage]
    sources: tuple[Hit, ...]
    version: str
    sources_hash: str


def build_prompt(*, question: str, language: Language, hits: Sequence[Hit], history: Sequence[Turn] = ()) -> Prompt:
    """Write the prompt. The best hits come first and are taken as long as they fit; `history` is oldest first."""
    sources = _within_budget(hits)
    parts = [
        f'<source n="{number}" title="{_title(hit)}">\n{_fenced(hit.text).strip()}\n</source>'
        for number, hit in enumerate(sources, 1)
    ]
    lines = _history_lines(history)
    if lines:
        parts.append("\n".join(["<history>", *lines, "</history>"]))
    asked = _clip(_fenced(question).strip(), QUESTION_CHARACTERS)
    parts.append(f'<question language="{language}">\n{asked}\n</question>')
    rules, version = _rules()
    messages: list[ChatMessage] = [
        {"role": "system", "content": rules},
        {"role": "user", "content": "\n".join(parts)},
    ]
    return Prompt(messages, sources, version, _hash(sources))


@functools.cache
def _rules() -> tuple[str, str]:
    text = _RULES.read_text("utf-8").strip()
    return text, f"answer-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _within_budget(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    taken: list[Hit] = []
    left = SOURCES_CHARACTERS
    for hit in hits:
        left -= len(hit.text) + len(_title(hit))
        if left < 0:
            break
        taken.append(hit)
    return tuple(taken)


def _title(hit: Hit) -> str:
    return _fenced(source_label(hit.document_title, hit.heading_path)).replace('"', "'")


def _history_lines(history: Sequence[Turn]) -> list[str]:
    """The newest messages that fit, oldest first, one line each: a line break inside one could fake another speaker."""
    lines: list[str] = []
    left = HISTORY_CHARACTERS
    for turn in reversed(history[-HISTORY_MESSAGES:]):
        # The numbers of an earlier answer belong to earlier sources.
        text = without_citations(without_source_line(turn.text)) if turn.from_self else turn.text
        said = _clip(one_line(_fenced(text)), HISTORY_LINE_CHARACTERS)
        line = f"{'Assistant' if turn.from_self else 'Employee'}: {said}"
        left -= len(line)
        if left < 0:
            break
        if said:
            lines.append(line)
    return lines[::-1]


def _fenced(text: str) -> str:
    return plain(text).replace("<", "‹").replace(">", "›")


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _hash(sources: Sequence[Hit]) -> str:
    digest = hashlib.sha256()
    for hit in sources:
        for text in (_title(hit), hit.text):
            digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()
