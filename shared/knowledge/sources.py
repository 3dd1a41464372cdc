"""How a source is named, to the model and to an employee, and how a source line at the end of an answer is recognised."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shared.knowledge.chunk import PATH_SEPARATOR
from shared.knowledge.plain import one_line

LABEL_CHARACTERS = 160

CITATION = re.compile(r"\[(\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*)\]")
# From where the blanks begin: a long row of them would else be gone over again from each.
_CITED = re.compile(rf"(?<![ \t])[ \t]*{CITATION.pattern}")
_SOURCE_LINES = re.compile(
    r"(?:\n|\A)[ \t*_]*(?:Bron|Bronnen|Source|Sources)[*_]*:[^\n]*(?:\n[ \t]*(?:[-*•][ \t]*)?\[\d+\][^\n]*)*\s*\Z",
    re.IGNORECASE,
)


def source_label(document_title: str, heading_path: Sequence[str]) -> str:
    """`Personeelshandboek › Verlof › Ouderschapsverlof`: the document and the headings, which may begin with its title."""
    parts = [one_line(part) for part in (document_title, *heading_path)]
    if len(parts) > 1 and parts[0].casefold() == parts[1].casefold():
        del parts[0]
    label = PATH_SEPARATOR.join(part for part in parts if part)
    return label if len(label) <= LABEL_CHARACTERS else label[: LABEL_CHARACTERS - 1].rstrip() + "…"


def without_source_line(text: str) -> str:
    """The text of an answer without a source line at its end."""
    return _SOURCE_LINES.sub("", text).rstrip()


def without_citations(text: str) -> str:
    """The text without its `[1]`."""
    return _CITED.sub("", text)
