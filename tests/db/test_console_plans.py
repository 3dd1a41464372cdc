"""The console's statements on many rows: each page and each live part reads what it shows, not the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from shared.ops import events_query, figures, jobs_query
from shared.webhooks import figures as delivery_figures

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
# Deliveries of two months, one a minute or so, each tried once: 1 % died, 2 % wait.
FILL_DELIVERIES = """
    WITH endpoint AS (
        INSERT INTO webhook_endpoints (name, url, secret, created_by)
        SELECT 'endpoint-' || n, 'https://x.example.org/', '\\x00', 'test' FROM generate_series(1, 5) n RETURNING id
    ), made AS MATERIALIZED (
        SELECT n, gen_random_uuid() AS event, gen_random_uuid() AS id, now() - n * interval '6 minutes' AS at,
            (array(SELECT id FROM endpoint))[1 + n %% 5] AS endpoint,
            CASE WHEN n %% 100 = 7 THEN 'dead' WHEN n %% 50 = 3 THEN 'waiting' ELSE 'delivered' END AS state
        FROM generate_series(1, %(jobs)s) n
    ), event AS (
        INSERT INTO webhook_events (id, type, data, received_at)
        SELECT event, 'type-' || n %% 7, jsonb_build_object('text', repeat('x', 500)), at FROM made
    ), delivery AS (
        INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state, tries, delivered_at, died_at, latency_seconds)
        SELECT id, event, endpoint, gen_random_uuid(), state, 1, CASE WHEN state = 'delivered' THEN at END,
            CASE WHEN state = 'dead' THEN at END, CASE WHEN state = 'delivered' THEN 0.5 END
        FROM made
    )
    INSERT INTO webhook_attempts (delivery_id, try, endpoint_id, run, started, gives_up_at, ended, outcome)
    SELECT id, 1, endpoint, 1, at, at, at, CASE WHEN state = 'delivered' THEN 'delivered' ELSE 'failed' END FROM made
"""
NONE: dict[str, Any] = {
    "status": None, "is_open": False, "is_closed": False, "type": None, "address": None, "error_class": None, "error": None,
    "since": None, "until": None, "ids": None, "before": None, "limit": 51,
}  # fmt: skip


@pytest.fixture(scope="module")
def full(database_url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(database_url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("SET statement_timeout = 0")  # filling may take longer than what the application does
        sizes = {"jobs": JOBS, "conversations": CONVERSATIONS}
        for statement in (FILL, FILL_JOBS, FILL_MESSAGES, FILL_DELIVERIES):
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


@pytest.mark.parametrize(
    ("sql", "index", "pages"),
    [
        (delivery_figures.TRIES, "webhook_attempts_ended", 300),
        (delivery_figures.LATENCY, "webhook_deliveries_delivered", 60),
        (delivery_figures.DIED, "webhook_deliveries_died", 30),
        (delivery_figures.WAITING, "webhook_deliveries_open", 400),
        (delivery_figures.BUCKETS, "webhook_attempts_ended", 400),
    ],
    ids=["tries", "latency", "died", "waiting", "buckets"],
)
@pytest.mark.parametrize("of_one", [False, True], ids=["all", "one-endpoint"])
def test_the_figures_of_a_day_read_that_day_and_no_event(
    full: psycopg.Connection[tuple[Any, ...]], sql: str, index: str, pages: int, of_one: bool
) -> None:
    row = full.execute(
        "SELECT id, now() - interval '1 day', now(), interval '1800 s' FROM webhook_endpoints"
    ).fetchone()
    assert row
    wanted = {"endpoint": row[0] if of_one else None, "since": row[1], "until": row[2], "step": row[3]}
    text, read = plan(full, sql, wanted)
    assert index in text
    assert not re.search(r"Seq Scan on webhook_(events|deliveries|attempts)", text), text
    assert read < pages, text


def test_the_types_of_events_are_listed_without_reading_the_events(full: psycopg.Connection[tuple[Any, ...]]) -> None:
    text, read = plan(full, events_query.TYPES, {"limit": 100})
    assert "Seq Scan" not in text
    assert read < 100, text


def test_what_people_had_done_with_an_event_is_found_by_its_target(full: psycopg.Connection[tuple[Any, ...]]) -> None:
    row = full.execute("SELECT event_id, id::text FROM webhook_deliveries LIMIT 1").fetchone()
    assert row
    text, read = plan(full, events_query.ASKED, {"event": row[0], "targets": [str(row[0]), row[1]]})
    assert not re.search(r"Seq Scan on (webhook|ai_jobs)", text), text
    assert read < 200, text
