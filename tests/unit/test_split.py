"""Splitting a long answer: the parts fit, rejoin, and are cut where it hurts least."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wcwidth import iter_graphemes

from shared.conversation.text import MESSAGE_UNITS, split, utf16_units

FAMILY = "👨‍👩‍👧‍👦"
FLAG = "🇳🇱"
WORD = "vakantiedagen "
SENTENCE = "Je hebt recht op verlof. "

nasty = st.sampled_from([
    FAMILY, FLAG, "🇧🇪", "👍🏽", "1️⃣", "e\u0301", "a\u0323\u0302", "क्ष", "ক্ত", "각", "\u1112\u1161\u11ab", "กำ", "\r\n", "\n",
    "\n\n", " ", "\u00a0", "\u2028", "\u200d", "\u0301", "\ud83d", "\ude00", "שלום", "مرحبا", "𝔘", "a", "B",
    ".", "! ", "。", "你好", "[12]", " [3]",
    "[1, 4]", "https://example.org/a?b=[1]&c=%20d", "www.example.org", "verlof. ", "[", "]",
])  # fmt: skip
texts = st.lists(nasty, max_size=120).map("".join) | st.text(max_size=300)
limits = st.integers(min_value=40, max_value=120)


@given(texts, limits)
@example(" " * 300, 40)
@example("a" + "\u0301" * 300, 40)
@example("a" * 40 + "\n\n" + "https://x.nl/" + "q" * 26, 40)
@example("a" + " " * 130 + "b", 40)
@example("a" * 40 + " ", 40)
def test_the_parts_fit_and_rejoin_but_for_white_space_that_fits_nowhere(text: str, units: int) -> None:
    parts = split(text, units)
    assert all(utf16_units(part) <= units for part in parts)
    assert all(part.strip() for part in parts) or not text.strip()
    if utf16_units(text) <= units:
        assert parts == [text]
    if not text.strip():
        return
    at, before = 0, ""
    for part in [*parts, ""]:
        after = text.find(part, at) if part else len(text)
        lost = text[at:after]
        assert not lost.strip()
        if lost and before:
            assert utf16_units(before + lost) > units
        if lost and part:
            assert utf16_units(lost + part) > units
        at, before = after + len(part), part
    assert at == len(text)


def test_white_space_is_no_message() -> None:
    address = "https://example.org/" + "q" * 1579
    assert split("a" * 1600 + "\n\n" + address) == ["a" * 1600, address]
    assert [part.strip() for part in split("a" + " " * 5000 + "b")] == ["a", "b"]


def cuts(text: str, units: int) -> list[int]:
    """Where the text is cut: the parts' edges in it, since white space between them may be left out."""
    edges: list[int] = []
    for part in split(text, units):
        start = text.index(part, edges[-1] if edges else 0)
        edges += [start, start + len(part)]
    return edges[1:-1] if edges[0] == 0 else edges[:-1]


@given(texts, limits)
def test_no_grapheme_is_cut_that_fits(text: str, units: int) -> None:
    edges = {0}
    for grapheme in iter_graphemes(text):
        end = max(edges) + len(grapheme)
        edges |= {end} if utf16_units(grapheme) <= units else set(range(max(edges), end + 1))
    assert set(cuts(text, units)) <= edges


def kept_together(text: str) -> list[tuple[int, int]]:
    """Citations and addresses; what overlaps (an address that ends in one) is one."""
    pattern = r"\[\d+(?:, \d+)*\]", r"(?:https?://|www\.)\S+"
    joined: list[tuple[int, int]] = []
    for start, end in sorted(found.span() for each in pattern for found in re.finditer(each, text)):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


