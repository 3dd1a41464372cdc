"""Settings: read once, and everything that is wrong said at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.errors import SettingsError
from shared.settings import load, setting_names
from tests.fakes.world import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]


def test_everything_that_is_missing_or_wrong_is_listed_at_once() -> None:
    with pytest.raises(SettingsError) as wrong:
        load({"TWILIO_AUTH_TOKEN": "  ", "SETTLE_SECONDS": "7", "JOB_CONCURRENCY": "many", "AI_NOTICE": "perhaps"})
    text = str(wrong.value)
    for words in (
        "DATABASE_URL is not set",
        "TWILIO_AUTH_TOKEN is empty",
        "SETTLE_SECONDS is '7' and must be between 0 and 6",
        "JOB_CONCURRENCY is 'many' and must be a whole number",
        "AI_NOTICE is 'perhaps' and must be on or off",
    ):
        assert words in text
    assert len(wrong.value.problems) >= 10


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PUBLIC_BASE_URL", "antwoord.example.org", "scheme and a host"),
        ("PUBLIC_BASE_URL", "https://antwoord.example.org/path", "scheme and a host"),
        ("TWILIO_WHATSAPP_FROM", "0201234567", "E.164"),
        ("EMBEDDING_DIMENSIONS", "3072", "write a migration"),
        ("UNKNOWN_SENDERS", "maybe", "decline or answer"),
        ("DEFAULT_LANGUAGE", "fr", "nl or en"),
        ("RETRIEVAL_FLOOR", "2", "between -1 and 1"),
        ("SETTLE_SECONDS", "nan", "between 0 and 6"),
        ("OPS_ROLE", "Antwoord.Viewer", "'Antwoord.Viewer' and is the role of those who may do less"),
        ("OPS_ROLE", "Antwoord.Operator", "leave it unset"),
    ],
)
def test_a_wrong_value_says_what_is_right(name: str, value: str, words: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)) as wrong:
        load(ENVIRONMENT | {name: value})
    assert len(wrong.value.problems) == 1


def test_a_secret_is_not_repeated_in_an_error() -> None:
    with pytest.raises(SettingsError) as wrong:
        load(ENVIRONMENT | {"PUBLIC_BASE_URL": "hunter2"})
    assert "hunter2" not in str(wrong.value)


def test_defaults_and_forgiven_forms() -> None:
    settings = load(ENVIRONMENT | {"PUBLIC_BASE_URL": "https://x.example/", "TWILIO_WHATSAPP_FROM": "+31201234567"})
    assert settings.public_base_url == "https://x.example"
    assert settings.twilio_whatsapp_from == "whatsapp:+31201234567"
    assert (settings.job_concurrency, settings.db_pool_max, settings.poll_schedule) == (8, 4, "*/5 * * * * *")
    assert not settings.has_storage


def test_a_command_asks_only_for_what_it_needs() -> None:
    assert load({"DATABASE_URL": "postgresql://x/y"}, only=["database_url"]).database_url == "postgresql://x/y"
    with pytest.raises(SettingsError) as wrong:
        load({}, only=["database_url"])
    assert len(wrong.value.problems) == 1


def test_every_setting_is_in_the_operators_page() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert [name for name in setting_names() if f"| `{name}` |" not in page] == []
