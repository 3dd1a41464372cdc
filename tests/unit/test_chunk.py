"""Chunks: nothing is lost, nothing is too long, headings are found where they are and only there."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.knowledge.chunk import (
    CHUNK_CHARACTERS,
    HEADING_CHARACTERS,
    SLAB_CHARACTERS,
    Chunk,
    chunk_document,
    document_title,
    embedded_text,
    split_sections,
)

SENTENCES = st.lists(
    st.sampled_from(["Je hebt 25 dagen.", "Meld je ziek vóór 9:00 uur!", "Waarom?", "E.g. a cat 🐈."]), min_size=1
)
PARAGRAPHS = SENTENCES.map(" ".join)
FENCES = st.sampled_from(["```sh\n# geen kop\nls\n```", "~~~\nKop\n===\n~~~", "- punt\n  ```\n  # ook niet\n  ```"])
HEADINGS = st.tuples(st.integers(1, 6), st.sampled_from(["Verlof", "Ziek *zijn*", "A & B"])).map(
    lambda h: "#" * h[0] + " " + h[1]
)
SETEXT = st.sampled_from(["Reizen\n======", "Kosten\n---"])


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


def paths(text: str) -> list[tuple[str, ...]]:
    return [section.heading_path for section in split_sections(text)]


@given(st.text(max_size=3000))
def test_plain_text_loses_nothing(text: str) -> None:
    chunks = chunk_document(text, "huisregels.txt")
    assert bare("".join(chunk.text for chunk in chunks)) == bare(text)
    assert all(0 < len(chunk.text) <= CHUNK_CHARACTERS for chunk in chunks)
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.one_of(PARAGRAPHS, FENCES), st.just(False)),
            st.tuples(st.one_of(HEADINGS, SETEXT), st.just(True)),
        )
    )
)
def test_markdown_loses_only_headings(parts: list[tuple[str, bool]]) -> None:
    text = "\n\n".join(part for part, _ in parts)
    chunks = chunk_document(text, "handboek.md")
    kept = "".join(part for part, is_heading in parts if not is_heading)
    assert bare("".join(chunk.text for chunk in chunks)) == bare(kept)
    assert chunks == chunk_document(text.replace("\n", "\r\n"), "handboek.md") == chunk_document(text, "handboek.md")


@settings(max_examples=50)
@given(st.text(max_size=500))
def test_any_text_is_cut_and_titled(text: str) -> None:
    assert all(len(chunk.text) <= CHUNK_CHARACTERS for chunk in chunk_document(text, "a.md"))
    assert document_title(text, "a.md")


def test_heading_paths_follow_the_levels() -> None:
    text = "Vooraf\n# Handboek\nIntro\n## Verlof\nA\n### Zorg\nB\n## Ziek\nC\n\nReizen\n---\nD\n#\nE\n"
    assert paths(text) == [
        (),
        ("Handboek",),
        ("Handboek", "Verlof"),
        ("Handboek", "Verlof", "Zorg"),
        ("Handboek", "Ziek"),
        ("Handboek", "Reizen"),
        (),
    ]
    assert paths("### Diep\na\n# Hoog\nb") == [("Diep",), ("Hoog",)]


def test_what_looks_like_a_heading_but_is_none() -> None:
    text = "# Echt\n```\n# code\n```\n> # citaat\n\n- # punt\n\n    # ingesprongen\n\n#geen\n\n\\# ook niet\n\n* * *\n"
    assert paths(text) == [("Echt",)]
    assert [chunk.heading_path for chunk in chunk_document("# Geen kop in tekst", "a.txt")] == [()]


def test_headings_are_plain_words() -> None:
    assert paths("# **Verlof** en [`ziek`](http://x) <br>&amp; meer \\* {#anker}\ntekst") == [
        ("Verlof en ziek & meer *",)
    ]


def test_what_is_too_long_for_a_heading_stays_text() -> None:
    text = "Een alinea\nvan twee regels.\n---\n\n# " + "lang " * HEADING_CHARACTERS + "\n\ntekst"
    assert paths(text) == [()]
    assert bare("".join(chunk.text for chunk in chunk_document(text, "a.md"))) == bare(text)


def test_front_matter_is_text_and_comments_are_not() -> None:
    front = "---\ntitle: Beleid\ntags: a\n---\n"
    text = front + "# Kop\n<!-- intern:\n\nniet tonen -->\nTekst <!-- in de zin --> hier\n```\n<!-- code -->\n```"
    assert [section.heading_path for section in split_sections(text)] == [(), ("Kop",)]
    shown = "".join(chunk.text for chunk in chunk_document(text, "a.md"))
    assert "title: Beleid" in shown
    assert "niet tonen" not in shown
    assert "<!-- code -->" in shown
    assert "in de zin" in shown


# Their times are the processor's: they say how the work grows with a text, whatever else the machine does.


def test_an_open_comment_or_front_matter_hides_nothing() -> None:
    assert "tekst" in chunk_document("<!-- vergeten\n\ntekst", "a.md")[0].text
    start = time.thread_time()
    assert split_sections("---\n" + "-a:\n" * 20_000 + "tekst")
    assert time.thread_time() - start < 2


def test_long_sections_are_cut_at_sentences() -> None:
    sentence = "De reiskosten van je woonplaats naar het werk worden vergoed tot veertig kilometer. "
    chunks = chunk_document("# Reizen\n" + sentence * 100, "a.md")
    assert len(chunks) > 5
    assert all(chunk.text.startswith("De reiskosten") and chunk.text.endswith("kilometer.") for chunk in chunks)
    assert all(chunk.heading_path == ("Reizen",) for chunk in chunks)


@pytest.mark.parametrize("unit", ["a", "é", "🙂", "zin. ", "regel\n", "- punt\n\n", "\u0301", " ", "<", "[", "`"])
def test_a_line_of_200_000_characters_is_cut_in_time(unit: str) -> None:
    text = (unit * 200_000)[:200_000]
    start = time.thread_time()
    chunks = chunk_document(text, "a.txt")
    assert time.thread_time() - start < 2
    assert bare("".join(chunk.text for chunk in chunks)) == bare(text)
    assert all(len(chunk.text) <= CHUNK_CHARACTERS for chunk in chunks)


def test_two_megabytes_in_two_seconds() -> None:
    section = "## Kop {n}\n\n" + "Een zin over verlof die wat langer is dan de vorige. " * 40 + "\n\n"
    text = "".join(section.replace("{n}", str(n)) for n in range(1000))[:2_000_000]
    start = time.thread_time()
    chunks = chunk_document(text, "a.md")
    assert time.thread_time() - start < 2
    assert len({chunk.heading_path for chunk in chunks}) > 900


def test_slabs_keep_sentences_whole() -> None:
    text = "Dit is een zin van vijftig tekens, of daaromtrent. " * (3 * SLAB_CHARACTERS // 50)
    assert all(chunk.text.startswith("Dit") and chunk.text.endswith(".") for chunk in chunk_document(text, "a.txt"))


@pytest.mark.parametrize("text", ["", " \n\t\r\n", "# Kop\n## Kop\n", "Kop\n===\n\n---\n\n".replace("---", "")])
def test_nothing_but_headings_gives_no_chunks(text: str) -> None:
    assert chunk_document(text, "a.md") == []


def test_the_heading_path_is_embedded_first() -> None:
    assert embedded_text(Chunk(0, ("Verlof", "Zorg"), "tekst")) == "Verlof › Zorg\ntekst"
    assert embedded_text(Chunk(0, (), "tekst")) == "tekst"


def test_titles() -> None:
    assert document_title("## Twee\n# Een *mooie*\n# Nog een", "x.md") == "Een mooie"
    assert document_title("Een\n===\n", "x.md") == "Een"
    assert document_title("```\n# nee\n```", "map/huis_regels-2026.md") == "Huis regels 2026"
    assert document_title("# geen kop", "C:\\map\\Regels.TXT") == "Regels"
    assert document_title("", "---.md") == "---.md"
