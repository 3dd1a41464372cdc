"""Phone numbers: written by hand or mangled by a spreadsheet, they become E.164 or are told; never another number."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.knowledge.people_reasons import BadRow
from shared.knowledge.phone import to_e164


@pytest.mark.parametrize(
    "text",
    ["06-12345678", "0612345678", "06 12 34 56 78", "06/12345678", "06.12.34.56.78", "(06) 1234 5678", "0031 6 12 34 56 78",
     "0031(0)612345678", "+31 (0)6 12345678", "+31612345678", "+31-6-1234-5678", "(+31) 6 12345678", "31612345678",
     "612345678", "tel: 0612345678", "Mobiel (privé): 06-12345678", "06-12345678 (werk)", "+31612345678 thuis",
     "0612345678 ext 5", "+316 12345678 tst. 12", "0612345678 x5", "'0612345678", '="0612345678"', "=0612345678",
     "612345678.0", "612345678,0", "6,12345678E+08", "6.12345678e8", "3.1612345678E+10", "\u202a+31 6 12345678\u202c",
     "+31\u00a06\u00a012345678", "06\u201112345678", "06\u200b12345678",
     "\u0660\u0666\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668"],
)  # fmt: skip
def test_a_dutch_mobile_number_in_any_notation(text: str) -> None:
    assert to_e164(text) == "+31612345678"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("020-1234567", "+31201234567"),
        ("+32 475 12 34 56", "+32475123456"),
        ("0032 475 12 34 56", "+32475123456"),
        ("+49 (0)1512 3456789", "+4915123456789"),
        ("+44 (0)20 7946 0958", "+442079460958"),
        ("+48 512 345 678", "+48512345678"),
        ("+212 612-345678", "+212612345678"),
        ("+319700000001", "+319700000001"),  # ranges that no table knows yet, with a country code
        ("0031 97 0000 0020", "+319700000020"),
        ("+1 555 0100 123", "+15550100123"),
    ],
)
def test_other_numbers(text: str, number: str) -> None:
    assert to_e164(text) == number


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "phone_missing"),
        (" \u200b ", "phone_missing"),
        ("geen", "phone_invalid"),
        ("06-123", "phone_invalid"),
        ("06 1234 567", "phone_invalid"),  # one digit short, and one too many
        ("06 1234 56789", "phone_invalid"),
        ("+31 6 1234567", "phone_invalid"),
        ("+31 6 123456789", "phone_invalid"),
        ("+32 475 12 34 5", "phone_invalid"),
        ("+44 7911 12345", "phone_invalid"),
        ("+999 12345678", "phone_invalid"),
        ("97 0000 0001", "phone_invalid"),  # the same range without a country
        ("112", "phone_invalid"),
        ("06-1234ABCD", "phone_invalid"),  # letters are no digits, whatever the keys say
        ("1-800-FLOWERS", "phone_invalid"),
        ("06-1234abc5678", "phone_invalid"),
        ("+3197000000NN", "phone_invalid"),
        ("6,12E+08", "phone_mangled"),
        ("6.12345E+08", "phone_mangled"),
        ("3,16123E+10", "phone_mangled"),
        ("########", "phone_mangled"),
        ("06-12345678 / 06-87654321", "phone_two"),
        ("0612345678, 0201234567", "phone_two"),
        ("06-12345678 of 06-87654321", "phone_two"),
        ("+31 6 12345678 +31 6 87654321", "phone_two"),
    ],
)  # fmt: skip
def test_what_cannot_be_trusted_is_told(text: str, reason: str) -> None:
    with pytest.raises(BadRow) as bad:
        to_e164(text)
    assert bad.value.name == reason
    assert len(bad.value.reason) <= 120


@settings(max_examples=100, deadline=None)
@given(
    st.from_regex(r"\A[1-58][0-9]{7}\Z"),
    st.sampled_from(["06", "+316", "00316", "+31 (0)6", "(06)", "31 6", "6", "0031-6", "'06", "tel 06"]),
    st.lists(st.sampled_from(["", " ", "-", ".", "\u00a0"]), min_size=8, max_size=8),
)
def test_a_mobile_number_is_the_same_however_it_is_spaced(digits: str, prefix: str, spaces: list[str]) -> None:
    assert to_e164(prefix + "".join(a + b for a, b in zip(spaces, digits, strict=True))) == f"+316{digits}"


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("0123456789+-() /.,EeXx'=\"#tel"), max_size=30))
def test_nothing_gives_anything_but_a_number_or_a_reason(text: str) -> None:
    with contextlib.suppress(BadRow):
        number = to_e164(text)
        assert re.fullmatch(r"\+[1-9][0-9]{6,14}", number)
        assert number == to_e164(number)
