"""The console's statements on many rows: each page and each live part reads what it shows, not the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from shared.ops import figures, jobs_query

JOBS, CONVERSATIONS = 15_000, 500

FILL = """
    INSERT INTO conversations (address, needs_person_since, needs_person_reason)
    SELECT '+3161' || lpad(n::text, 7, '0'), CASE WHEN n %% 50 = 0 THEN now() END, CASE WHEN n %% 50 = 0 THEN 'asked' END
    FROM generate_series(1, %(conversations)s) n;
"""
FILL_JOBS = """
    INSERT INTO ai_jobs (payload, conversation_id, status, error_class, created_at, updated_at)
    SELECT jsonb_build_object('type', CASE n %% 3 WHEN 0 THEN 'send_message' ELSE 'autoreply' END),
        (array(SELECT id FROM conversations))[1 + n %% %(conversations)s],
        CASE WHEN n %% 100 = 7 THEN 'failed' WHEN n %% 1000 = 3 AND n %% 3 = 0 THEN 'pending' ELSE 'done' END,
        CASE WHEN n %% 100 = 7 THEN 'throttled' END, at, at
    FROM (SELECT n, now() - (%(jobs)s - n) * interval '60 seconds' AS at FROM generate_series(1, %(jobs)s) n) rows
"""
FILL_MESSAGES = """
    INSERT INTO messages (conversation_id, from_self, source, body, status, provider_sid, answered_by, created_at)
    SELECT (array(SELECT id FROM conversations))[1 + n %% %(conversations)s], false, 'contact', repeat('tekst ', 20), 'received',
        'SM' || n, gen_random_uuid(), now() - (%(jobs)s - n) * interval '60 seconds'
    FROM generate_series(1, %(jobs)s) n
"""
NONE: dict[str, Any] = {
    "status": None, "is_open": False, "is_closed": False, "type": None, "address": None, "error_class": None, "error": None,
    "since": None, "until": None, "ids": None, "before": None, "limit": 51,
}  # fmt: skip


@pytest.fixture(scope="module")
def full(database_url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(database_url, autocommit=True, prepare_threshold=None) as connection:
        sizes = {"jobs": JOBS, "conversations": CONVERSATIONS}
        for statement in (FILL, FILL_JOBS, FILL_MESSAGES):
            connection.execute(statement.encode(), sizes)
        connection.execute("VACUUM ANALYZE")
        yield connection


def plan(connection: psycopg.Connection[tuple[Any, ...]], sql: str, parameters: dict[str, Any]) -> tuple[str, int]:
    """The plan, and the pages of 8 kB that it read."""
    lines = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS) {sql}".encode(), parameters).fetchall()
    text = "\n".join(str(line[0]) for line in lines)
    read = re.search(r"Buffers: ([^\n]*)", text)
    assert read, text
    return text, sum(int(number) for number in re.findall(r"(?:hit|read)=(\d+)", read[1]))


@pytest.mark.parametrize(
    ("changes", "index", "pages"),
    [
        ({}, "ai_jobs_newest", 200),
        ({"before": JOBS // 2}, "ai_jobs_newest", 200),
        ({"status": "done"}, "ai_jobs_newest", 250),
        ({"status": "failed", "is_open": True}, "ai_jobs_", 1000),
        ({"status": "pending"}, "ai_jobs_due", 400),
        ({"address": "+31610000007"}, "ai_jobs_conversation", 250),
    ],
    ids=["newest", "a-later-page", "done", "failed", "pending", "phone"],
)
def test_a_page_of_jobs_reads_little_more_than_it_shows(
    full: psycopg.Connection[tuple[Any, ...]], changes: dict[str, Any], index: str, pages: int
) -> None:
    text, read = plan(full, jobs_query.LIST, NONE | changes)
    assert index in text
    assert "Seq Scan on ai_jobs" not in text
    assert read < pages, text


def test_the_overviews_live_figures_read_no_finished_job(full: psycopg.Connection[tuple[Any, ...]]) -> None:
    text, read = plan(full, figures.NOW, {"people": figures.PEOPLE_SHOWN})
    assert "Seq Scan on ai_jobs" not in text
    assert read < 400, text  # of which the 150 that have failed


def test_the_plot_of_a_day_reads_that_days_messages(full: psycopg.Connection[tuple[Any, ...]]) -> None:
    text, _ = plan(full, figures.HOURS, {})
    assert "messages_lately" in text


def test_a_message_is_found_by_its_sid(full: psycopg.Connection[tuple[Any, ...]]) -> None:
    text, read = plan(full, jobs_query.OF_SID, {"sid": "SM777"})
    assert "Seq Scan" not in text
    assert read < 300, text
