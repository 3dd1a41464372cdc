"""Texts as WhatsApp, Postgres and Twilio can hold them."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from shared.db.text import storable as storable

MESSAGE_UNITS = 1600  # Twilio's limit for one WhatsApp message, counted in UTF-16 code units

_WORTH_A_PART = 1 / 4  # of what a part could hold: a better place to cut is not worth a message with less in it
_GAP = re.compile(r"\s+")
_LOOK_BACK = 40
_SENTENCE_ENDS = re.compile(r"[^\d\s][.!?…][\"'”’»)\]]*(?:\s{0,2}\[[\d,;–\s-]{1,20}\])*\Z")
_CITATION = re.compile(r"\[\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*\]")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_PLAIN_ADDRESS = re.compile(r"[\x21-\x7e]+")  # where it ends in a script that writes no spaces


def utf16_units(text: str) -> int:
    """The length in UTF-16 code units, as Twilio counts it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def split(text: str, units: int = MESSAGE_UNITS) -> list[str]:
    """The text in parts of at most `units` UTF-16 code units; joined again they are the text exactly, but for white space that
    fits into neither the part before it nor the one behind it: Twilio refuses a message of white space alone.

    It is cut after a paragraph, else after a sentence or line, else after a word, else between graphemes. White space at a
    cut stays at the end of the part before it. A web address, a citation or a grapheme (a flag, a family, a letter with its
    marks) is cut only if it is longer than a part.
    """
    if utf16_units(text) <= units:
        return [text]
    whole = _Whole.of(text, units)
    parts: list[str] = []
    start = 0
    while start < len(text):
        end = whole.cut(start, whole.reach(start, units))
        parts.append(text[start:end])
        start = end
    return [part for part in parts if not part.isspace()] or parts[:1]


def shorten(text: str, units: int = MESSAGE_UNITS) -> str:
    """The text, cut so that it fits where `split` would cut it, with … in place of the rest."""
    if utf16_units(text) <= units:
        return text
    return split(text.strip(), units - 2)[0].rstrip() + " …"


@dataclass(frozen=True, slots=True)
class _Whole:
    """A text with the places where it may be cut: `ends` of graphemes, `sizes` in units up to them, and `kept` spans."""

    text: str
    ends: list[int]
    sizes: list[int]
    kept: list[tuple[int, int]]

    @classmethod
    def of(cls, text: str, units: int) -> Self:
        """Looks at the whole text once."""
        from wcwidth import iter_graphemes  # not at the start: the webhook splits nothing

        pieces: list[str] = []
        for grapheme in iter_graphemes(text):
            pieces += [grapheme] if utf16_units(grapheme) <= units else list(grapheme)
        ends, sizes = list(accumulate(map(len, pieces))), list(accumulate(map(utf16_units, pieces)))
        return cls(text, ends, sizes, _kept(text, units))

    def reach(self, start: int, units: int) -> int:
        """The last place at which a part that begins at `start` may end."""
        before = bisect_right(self.ends, start)
        taken = self.sizes[before - 1] if before else 0
        return self.ends[bisect_right(self.sizes, taken + units) - 1]

    def cut(self, start: int, last: int) -> int:
        """The best place, after `start` and not after `last`."""
        if last == len(self.text):
            return last
        least = start + (last - start) * _WORTH_A_PART
        best = self._gaps(start, last)
        for kind in ("paragraph", "sentence", "word"):
            if best.get(kind, start) >= least:
                return best[kind]
        return max(best.values(), default=0) or self._between_graphemes(start, last)

    def _gaps(self, start: int, last: int) -> dict[str, int]:
        """The last place of each kind: white space, by what ends there."""
        best: dict[str, int] = {}
        for gap in _GAP.finditer(self.text, start, last + 1):
            at = self.ends[bisect_right(self.ends, min(gap.end(), last)) - 1]
            if start < gap.start() <= at and not self._is_kept(at):
                best[self._kind(start, gap)] = at
        return best

    def _kind(self, start: int, gap: re.Match[str]) -> str:
        if _CITATION.match(self.text, gap.end()):
            return "citation"  # a part that begins with a citation does not show what it is for
        lines = gap[0].count("\n")
        if lines > 1:
            return "paragraph"
        before = self.text[max(start, gap.start() - _LOOK_BACK) : gap.start()]
        return "sentence" if lines or _SENTENCE_ENDS.search(before) else "word"

    def _between_graphemes(self, start: int, last: int) -> int:
        for index in range(bisect_right(self.ends, last) - 1, -1, -1):
            at = self.ends[index]
            if at <= start:
                break
            if not self._is_kept(at):
                return at
        return last

    def _is_kept(self, at: int) -> bool:
        return any(first < at < end for first, end in self.kept)


def _kept(text: str, units: int) -> list[tuple[int, int]]:
    """From where to where the text stays in one part, as far as it fits."""
    spans = [found.span() for found in _CITATION.finditer(text)]
    for found in _ADDRESS.finditer(text):
        plain = _PLAIN_ADDRESS.match(text, found.start())
        spans.append(found.span() if utf16_units(found[0]) <= units or plain is None else plain.span())
    return [(first, end) for first, end in spans if utf16_units(text[first:end]) <= units]
