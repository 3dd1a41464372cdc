"""From the model's text to an answer with its sources: every citation must exist, and only what is cited is named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from shared.knowledge import Language
from shared.knowledge.plain import plain
from shared.knowledge.prompt import NO_ANSWER
from shared.knowledge.search import Hit
from shared.knowledge.sources import CITATION, source_label, without_citations, without_source_line

_WORDS = {"nl": ("Bron", "Bronnen"), "en": ("Source", "Sources")}
_WIDE_BRACKETS = str.maketrans("【】", "[]")
_REPEATED = re.compile(r"(\[\d+\])(?:\s*\1)+")
_MARKDOWN_BOLD = re.compile(r"\*\*(\S(?:[^*\n]*\S)?)\*\*")
_MARKDOWN_HEADING = re.compile(r"^#{1,6}[ \t]+", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n\s*\n\s*")
_LONGEST_RANGE = 20


@dataclass(frozen=True, slots=True)
class Citation:
    """One number of the source line and the chunks that it stands for."""

    number: int
    label: str
    document_id: UUID | None
    chunk_ids: tuple[UUID, ...]

    def as_json(self) -> dict[str, Any]:
        """As it is kept in messages.citations."""
        return {
            "number": self.number,
            "label": self.label,
            "document_id": str(self.document_id) if self.document_id else None,
            "chunk_ids": [str(chunk_id) for chunk_id in self.chunk_ids],
        }


@dataclass(frozen=True, slots=True)
class Grounded:
    """An answer that may be sent: `body` ends with the line that names its sources."""

    body: str
    citations: list[Citation]


def ground(text: str, hits: Sequence[Hit], language: Language) -> Grounded | None:
    """Check and finish the model's text; `hits` are the prompt's sources, `[1]` the first of them.

    None when the model declined, cites nothing, cites a source that does not exist, or says nothing beside its citations.
    """
    said = _tidy(text)
    cited = [_numbers(found[1]) for found in CITATION.finditer(said)]
    if NO_ANSWER in said or not cited or not without_citations(said).strip(" .\n"):
        return None
    if any(not numbers or not all(1 <= number <= len(hits) for number in numbers) for numbers in cited):
        return None
    citations = _citations([number for numbers in cited for number in numbers], hits)
    new_number = {chunk_id: citation.number for citation in citations for chunk_id in citation.chunk_ids}

    def renumber(found: re.Match[str]) -> str:
        return "".join(f"[{new_number[hits[number - 1].chunk_id]}]" for number in _numbers(found[1]))

    said = _REPEATED.sub(r"\1", CITATION.sub(renumber, said))
    word = _WORDS[language][len(citations) > 1]
    line = "; ".join(f"[{citation.number}] {citation.label}" for citation in citations)
    return Grounded(f"{said}\n\n{word}: {line}", citations)


def _tidy(text: str) -> str:
    """Plain text as a phone shows it: without a source line of the model's own, Markdown headings and doubled stars."""
    said = without_source_line(plain(text).translate(_WIDE_BRACKETS).strip())
    said = _MARKDOWN_BOLD.sub(r"*\1*", _MARKDOWN_HEADING.sub("", said))
    return _BLANK_LINES.sub("\n\n", said).strip()


def _numbers(inside: str) -> list[int]:
    """The numbers of `1`, `1, 3` or `1-3`; none for a range that makes no sense."""
    numbers: list[int] = []
    for part in re.split(r"[,;]", inside):
        ends = [int(end) for end in re.split(r"[–-]", part)]
        if not ends[0] <= ends[-1] <= ends[0] + _LONGEST_RANGE or len(ends) > 2:
            return []
        numbers.extend(range(ends[0], ends[-1] + 1))
    return numbers


def _citations(numbers: Sequence[int], hits: Sequence[Hit]) -> list[Citation]:
    """In the order of first use; chunks that an employee would see under the same name share a number."""
    groups: dict[tuple[UUID | None, str], list[Hit]] = {}
    for number in numbers:
        hit = hits[number - 1]
        label = source_label(hit.document_title, hit.heading_path)
        group = groups.setdefault((hit.document_id, label), [])
        if hit not in group:
            group.append(hit)
    return [
        Citation(number, label, document_id, tuple(hit.chunk_id for hit in group))
        for number, ((document_id, label), group) in enumerate(groups.items(), 1)
    ]
