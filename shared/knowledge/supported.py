"""Whether a text that was generated elsewhere says what its sources do not: the check of events that carry such texts.

It looks for what can be compared by eye: citations, links, numbers (with them dates and amounts) and names. What is written in
another way than in the source is found too; a person then decides. It runs while a sender waits, and megabytes are all the same
to it: no pattern goes over the same characters again from each place in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from shared.knowledge.sources import CITATION, without_citations

type Unsupported = Literal["citation", "link", "number", "name"]

_LINK = re.compile(r"(?:https?://|www\.)[^\s<>\"'()\[\]]+|(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)+", re.IGNORECASE)
_NUMBER = re.compile(r"\d(?:[\d.,:/-]*\d)?")
_SEPARATORS = re.compile(r"[^\d]")
_LIST_NUMBER = re.compile(r"^[ \t]*\d{1,3}[.)][ \t]", re.MULTILINE)
# Behind a word or a comma: at the beginning of a sentence every word is written like a name.
_NAME = re.compile(r"(?<=[\w,;] )[^\W\d_][\w’'-]+")
_WORD = re.compile(r"[^\W\d_][\w’'-]*")

LINKS_AT_MOST = 100  # different ones, each of which is looked for in all that the sources say; more are for a person


def unsupported(text: str, sources: Sequence[str]) -> Unsupported | None:
    """What the text says that none of its sources does, the first kind found; None when all is there."""
    cited = [int(number) for found in CITATION.findall(text) for number in re.findall(r"\d+", found)]
    if any(not 1 <= number <= len(sources) for number in cited):
        return "citation"
    origin = "\n".join(sources)
    said = _LIST_NUMBER.sub("", without_citations(text))
    links, lowered = {found.rstrip(".,;:!?").casefold() for found in _LINK.findall(said)}, origin.casefold()
    if len(links) > LINKS_AT_MOST or any(link not in lowered for link in links):
        return "link"
    said = _LINK.sub(" ", said)
    if not _numbers(said) <= _numbers(origin):
        return "number"
    known = {word.casefold() for word in _WORD.findall(origin)}
    names = [word for word in _NAME.findall(said) if word[0].isupper()]
    return "name" if any(name.casefold() not in known for name in names) else None


def _numbers(text: str) -> set[str]:
    """Each number by its digits alone: 1.200 and 1,200 and 1200 are one."""
    return {_SEPARATORS.sub("", found) for found in _NUMBER.findall(text)}
