"""The claim reads a few pages of one index, whatever else is in the tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from shared.db.pool import Database
from tests.fakes.queue_bench import QueueBench

TYPES = ["autoreply", "send_message", "suggest", "embed_record", "import_people"]
EXPLAINED = (
    "SET statement_timeout = 0",
    "LOAD 'auto_explain'",
    "SET auto_explain.log_min_duration = 0",
    "SET auto_explain.log_nested_statements = on",
    "SET auto_explain.log_analyze = on",
    "SET auto_explain.log_buffers = on",
    "SET auto_explain.log_format = json",
    "SET client_min_messages = log",
)


class Explained:
    """A connection whose statements, those inside of functions too, leave their plans."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        self.plans: list[dict[str, Any]] = []
        self.connection.add_notice_handler(self._keep)
        for statement in EXPLAINED:
            self.connection.execute(statement.encode())

    def _keep(self, notice: psycopg.errors.Diagnostic) -> None:
        text = notice.message_primary or ""
        self.plans.append(json.loads(text[text.index("{") :]))

    def claims(self, size: int, types: Sequence[str]) -> list[dict[str, Any]]:
        """The plans of a claim that is taken back, with all that it ran, after the session has made them once."""
        for _ in range(2):
            self.plans.clear()
            with self.connection.transaction(force_rollback=True):
                self.connection.execute("SELECT * FROM claim_ai_jobs(%s, %s)", [size, list(types)]).fetchall()
        return self.plans


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan's nodes."""
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def of_jobs(plans: Sequence[dict[str, Any]]) -> dict[str, str]:
    """How each scan of ai_jobs is made: the name in the statement → the kind and the index."""
    return {
        node["Alias"]: f"{node['Node Type']} {node.get('Index Name', '')}"
        for plan in plans
        for node in nodes(plan["Plan"])
        if node.get("Relation Name") == "ai_jobs" and "Scan" in node["Node Type"]
    }


def buffers(plans: Sequence[dict[str, Any]]) -> int:
    """Pages touched by the statement with all that it ran: the outermost plan counts those inside."""
    return max(int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"]) for plan in plans)


@pytest.fixture
def explained(database_url: str) -> Iterator[Explained]:
    found = Explained(database_url)
    yield found
    found.connection.close()


@pytest.fixture
def bench(database: Database) -> QueueBench:
    return QueueBench(database)


@pytest.mark.parametrize("analyzed", ["before", "after"])
def test_beside_a_hundred_thousand_rows_the_claim_reads_the_head_of_the_due_index(
    bench: QueueBench, explained: Explained, analyzed: str
) -> None:
    """The statistics may be of an empty table, or fresh: the plan that a session keeps is good for both."""
    with psycopg.connect(explained.connection.info.dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute("VACUUM ANALYZE ai_jobs")
        bench.add(8, type="autoreply")
        explained.claims(8, TYPES)  # planned while the table is as good as empty
        connection.execute("INSERT INTO ai_jobs (payload, next_run_at) SELECT jsonb_build_object('type', 'autoreply'),"
                           " now() + interval '1 day' FROM generate_series(1, 40000)")  # fmt: skip
        connection.execute("INSERT INTO ai_jobs (payload, status) SELECT jsonb_build_object('type', 'autoreply'), 'done'"
                           " FROM generate_series(1, 40000)")  # fmt: skip
        connection.execute("INSERT INTO ai_jobs (payload, next_run_at) SELECT jsonb_build_object('type', 'import_people'),"
                           " now() - interval '1 hour' FROM generate_series(1, 20000)")  # fmt: skip
        if analyzed == "after":
            connection.execute("ANALYZE ai_jobs")
    for types in (["autoreply"], TYPES):
        plans = explained.claims(8, types)
        scans = of_jobs(plans)
        assert not [how for how in scans.values() if "Seq Scan" in how or "Bitmap" in how], scans
        assert {how for name, how in scans.items() if name.startswith("j") and "suspect" not in how} == {
            "Index Scan ai_jobs_due",
            "Index Only Scan ai_jobs_due",
        }
        assert buffers(plans) < 600  # claiming eight writes some 25 pages of index and row each


def test_a_conversation_with_ten_thousand_messages_costs_the_others_nothing(
    bench: QueueBench, explained: Explained
) -> None:
    def setting(messages: int) -> int:
        bench.execute("TRUNCATE ai_jobs, messages, conversations CASCADE")
        hot = bench.conversation("+31600000001")
        bench.execute('INSERT INTO ai_jobs (payload, conversation_id) VALUES (\'{"type": "autoreply"}\', %(c)s)', c=hot)
        with bench.database.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute(
                "INSERT INTO messages (conversation_id, from_self, source, body, status, answered_by)"
                " SELECT %(c)s, false, 'contact', 'x', 'received', CASE WHEN n %% 2 = 0 THEN gen_random_uuid() END"
                " FROM generate_series(1, %(count)s) n",
                {"c": hot, "count": messages},
            )
        for _ in range(min(messages, 300)):  # each that joins moves its job
            bench.execute("UPDATE ai_jobs SET rerun = true, next_run_at = now() - interval '1 s', updated_at = now()"
                          " WHERE conversation_id = %(c)s", c=hot)  # fmt: skip
        for number in range(8):
            bench.execute(
                'INSERT INTO ai_jobs (payload, conversation_id) VALUES (\'{"type": "autoreply"}\', %(c)s)',
                c=bench.conversation(f"+3161000000{number}"),
            )
        with psycopg.connect(explained.connection.info.dsn, autocommit=True) as connection:
            connection.execute("SET statement_timeout = 0")
            connection.execute("VACUUM ANALYZE ai_jobs, messages")
        return buffers(explained.claims(9, ["autoreply"]))

    assert setting(10_000) <= 1.2 * setting(1)


def test_a_limit_and_a_rest_are_read_from_the_index_of_what_runs(bench: QueueBench, explained: Explained) -> None:
    bench.add(2000)
    bench.execute("UPDATE job_types SET max_running = 5 WHERE type = 'embed_record'")
    bench.claim(3)
    plans = explained.claims(8, TYPES)
    assert of_jobs(plans)["r"].endswith("ai_jobs_processing")
    assert buffers(plans) < 600
