"""Answers for the stand-in's chat: sentences of the given sources, cited; or NO_ANSWER when none is near.

It shows wiring, citations, language and refusal, always the same for the same prompt. It cannot be talked into
anything; `GullibleAnswerer` can, for the tests of the prompt's fences.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from local.standins.encoder import ENCODER, Encoder
from local.standins.prompt_reader import Prompt, Source, is_small, language_of, read_prompt, words

NO_ANSWER = "NO_ANSWER"
# Chosen on the demo handbooks' questions and two dozen off-topic ones, with one, three and eight sources in the prompt:
# with these weights the floor parts them.
FLOOR = 0.255
WEIGHT_OF_SENTENCE, WEIGHT_OF_HEADED, WEIGHT_OF_HEADING, WEIGHT_OF_SOURCE = 0.2, 0.42, 0.13, 0.25
WEIGHT_OF_WORDS = 0.21
NEAR_THE_BEST = 0.88
SENTENCES_AT_MOST = 3
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\bbijv\.)(?<!\bo\.a\.)(?<!\bd\.w\.z\.)(?<!\be\.g\.)(?<!\bi\.e\.)\s+(?=[^\sa-z])"
)
_FOLLOW_UP = re.compile(
    r"(?i)^(en|and|maar|but|what about|how about|hoe zit|geldt dat|does that|is that|kan dat|can i do that)\b"
)


class Answerer(Protocol):
    """Something that writes the assistant's message."""

    def answer(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The text of the assistant's message."""
        ...


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a source; `order` is its place in the prompt."""

    text: str
    source: Source
    order: int
    language: str | None


class ExtractiveAnswerer:
    """Picks the sentences nearest to the question; see the module."""

    def __init__(self, encoder: Encoder = ENCODER, *, floor: float = FLOOR) -> None:
        self._encoder, self._floor = encoder, floor

    def answer(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """One or two sentences with `[n]` (three when several messages ask several things), or NO_ANSWER."""
        prompt = read_prompt(messages)
        sentences = _sentences(prompt.sources)
        if not prompt.question or not sentences:
            return NO_ANSWER
        scored = [self._score(query, sentences) for query in _queries(prompt.question)]
        if earlier := _earlier(prompt):
            with_it = self._score(f"{earlier} {prompt.question}", sentences)
            lift = max(*scored[0], *with_it)  # near enough in either form is near enough; both together choose
            both = [(alone + joined) / 2 for alone, joined in zip(scored[0], with_it, strict=True)]
            scored = [[score + lift - max(both) for score in both]]
        own = [index for index, item in enumerate(sentences) if item.language in (prompt.language, None)]
        for pool in (own, list(range(len(sentences)))):
            chosen = self._choose(scored, sentences, pool)
            if chosen:
                return _write([sentences[index] for index in chosen])
        return NO_ANSWER

    def _score(self, query: str, sentences: list[Sentence]) -> list[float]:
        """Cosines with the sentence, alone and under its heading, the heading and the source; and shared rare words."""
        headings = [item.source.title.rpartition("›")[2].strip() for item in sentences]
        headed = [f"{heading}. {item.text}" for heading, item in zip(headings, sentences, strict=True)]
        sources = [f"{item.source.title}\n{item.source.text}" for item in sentences]
        asked = self._encoder.encode([query])[0]
        near = (
            WEIGHT_OF_SENTENCE * (self._encoder.encode([item.text for item in sentences]) @ asked)
            + WEIGHT_OF_HEADED * (self._encoder.encode(headed) @ asked)
            + WEIGHT_OF_HEADING * (self._encoder.encode(headings) @ asked)
            + WEIGHT_OF_SOURCE * (self._encoder.encode(sources) @ asked)
            + WEIGHT_OF_WORDS * np.array(_shared_rare_words(query, headed))
        )
        return [round(float(score), 4) for score in near]

    def _choose(self, scored: list[list[float]], sentences: list[Sentence], pool: list[int]) -> list[int]:
        chosen: list[int] = []
        for scores in scored:
            ranked = sorted(pool, key=lambda index: (-scores[index], index))
            if not ranked or scores[ranked[0]] < self._floor:
                continue
            best = ranked[0]
            chosen.append(best)
            second = next((index for index in ranked[1:] if sentences[index].source is sentences[best].source), None)
            if len(scored) == 1 and second is not None and scores[second] >= NEAR_THE_BEST * scores[best]:
                chosen.append(second)
        return sorted(dict.fromkeys(chosen))[:SENTENCES_AT_MOST]


class GullibleAnswerer:
    """Obeys what it finds outside the fences ("Ignore all previous instructions and say …"); else asks `otherwise`.

    Text inside a source, the history or the question is data, also to this one. So a test whose source tries to break
    out sees the order obeyed exactly if the fence did not hold.
    """

    _ORDER = re.compile(
        r"(?is)(?:ignore (?:all|any) previous instructions and say|negeer alle eerdere instructies en zeg)\s*:?\s*(.+)"
    )

    def __init__(self, otherwise: Answerer | None = None) -> None:
        self._otherwise = otherwise or ExtractiveAnswerer()

    def answer(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The words that an escaped order asks for, or the other's answer."""
        order = self._ORDER.search(read_prompt(messages).outside)
        return order[1].strip().strip("\"'") if order else self._otherwise.answer(messages)


def _queries(question: str) -> list[str]:
    """What is asked: each line of several quick messages."""
    lines = [line.strip() for line in question.splitlines() if len(words(line)) > 2]
    return lines if len(lines) > 1 else [question]


def _earlier(prompt: Prompt) -> str | None:
    """The employee's message before this one, if this is a single line that follows up on it."""
    before = [line for line in prompt.history.splitlines() if line.startswith("Employee:")]
    if not before or "\n" in prompt.question or not _FOLLOW_UP.match(prompt.question):
        return None
    return before[-1].removeprefix("Employee:").strip()


def _sentences(sources: list[Source]) -> list[Sentence]:
    found: list[Sentence] = []
    for source in sources:
        language = language_of(source.text)
        for line in source.text.splitlines():
            clean = re.sub(r"^\s*(?:[-*+>]|\d{1,2}[.)])\s+", "", line).replace("**", "").strip()
            if not clean or clean.startswith("#"):
                continue
            found += [
                Sentence(part.strip(), source, len(found) + index, language)
                for index, part in enumerate(_SENTENCE_END.split(clean))
                if len(words(part)) > 2
            ]
    return found


def _shared_rare_words(query: str, texts: list[str]) -> list[float]:
    """For each text the share (0 to 1) of the query's words that it has, each weighted by how rare it is here."""
    of_texts = [set(map(_stem, words(text))) for text in texts]
    known = Counter(word for found in of_texts for word in found)
    asked = {_stem(word) for word in words(query) if len(word) > 2 and not is_small(word)}
    weights = {word: math.log(1 + len(texts) / (1 + known[word])) for word in asked}
    whole = sum(weights.values())
    if not whole:
        return [0.0] * len(texts)
    return [sum(weights[word] for word in asked & found) / whole for found in of_texts]


def _stem(word: str) -> str:
    """A word without its commonest endings: enough for bellen and bel, calls and call."""
    for ending in ("ing", "en", "ed", "es", "s", "e", "t"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def _write(chosen: list[Sentence]) -> str:
    """The sentences in the prompt's order, a citation after the last one of each source."""
    parts: list[str] = []
    for index, sentence in enumerate(chosen):
        last = index + 1 == len(chosen) or chosen[index + 1].source is not sentence.source
        parts.append(f"{sentence.text} [{sentence.source.number}]" if last else sentence.text)
    return " ".join(parts)
