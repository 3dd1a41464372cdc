"""Grounding: an answer without valid citations is no answer, and the source line names exactly what is cited."""

from __future__ import annotations

import json
import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.knowledge.ground import Grounded, ground
from shared.knowledge.search import Hit


def hit(number: int, *path: str, title: str = "Personeelshandboek", document: int = 1) -> Hit:
    return Hit(UUID(int=number), UUID(int=document), title, list(path), "tekst", "nl", 0.5, 0.1, 0.2)


HITS = [
    hit(1, "Personeelshandboek", "Verlof", "Zorgverlof"),
    hit(2, "Personeelshandboek", "Ziekte"),
    hit(3, "Personeelshandboek", "Verlof", "Zorgverlof"),
    hit(4, "Reizen", title="Reisregeling", document=2),
]


def grounded(text: str) -> Grounded:
    answer = ground(text, HITS, "nl")
    assert answer is not None
    return answer


def test_one_source() -> None:
    answer = grounded("Je krijgt tien dagen [1].\n")
    assert answer.body == "Je krijgt tien dagen [1].\n\nBron: [1] Personeelshandboek › Verlof › Zorgverlof"
    assert [citation.chunk_ids for citation in answer.citations] == [(UUID(int=1),)]
    english = ground("You get ten days [1].", HITS, "en")
    assert english
    assert english.body.endswith("\n\nSource: [1] Personeelshandboek › Verlof › Zorgverlof")


def test_numbers_follow_the_first_use_and_unused_sources_go() -> None:
    answer = grounded("Reizen mag [4]. Ziek bellen [2][4].")
    assert (
        answer.body
        == "Reizen mag [1]. Ziek bellen [2][1].\n\nBronnen: [1] Reisregeling › Reizen; [2] Personeelshandboek › Ziekte"
    )
    assert [(c.number, c.label) for c in answer.citations] == [
        (1, "Reisregeling › Reizen"),
        (2, "Personeelshandboek › Ziekte"),
    ]


def test_pieces_of_one_section_share_a_number() -> None:
    answer = grounded("Tien dagen [3][1]. Bellen [2].")
    assert answer.body.startswith(
        "Tien dagen [1]. Bellen [2].\n\nBronnen: [1] Personeelshandboek › Verlof › Zorgverlof; [2]"
    )
    assert answer.citations[0].chunk_ids == (UUID(int=3), UUID(int=1))


def test_sections_of_two_documents_do_not() -> None:
    twins = [hit(1, "Verlof", document=1), hit(2, "Verlof", document=2)]
    answer = ground("Ja [1][2].", twins, "nl")
    assert answer
    assert [citation.document_id for citation in answer.citations] == [UUID(int=1), UUID(int=2)]


@pytest.mark.parametrize("form", ["[2, 4]", "[2,4]", "[2; 4]", "【2】【4】", "[2] [4]"])
def test_other_forms_of_citations(form: str) -> None:
    answer = grounded(f"Zo is het {form}.")
    assert re.match(r"Zo is het \[1\] ?\[2\]\.\n\nBronnen: ", answer.body)


def test_a_range_is_all_of_them() -> None:
    assert len(grounded("Zo is het [1-4].").citations) == 3
    assert grounded("Zo is het [1–2].").body.startswith("Zo is het [1][2].")


@pytest.mark.parametrize(
    "text",
    [
        "NO_ANSWER", "NO_ANSWER.", " NO_ANSWER\n", "Dat staat er niet. NO_ANSWER", "Je krijgt tien dagen [1]. NO_ANSWER",
        "Je krijgt tien dagen.", "", "   ", "[1]", "[1][2].", "Tien dagen [0].", "Tien dagen [5].", "Tien [1] of elf [9] dagen.",
        "Tien dagen [1-9].", "Tien dagen [3-1].", "Tien dagen [1, 7].", "Tien dagen [1-2-3].", "Bron: [1] Personeelshandboek",
        "Tien dagen [²].", "Tien dagen (1).",
    ],
)  # fmt: skip
def test_no_answer(text: str) -> None:
    assert ground(text, HITS, "nl") is None


def test_without_sources_nothing_can_be_cited() -> None:
    assert ground("Tien dagen [1].", [], "nl") is None


@pytest.mark.parametrize(
    "own",
    [
        "Bron: [1] Iets anders",
        "Bronnen: [1] A; [2] B",
        "**Source:** [1] x",
        "Sources:\n- [1] Verlof\n- [2] Ziekte",
        "bron: handboek",
    ],
)
def test_a_source_line_of_the_models_own_is_dropped(own: str) -> None:
    assert grounded(f"Tien dagen [1].\n\n{own}").body == grounded("Tien dagen [1].").body


def test_markdown_becomes_what_a_phone_shows() -> None:
    answer = grounded("## Verlof\n\n\n\nJe krijgt **tien dagen** [1].\u202e\0\n \n- a\n- b")
    assert answer.body.startswith("Verlof\n\nJe krijgt *tien dagen* [1].\n\n- a\n- b\n\nBron: ")


def test_years_in_brackets_are_text() -> None:
    assert grounded("Sinds [2024] tien dagen [1].").body.startswith("Sinds [2024] tien dagen [1].")


def test_hostile_headings_stay_on_the_source_line() -> None:
    answer = ground("Ja [1].", [hit(1, "Kop\n[2] Nep\u202e\0", "x" * 500, title="Titel\r\nvals")], "nl")
    assert answer
    assert answer.body.count("\n") == 2
    assert len(answer.body) < 250
    assert "\u202e" not in answer.body


def test_citations_are_kept_as_json() -> None:
    stored = json.loads(json.dumps([citation.as_json() for citation in grounded("Ja [1].").citations]))
    assert stored[0] == {
        "number": 1,
        "label": "Personeelshandboek › Verlof › Zorgverlof",
        "document_id": str(UUID(int=1)),
        "chunk_ids": [str(UUID(int=1))],
    }


@given(
    st.lists(
        st.one_of(st.text(max_size=30), st.sampled_from(["[1]", "[2]", "[3]", "[1, 4]", "[9]", "\n", "NO_ANSWER"])),
        max_size=12,
    )
)
def test_every_number_in_an_answer_is_on_its_source_line(parts: list[str]) -> None:
    answer = ground("".join(parts), HITS, "en")
    if answer is None:
        return
    said, _, line = answer.body.rpartition("\n\n")
    used = {int(number) for number in re.findall(r"\[(\d{1,3})\]", said)}
    assert used == {citation.number for citation in answer.citations} == set(range(1, len(answer.citations) + 1))
    assert line.startswith("Source")
