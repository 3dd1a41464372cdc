"""Twilio's codes: each has a class and words, and only what surely did not arrive and may yet arrive is passing."""

from __future__ import annotations

import pytest

from shared.conversation import codes
from shared.conversation.codes import Kind, meaning


@pytest.mark.parametrize("code", codes.known())
def test_a_code_has_a_sentence_in_both_languages(code: str) -> None:
    words = meaning(code).words
    assert set(words) == {"nl", "en"}
    assert words["nl"] != words["en"]
    for sentence in words.values():
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert len(sentence) <= 120


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        (Kind.UNREACHABLE, "21211 21614 30003 30005 30006 63003 63014 63015 63024 63032 63049"),
        (Kind.OUTSIDE_WINDOW, "63016"),
        (Kind.OPTED_OUT, "21610 63033"),
        (Kind.TEMPLATE, "21655 21656 63027 63028 63040 63041 63042"),
        (Kind.RATE_LIMIT, "20429 21611 30001 30022 30023 63017 63018 63038"),
        (Kind.ACCOUNT, "30002 63020 63051"),
        (Kind.CONTENT, "30007 63005 63013 63021"),
        (Kind.PROVIDER, "63010 63012"),
        (Kind.OURS, "21408 21617 63001 63007"),
        (Kind.UNKNOWN, "30008 63023 12345"),
    ],
    ids=lambda given: given if isinstance(given, Kind) else "",
)
def test_the_class_of_the_common_ones(kind: Kind, some: str) -> None:
    assert {code: meaning(code).kind for code in some.split()} == dict.fromkeys(some.split(), kind)


def test_only_a_limit_a_second_and_a_failure_of_theirs_pass() -> None:
    passing = [code for code in codes.known() if meaning(code).is_passing]
    assert passing == ["20429", "21611", "30001", "30022", "63010", "63012", "63017", "63018"]
    assert {meaning(code).kind for code in passing} == {Kind.RATE_LIMIT, Kind.PROVIDER}


def test_a_code_comes_as_text_as_a_number_or_not_at_all() -> None:
    assert meaning(63016) is meaning("63016") is meaning(" 63016 ")
    assert meaning(None).kind is meaning("").kind is meaning("InvalidSandboxRequest").kind is Kind.UNKNOWN
    assert not meaning("99999").is_passing


def test_what_an_engineer_has_to_mend_says_so() -> None:
    assert meaning("63007").words["nl"].endswith("Vraag een technicus.")
    assert meaning("63041").words["en"].endswith("Ask an engineer.")
