"""The statements of the conversations' pages on many rows: a long conversation costs its page no more than a short one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest

from shared.conversation import detail, listing

type Connection = psycopg.Connection[tuple[Any, ...]]

FILL = """
    INSERT INTO conversations (address, last_inbound_at, needs_person_since, needs_person_reason)
    SELECT '+3161' || lpad(n::text, 7, '0'), now() - n * interval '1 minute', CASE WHEN mod(n, 40) = 0 THEN now() END,
        CASE WHEN mod(n, 40) = 0 THEN 'asked' END
    FROM generate_series(1, 400) AS n
"""
# The first conversation has 6,000 messages, the others 5 each; every third message is a person's answer.
FILL_MESSAGES = """
    INSERT INTO messages (id, conversation_id, from_self, source, body, status, provider_sid, reply_id, part, parts)
    SELECT made, c.id, ours, CASE WHEN ours THEN 'admin' ELSE 'contact' END, repeat('tekst ', 20),
        CASE WHEN ours THEN 'read' ELSE 'received' END, 'SM' || made, CASE WHEN ours THEN made END,
        CASE WHEN ours THEN 1 END, CASE WHEN ours THEN 1 END
    FROM conversations c
    CROSS JOIN LATERAL generate_series(1, CASE c.address WHEN '+31610000001' THEN 6000 ELSE 5 END) AS n
    CROSS JOIN LATERAL (SELECT md5(c.id::text || n)::uuid AS made, mod(n, 3) = 0 AS ours) AS of
    ORDER BY n
"""
FILL_JOBS = """
    INSERT INTO ai_jobs (payload, conversation_id, status)
    SELECT CASE WHEN from_self THEN jsonb_build_object('type', 'send_message', 'message_id', id)
            ELSE jsonb_build_object('type', 'autoreply', 'conversation_id', conversation_id) END, conversation_id, 'done'
    FROM messages ORDER BY seq
"""
FILL_AUDIT = """
    INSERT INTO audit_log (who, what, target_type, target_id, details)
    SELECT 'hr', 'send_own', 'conversation', conversation_id::text, jsonb_build_object('message', id)
    FROM messages WHERE from_self
"""
LONG = "SELECT id FROM conversations WHERE address = '+31610000001'"


@pytest.fixture(scope="module")
def full(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("SET statement_timeout = 0")  # filling may take longer than what the application does
        for statement in (FILL, FILL_MESSAGES, FILL_JOBS, FILL_AUDIT):
            connection.execute(statement)
        connection.execute("VACUUM ANALYZE")
        yield connection


@pytest.fixture(scope="module")
def long(full: Connection) -> UUID:
    row = full.execute(LONG).fetchone()
    assert row
    found: UUID = row[0]
    return found


def plan(connection: Connection, sql: LiteralString, parameters: dict[str, Any]) -> tuple[str, int]:
    """The plan, and the pages of 8 kB that it read."""
    lines = connection.execute(b"EXPLAIN (ANALYZE, BUFFERS) " + sql.encode(), parameters).fetchall()
    text = "\n".join(str(line[0]) for line in lines)
    read = re.search(r"Buffers: ([^\n]*)", text)
    assert read, text
    return text, sum(int(number) for number in re.findall(r"(?:hit|read)=(\d+)", read[1]))


@pytest.mark.parametrize("before", [None, 4000], ids=["newest", "older"])
def test_a_page_of_a_long_thread_is_found_by_indexes(full: Connection, long: UUID, before: int | None) -> None:
    text, read = plan(full, detail.THREAD, {"id": long, "before": before, "limit": 51})
    for index in ("messages_thread", "ai_jobs_message", "audit_log_message", "ai_jobs_pkey"):
        assert index in text
    assert "Seq Scan" not in text
    assert read < 1000, text


def test_whether_anything_has_changed_costs_little(full: Connection, long: UUID) -> None:
    text, read = plan(full, detail.STAMP, {"id": long, "limit": 50})
    assert "Seq Scan on messages" not in text
    assert "Seq Scan on ai_jobs" not in text
    assert read < 150, text


def test_the_state_and_what_is_being_drafted_cost_little(full: Connection, long: UUID) -> None:
    full.execute("UPDATE conversations SET mode = 'manual' WHERE id = %s", (long,))
    text, read = plan(full, detail.FIND, {"id": long})
    assert "audit_log_target" in text
    assert read < 150, text
    text, read = plan(full, detail.DRAFTING, {"id": long})
    assert read < 50, text


@pytest.mark.parametrize("text", [None, "610000"])
def test_the_list_reads_one_message_of_each_conversation_that_it_shows(full: Connection, text: str | None) -> None:
    filters = {
        "text": text,
        "digits": text,
        "needs_person": False,
        "mode": None,
        "calm": None,
        "place": None,
        "id": None,
    }
    explained, read = plan(full, listing.PAGE, filters | {"limit": 51})
    assert "messages_thread" in explained
    assert "Seq Scan on messages" not in explained
    assert read < 500, explained
