"""Thanks and thumbs ask nothing; everything that could be a question does."""

from __future__ import annotations

import pytest

from shared.conversation.courtesy import asks_nothing, has_words


@pytest.mark.parametrize(
    "text",
    [
        "bedankt!", "Dank je wel", "dankjewel 🙏", "DANK U WEL", "Hartelijk dank voor de uitleg.", "ok 👍", "oké, bedankt!",
        "thanks", "Thank you so much!!", "thx", "Top, dank!", "prima", "super bedankt 😊😊", "👍", "👍🏽",
        "❤️", "🙏🙏🙏", "ok\nbedankt",
    ],
)  # fmt: skip
def test_it_asks_nothing(text: str) -> None:
    assert asks_nothing(text)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "ok?", "bedankt, en hoeveel dagen heb ik?", "Prima, dan neem ik vrij", "is dat goed", "goed", "help", "je",
        "ja", "nee", "verlof", "🤔", "🇳🇱", "👍❓", "...", "!!", "dank aan wie", "thanks but no", "3", "1️⃣", "شكرا", "stop",
    ],
)  # fmt: skip
def test_it_may_ask_something(text: str) -> None:
    assert not asks_nothing(text)


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("a", True),
        ("3", True),
        ("שלום", True),
        ("你好", True),
        ("🤔", False),
        ("?!…", False),
        ("", False),
        ("_ _", False),
    ],
)
def test_words_are_there_in_any_script(text: str, is_there: bool) -> None:
    assert has_words(text) is is_there