@given(texts, limits)
@example("https://example.org/a?b=[1]&c=%20d" + FAMILY + FLAG + FLAG + "[1, 4]", 56)
@example("\r\nwww.example.org" + FLAG + "éhttps://example.org/a?b=[1]&c=%20d\r\n" + FAMILY, 54)
def test_no_citation_and_no_address_is_cut_that_fits(text: str, units: int) -> None:
    at = cuts(text, units)
    for start, end in kept_together(text):
        if utf16_units(text[start:end]) <= units:
            assert not [cut for cut in at if start < cut < end], text[start:end]


@given(texts, limits)
def test_a_word_is_cut_only_if_it_is_longer_than_a_part(text: str, units: int) -> None:
    at = cuts(text, units)
    for found in re.finditer(r"[a-z]+", text):
        before_and_after = re.search(r"\S*\Z", text[: found.start()]), re.match(r"\S*", text[found.start() :])
        run = "".join(piece[0] for piece in before_and_after if piece)
        if utf16_units(run) <= units // 4:
            assert not [cut for cut in at if found.start() < cut < found.end()], found[0]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        pytest.param(SENTENCE * 40 + "\n\n" + SENTENCE * 40, SENTENCE * 40 + "\n\n", id="paragraph"),
        pytest.param(SENTENCE * 20 + "\n \n" + SENTENCE * 60, SENTENCE * 20 + "\n \n", id="a short paragraph"),
        pytest.param("Hoi!\n\n" + SENTENCE * 80, "Hoi!\n\n" + SENTENCE * 63, id="too short a paragraph"),
        pytest.param("- een regel\n" * 200, "- een regel\n" * 133, id="line"),
        pytest.param(SENTENCE * 80, SENTENCE * 64, id="sentence"),
        pytest.param("Dat mag. [1] " * 150, "Dat mag. [1] " * 123, id="a sentence with its citation"),
        pytest.param("Dat mag [12] " * 150, "Dat mag [12] " * 123, id="a word with its citation"),
        pytest.param("Wie heeft er 3.5 dagen? " * 70, "Wie heeft er 3.5 dagen? " * 66, id="question"),
        pytest.param(WORD * 120, WORD * 114, id="word"),
        pytest.param("Kort. " + "x" * 2000, "Kort. ", id="a word longer than a part begins the next"),
        pytest.param("x" * 2000, "x" * 1600, id="letters"),
        pytest.param("x" * 1600 + " y", "x" * 1600, id="white space that does not fit"),
        pytest.param(FAMILY * 200, FAMILY * 145, id="families"),
        pytest.param("x" + FLAG * 500, "x" + FLAG * 399, id="flags"),
        pytest.param("क्ष" * 600, "क्ष" * 533, id="conjuncts"),
        pytest.param("각" * 1700, "각" * 1600, id="Hangul"),
        pytest.param("年" * 1590 + "https://example.org/x", "年" * 1590, id="an address without a space"),
        pytest.param("Zie " + "https://example.org/" + "a" * 1580, "Zie ", id="an address of just one part"),
        pytest.param("https://example.org/" + "a" * 2000, "https://example.org/" + "a" * 1580, id="a longer address"),
    ],
)
def test_where_it_is_cut(text: str, first: str) -> None:
    parts = split(text)
    assert parts[0] == first
    assert "".join(parts) == text


def test_what_fits_is_one_part() -> None:
    exactly = "😀" * (MESSAGE_UNITS // 2)
    assert split(exactly) == [exactly]
    assert split("") == [""]
    assert len(split(exactly + "x")) == 2


def test_a_long_answer_keeps_its_notice_with_the_beginning() -> None:
    notice = "Je praat met een digitale assistent; stuur “medewerker” als je liever een mens spreekt.\n\n"
    parts = split(notice + (SENTENCE * 8 + "[1]\n\n") * 12 + "Bron: [1] Handboek › Verlof")
    assert parts[0].startswith(notice + SENTENCE)
    assert parts[-1].endswith("Handboek › Verlof")
    assert [part[-2:] for part in parts[:-1]] == ["\n\n"] * (len(parts) - 1)
