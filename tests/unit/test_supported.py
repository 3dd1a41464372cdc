"""The check of texts that were generated elsewhere: what their sources do not say is found."""

from __future__ import annotations

import pytest

from shared.knowledge.supported import LINKS_AT_MOST, unsupported

SOURCES = [
    "Verlof: een voltijder heeft 200 uur per jaar. Vragen: hr@example.org of https://intranet.example.org/verlof.",
    "De regeling geldt vanaf 1 januari 2026 en kost € 1.250,00. Contact: Aisha Bennani.",
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Je hebt 200 uur verlof [1].", None),
        ("Het kost 1250,00 euro [2], vraag het Aisha Bennani.", None),
        ("1. Vraag het hr@example.org.\n2. Kijk op https://intranet.example.org/verlof.", None),
        ("", None),
        ("Je hebt 200 uur [3].", "citation"),
        ("Je hebt 200 uur [0].", "citation"),
        ("Je hebt 240 uur [1].", "number"),
        ("Vanaf 2 januari 2026 [2].", "number"),
        ("Kijk op https://elders.example.org/verlof.", "link"),
        ("Mail naar hr@example.com.", "link"),
        ("Vraag het aan Bart.", "name"),
    ],
)
def test_what_is_not_in_the_sources(text: str, found: str | None) -> None:
    assert unsupported(text, SOURCES) == found


def test_without_sources_nothing_is_supported() -> None:
    assert unsupported("Je hebt 200 uur.", []) == "number"
    assert unsupported("Je hebt verlof.", []) is None


def test_more_links_than_a_sender_can_wait_for_are_for_a_person() -> None:
    links = [f"www.example.org/{number}" for number in range(LINKS_AT_MOST + 1)]
    assert unsupported(" ".join(links[:-1]), links) is None
    assert unsupported(" ".join(links), links) == "link"


# Each of them took minutes when a pattern began anew at every character; that is what the suite's limit of time is for.
@pytest.mark.parametrize(
    "piece", ["1", " ", "A", "a.", "1-", "[1,", "a@", "a@b.", "'", "\n", "http://", "[1 "], ids=repr
)
def test_megabytes_of_anything_are_gone_through_once(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    unsupported(text, [text])
