"""The console's pages on a full database: the server's time for a whole page, from the request to the last byte of HTML.

The ASGI application is called in this process, signed in by a link, as the host would call it. Each round asks for each page
once; the first ones, which read the templates, are the warm-up.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any, LiteralString

from starlette.testclient import TestClient

from bench.figures import Figure, Goal, Spread
from bench.lab import BenchFailed, Lab, environment
from bench.report import alone
from shared.app import open_database
from shared.clients.azure_openai import Embedder
from shared.clients.guard import Guard
from shared.db.pool import Conn
from shared.ops.app import Console
from shared.ops.figures import Overview
from shared.ops.figures_kept import KeptFigures
from shared.ops.session import create_link
from shared.ops.visit import Services
from shared.settings import load
from shared.webhooks.sending import Sender

CONVERSATIONS, JOBS, LONG = 2_000, 100_000, 2_000
ROUNDS, WARM_UP = 15, 2
HERE = "http://127.0.0.1:7071"
GOAL_MS = 300.0

# A day of a large employer is 2,000 messages or so: the 100,000 reach back for seven weeks.
FILL = (
    """
    INSERT INTO people (phone, name, department) SELECT '+3161' || lpad(n::text, 7, '0'), 'Naam ' || n, 'Afdeling ' || n % 40
    FROM generate_series(1, %(conversations)s) n
    """,
    """
    INSERT INTO conversations (address, person_id, last_inbound_at, language, needs_person_since, needs_person_reason)
    SELECT phone, id, now() - random() * interval '40 days', 'nl',
        CASE WHEN phone LIKE '%50' THEN now() - random() * interval '2 days' END, CASE WHEN phone LIKE '%50' THEN 'asked' END
    FROM people
    """,
    """
    CREATE TABLE numbered AS SELECT row_number() OVER (ORDER BY address) - 1 AS place, id FROM conversations
    """,
    """
    INSERT INTO ai_jobs (payload, conversation_id, status, error_class, next_run_at, created_at, updated_at)
    SELECT jsonb_build_object('type', CASE n % 3 WHEN 0 THEN 'send_message' ELSE 'autoreply' END), numbered.id,
        CASE WHEN n % 100 = 7 THEN 'failed' WHEN n % 1000 = 3 AND n % 3 = 0 THEN 'pending' ELSE 'done' END,
        CASE WHEN n % 100 = 7 THEN 'throttled' END, at, at, at
    FROM (SELECT n, now() - (%(jobs)s - n) * interval '42 seconds' AS at FROM generate_series(1, %(jobs)s) n) AS made (n, at)
        JOIN numbered ON place = n % %(conversations)s
    """,
    """
    INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome, error_class)
    SELECT id, 1, 1, created_at, created_at + interval '2 seconds', status, error_class
    FROM ai_jobs WHERE status <> 'pending'
    """,
    """
    INSERT INTO messages (conversation_id, from_self, source, body, status, provider_sid, answered_by, reply_id, part, parts,
        created_at)
    SELECT conversation_id, ours, CASE WHEN ours THEN 'ai' ELSE 'contact' END, repeat('tekst ', 40),
        CASE WHEN ours THEN 'read' ELSE 'received' END, 'SM' || seq || ours, CASE WHEN NOT ours THEN id END,
        CASE WHEN ours THEN id END, CASE WHEN ours THEN 1 END, CASE WHEN ours THEN 1 END, created_at
    FROM ai_jobs CROSS JOIN (VALUES (false), (true)) AS side (ours) WHERE type = 'autoreply'
    """,
    """
    INSERT INTO messages (conversation_id, from_self, source, body, status, provider_sid, answered_by, reply_id, part, parts,
        created_at)
    SELECT id, ours, CASE WHEN ours THEN 'ai' ELSE 'contact' END, repeat('tekst ', 80),
        CASE WHEN ours THEN 'read' ELSE 'received' END, 'LONG' || n, CASE WHEN NOT ours THEN id END,
        CASE WHEN ours THEN gen_random_uuid() END, CASE WHEN ours THEN 1 END, CASE WHEN ours THEN 1 END,
        now() - (%(long)s - n) * interval '60 seconds'
    FROM numbered CROSS JOIN (SELECT n, n % 2 = 0 FROM generate_series(1, %(long)s) n) AS side (n, ours) WHERE place = 1
    """,
    "DROP TABLE numbered",
    "VACUUM ANALYZE",
)
LONG_CONVERSATION = "SELECT conversation_id FROM messages WHERE provider_sid = 'LONG1'"
A_FAILED_JOB = "SELECT id FROM ai_jobs WHERE status = 'failed' ORDER BY seq DESC LIMIT 1"


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about half a minute."""
    with Lab() as lab:
        url = lab.database("console")
        connection = lab.connect(url)
        note(f"console: writing {JOBS:,} jobs and {CONVERSATIONS:,} conversations …")
        for statement in FILL:
            connection.execute(_statement(statement))
        settings = load(environment(url, HERE, {"OPS_AUTH": "local"}))
        database = lab.enter(contextlib.closing(open_database(settings)))
        overview = Overview(database)
        guard = Guard(settings.outbound_allow_hosts)
        console = Console(
            Services(settings, database, _no_embedder, lambda _: None, overview, KeptFigures(), guard, Sender(guard))
        )
        client = TestClient(console, base_url=HERE, follow_redirects=False)
        _sign_in(client, connection)
        note(f"console: {ROUNDS} rounds of each page …")
        times = _rounds(client, _pages(connection), overview)
    return [Figure("console", what, Spread.of(values), "ms", goal=Goal(GOAL_MS)) for what, values in times.items()]


