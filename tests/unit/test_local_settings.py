"""local.settings.sample.json names every setting, docs/local.md explains each; and the pages' commands are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from shared.settings import load, setting_names
from tests.fakes.commands import calls, unknown_in

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "local.md").read_text("utf-8")
PLATFORM = {"FUNCTIONS_WORKER_RUNTIME", "PYTHON_THREADPOOL_THREAD_COUNT"}
# By identity, on Azure alone: an empty value would make Azure's host look for an account of that name.
LEFT_OUT = {"AzureWebJobsStorage__accountName", "AzureWebJobsStorage__queueServiceUri"}
PAGES = ("cost", "day-two", "deploy", "local")


def values() -> dict[str, str]:
    return dict(json.loads((ROOT / "local.settings.sample.json").read_text("utf-8"))["Values"])


def explained() -> list[str]:
    """The names in the first column of the page's table."""
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_the_sample_names_every_setting_once_and_no_other() -> None:
    assert set(values()) == set(setting_names()) - LEFT_OUT | PLATFORM
    text = (ROOT / "local.settings.sample.json").read_text("utf-8")
    assert [name for name in values() if text.count(f'"{name}":') != 1] == []


def test_the_sample_changes_nothing() -> None:
    """A copy that was not filled in leaves everything as it is: `up` keeps its stand-ins and what it chooses with them."""
    assert load(values(), only=()) == load({}, only=())
    filled = {name for name, value in values().items() if value}
    assert filled == PLATFORM | {"JOB_CONCURRENCY", "DB_POOL_MAX"}


def test_every_setting_of_the_sample_is_explained_once() -> None:
    assert sorted(explained()) == sorted(values())
    assert [name for name in LEFT_OUT if f"`{name}`" not in PAGE] == []


def test_what_the_page_says_of_defaults_is_so() -> None:
    defaults = load({}, only=())
    assert f"| {defaults.settle_seconds:g} |" in PAGE
    assert f"| {defaults.reconcile_window_seconds:g}; 30 with" in PAGE
    assert f"| {defaults.sweep_minutes}, {defaults.sweep_hours} |" in PAGE
    assert f"| {defaults.job_retention_days} |" in PAGE
    assert f"| {defaults.sender_daily_limit}, `{defaults.default_language}`, `on`, `on` |" in PAGE
    assert f"none, `{defaults.ops_role}`" in PAGE
    assert (defaults.ai_notice, defaults.typing_indicator) == (True, True)


@pytest.mark.parametrize("name", PAGES)
def test_every_command_that_a_page_shows_is_there(name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    assert calls(text)
    assert {" ".join(words): unknown for words in calls(text) if (unknown := unknown_in(words))} == {}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_inside_the_project_leads_somewhere(name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        page = ROOT / "docs" / (file or f"{name}.md")
        assert page.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
            assert anchor in slugs, target
