"""Texts and consent words: pure functions, by example and by property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.conversation import consent, words
from shared.conversation.text import shorten, storable, utf16_units

any_text = st.text(alphabet=st.characters(exclude_categories=()), max_size=300)


@given(any_text)
def test_storable_text_can_be_stored_and_keeps_its_length(text: str) -> None:
    kept = storable(text)
    assert "\0" not in kept
    kept.encode("utf-8")
    assert len(kept) == len(text)
    assert storable(kept) == kept


@given(st.text(max_size=400), st.integers(min_value=20, max_value=200))
def test_a_shortened_text_fits_and_is_a_beginning(text: str, units: int) -> None:
    short = shorten(text, units)
    assert utf16_units(short) <= units
    if utf16_units(text) <= units:
        assert short == text
    else:
        assert short.endswith(" …")
        assert text.strip().startswith(short.removesuffix(" …").strip())


def test_it_is_cut_at_a_sentence() -> None:
    assert shorten("Eerste zin hier. Tweede zin hier. Derde zin is lang.", 40) == "Eerste zin hier. Tweede zin hier. …"


def test_a_family_is_not_torn_apart() -> None:
    family = "👨‍👩‍👧‍👦"
    short = shorten(family * 20, 40)
    assert set(short.removesuffix(" …").split("👨‍👩‍👧‍👦")) == {""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("STOP", ("stop", None)),
        (" Stop! ", ("stop", None)),
        ("s t o p", ("stop", None)),
        ("Afmelden.", ("stop", "nl")),
        ("unsubscribe", ("stop", "en")),
        ("START", ("start", None)),
        ("aanmelden", ("start", "nl")),
        ("ＳＴＯＰ！", ("stop", None)),
        ("🛑 S.T.O.P. 🛑", ("stop", None)),
        ("STOPPEN", ("stop", "nl")),
        ("Meld mij af", ("stop", "nl")),
        ("\u200bstart\n", ("start", None)),
        ("stop met roken, hoe?", (None, None)),
        ("", (None, None)),
        ("opzeggen", (None, None)),
    ],
)
def test_only_a_whole_message_changes_consent(text: str, expected: tuple[str | None, str | None]) -> None:
    assert consent.change(text) == expected


def test_twilio_s_verdict_wins() -> None:
    assert consent.change("genoeg", "STOP") == ("stop", None)
    assert consent.change("genoeg", "HELP") == ("help", None)
    assert consent.change("stop", "SOMETHING") == ("stop", None)


@pytest.mark.parametrize(
    ("text", "asks"), [("Medewerker", True), ("HELP!", True), ("help me even", False), ("", False)]
)
def test_asking_for_a_person(text: str, asks: bool) -> None:
    assert consent.asks_for_person(text) is asks


def test_every_line_is_there_in_both_languages_and_fits_one_message() -> None:
    for name, versions in words.LINES.items():
        assert set(versions) == {"nl", "en"}, name
        assert all(0 < utf16_units(text) < 400 for text in versions.values()), name