def _statement(text: str) -> bytes:
    sizes = {"%(conversations)s": CONVERSATIONS, "%(jobs)s": JOBS, "%(long)s": LONG}
    for name, size in sizes.items():
        text = text.replace(name, str(size))
    return text.encode()


def _pages(connection: Conn) -> dict[str, str]:
    """What is measured, and the path below the console's."""
    return {
        "overview, its figures read anew": "",
        "overview, when somebody has just looked": "",
        f"jobs, {JOBS:,} of them": "/jobs",
        "jobs that failed with one problem": "/jobs?state=failed&error_class=throttled",
        "one job": f"/jobs/{_value(connection, A_FAILED_JOB)}",
        f"conversations, {CONVERSATIONS:,} of them": "/conversations",
        f"a conversation of {LONG:,} messages": f"/conversations/{_value(connection, LONG_CONVERSATION)}",
    }


def _value(connection: Conn, sql: LiteralString) -> Any:
    row = connection.execute(sql).fetchone()
    if row is None:
        raise BenchFailed("The bench did not write what it wants to look at.")
    return row[0]


def _sign_in(client: Any, connection: Conn) -> None:
    headers = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
    answer = client.post("/api/ops/sign-in", data={"token": create_link(connection)}, headers=headers)
    if answer.status_code != 303:
        raise BenchFailed(f"The console did not let the bench in: status {answer.status_code}.")


def _no_embedder() -> Embedder:
    raise BenchFailed("No page that is measured asks a model.")


def _rounds(client: Any, pages: dict[str, str], overview: Overview) -> dict[str, list[float]]:
    """Milliseconds of each round, by page."""
    times: dict[str, list[float]] = {what: [] for what in pages}
    for number in range(WARM_UP + ROUNDS):
        overview.forget()
        for what, path in pages.items():
            began = time.perf_counter()
            answer = client.get(f"/api/ops{path}")
            took = time.perf_counter() - began
            if answer.status_code != 200 or not re.search(r"<main", answer.text):
                raise BenchFailed(f"The page {path or '/'} answered with status {answer.status_code}.")
            if number >= WARM_UP:
                times[what].append(took * 1000)
    return times


def main() -> None:
    """Measure and print."""
    alone(measure)


if __name__ == "__main__":
    main()
