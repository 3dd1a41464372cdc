"""The queues that are measured side by side: how each one's driver is run, and how its own tables are filled and swept.

Rows are put in by `generate_series` into each one's own table, as its own client leaves them there; what cannot be done
honestly is said in `beside`. The ways are a queue's defaults and what its documentation gives for throughput.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

CONCURRENCY = 16  # jobs at once in one process, for all that have such a knob
AT_ONCE = f"{CONCURRENCY} at once"
MANY = 100  # beside one that takes a hundred at once whatever its limit
MANY_AT_ONCE = f"{MANY} at once"


@dataclass(frozen=True, slots=True)
class Tables:
    """Statements on one queue's tables; `due`, `future` and `finished` take %(count)s.

    `forget` sweeps away everything but the rows of `future` and `finished`; `left` counts what is due or running.
    """

    due: LiteralString
    future: LiteralString
    finished: LiteralString | None
    forget: Sequence[LiteralString]
    left: LiteralString
    vacuum: LiteralString


@dataclass(frozen=True, slots=True)
class Way:
    """Settings of one queue's worker, and the figures that they are for: any of drain, full, slow, pickup."""

    what: str
    settings: Mapping[str, Any]
    figures: frozenset[str]
    is_to_be_beaten: bool = False  # by our drain
    beside: Sequence[str] = (AT_ONCE,)  # which of our ways its drain is compared with


@dataclass(frozen=True, slots=True)
class Contender:
    """One queue. `driver` is its program in bench/peers; `beside` says which rows the full table holds besides the due ones."""

    name: str
    driver: str
    runtime: str  # ours, python or node
    tables: Tables
    ways: Sequence[Way]
    beside: str = "future and finished rows"


DRAIN, FULL, SLOW, PICKUP = (frozenset({name}) for name in ("drain", "full", "slow", "pickup"))

OURS = Contender(
    "ours", "ours", "ours",
    Tables(
        due="INSERT INTO ai_jobs (payload) SELECT jsonb_build_object('type', 'bench') FROM generate_series(1, %(count)s)",
        future="""
            INSERT INTO ai_jobs (payload, next_run_at)
            SELECT jsonb_build_object('type', 'bench'), now() + interval '1 day' + n * interval '1 second'
            FROM generate_series(1, %(count)s) n
        """,
        finished="""
            WITH finished AS (
                INSERT INTO ai_jobs (payload, status, attempts, claims, next_run_at)
                SELECT jsonb_build_object('type', 'bench'), 'done', 1, 1, now() - n * interval '1 second'
                FROM generate_series(1, %(count)s) n
                RETURNING id, next_run_at
            )
            INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome)
            SELECT id, 1, 1, next_run_at, next_run_at, 'done' FROM finished
        """,
        forget=(
            "DELETE FROM ai_jobs WHERE claimed_at IS NOT NULL OR status = 'pending' AND next_run_at < now() + interval '1 hour'",
        ),
        left="""
            SELECT (SELECT count(*) FROM ai_jobs WHERE status = 'processing')
                + (SELECT count(*) FROM ai_jobs WHERE type = 'bench' AND status = 'pending' AND next_run_at <= now())
        """,
        vacuum="VACUUM (ANALYZE) ai_jobs, job_attempts",
    ),
    (
        Way(AT_ONCE, {"concurrency": CONCURRENCY}, DRAIN | FULL | SLOW),
        Way("defaults", {}, DRAIN | PICKUP),
        Way(MANY_AT_ONCE, {"concurrency": MANY}, DRAIN),
    ),
)  # fmt: skip

PROCRASTINATE = Contender(
    "procrastinate", "procrastinate_peer", "python",
    Tables(
        due="""
            INSERT INTO procrastinate_jobs (queue_name, task_name) SELECT 'default', 'bench'
            FROM generate_series(1, %(count)s)
        """,
        future="""
            INSERT INTO procrastinate_jobs (queue_name, task_name, args, scheduled_at)
            SELECT 'default', 'bench', '{"kept": 1}', now() + interval '1 day' + n * interval '1 second'
            FROM generate_series(1, %(count)s) n
        """,
        finished="""
            INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, attempts)
            SELECT 'default', 'bench', '{"kept": 1}', 'succeeded', 1 FROM generate_series(1, %(count)s)
        """,
        forget=("DELETE FROM procrastinate_jobs WHERE args = '{}'",),
        left="""
            SELECT count(*) FROM procrastinate_jobs
            WHERE status = 'doing' OR status = 'todo' AND scheduled_at IS NULL
        """,
        vacuum="VACUUM (ANALYZE) procrastinate_jobs, procrastinate_events",
    ),
    (
        Way("defaults, 1 at once", {}, DRAIN | PICKUP, is_to_be_beaten=True),
        Way(
            AT_ONCE,
            {"worker": {"concurrency": CONCURRENCY}, "pool": {"min_size": 4, "max_size": CONCURRENCY}},
            DRAIN | FULL | SLOW, is_to_be_beaten=True,
        ),
    ),
)  # fmt: skip

PGQUEUER = Contender(
    "pgqueuer", "pgqueuer_peer", "python",
    Tables(
        due="""
            WITH added AS (
                INSERT INTO pgqueuer (priority, status, entrypoint) SELECT 0, 'queued', 'bench'
                FROM generate_series(1, %(count)s) RETURNING id
            )
            INSERT INTO pgqueuer_log (job_id, status, entrypoint, priority) SELECT id, 'queued', 'bench', 0 FROM added
        """,
        future="""
            INSERT INTO pgqueuer (priority, status, entrypoint, execute_after)
            SELECT 0, 'queued', 'bench', now() + interval '1 day' + n * interval '1 second'
            FROM generate_series(1, %(count)s) n
        """,
        finished="""
            INSERT INTO pgqueuer_log (job_id, status, entrypoint, priority) SELECT -n, 'successful', 'bench', 0
            FROM generate_series(1, %(count)s) n
        """,
        forget=(
            "DELETE FROM pgqueuer WHERE execute_after < now() + interval '1 hour'",
            "DELETE FROM pgqueuer_log WHERE job_id > 0",
        ),
        left="SELECT count(*) FROM pgqueuer WHERE execute_after <= now()",
        vacuum="VACUUM (ANALYZE) pgqueuer, pgqueuer_log",
    ),
    (
        Way("defaults, batches of 10, no limit", {}, DRAIN | PICKUP, is_to_be_beaten=True),
        Way(
            f"batches of {MANY}, no limit", {"worker": {"batch_size": MANY}}, DRAIN | FULL,
            is_to_be_beaten=True, beside=(AT_ONCE, MANY_AT_ONCE),
        ),
        Way(  # it demands room for two batches
            AT_ONCE, {"worker": {"batch_size": CONCURRENCY // 2, "max_concurrent_tasks": CONCURRENCY}},
            DRAIN | SLOW, is_to_be_beaten=True,
        ),
    ),
    beside="future rows, and finished ones in its log",
)  # fmt: skip

GRAPHILE_WORKER = Contender(
    "graphile-worker", "graphile_worker", "node",
    Tables(
        due="""
            INSERT INTO graphile_worker._private_jobs (task_id, payload)
            SELECT t.id, '{}' FROM graphile_worker._private_tasks t, generate_series(1, %(count)s)
            WHERE t.identifier = 'bench'
        """,
        future="""
            INSERT INTO graphile_worker._private_jobs (task_id, payload, run_at)
            SELECT t.id, '{}', now() + interval '1 day' + n * interval '1 second'
            FROM graphile_worker._private_tasks t, generate_series(1, %(count)s) n
            WHERE t.identifier = 'bench'
        """,
        finished=None,
        forget=("DELETE FROM graphile_worker._private_jobs WHERE run_at < now() + interval '1 hour'",),
        left="SELECT count(*) FROM graphile_worker._private_jobs WHERE run_at <= now()",
        vacuum="VACUUM (ANALYZE) graphile_worker._private_jobs",
    ),
    (
        Way("defaults, 1 at once", {}, DRAIN | PICKUP, is_to_be_beaten=True),
        Way(f"{AT_ONCE}, no batching", {"concurrency": CONCURRENCY}, DRAIN | FULL | SLOW, is_to_be_beaten=True),
        Way(
            f"{AT_ONCE}, batching",
            {
                "concurrency": CONCURRENCY,
                "preset": {"worker": {
                    "maxPoolSize": CONCURRENCY + 1, "localQueue": {"size": 500},
                    "completeJobBatchDelay": 0, "failJobBatchDelay": 0,
                }},
            },
            DRAIN | FULL,
        ),
    ),
    beside="future rows alone: it deletes what is finished",
)  # fmt: skip

PG_BOSS = Contender(
    "pg-boss", "pg_boss", "node",
    Tables(
        due="""
            INSERT INTO pgboss.job (name, data, policy) SELECT 'bench', '{}', 'standard'
            FROM generate_series(1, %(count)s)
        """,
        future="""
            INSERT INTO pgboss.job (name, data, policy, start_after)
            SELECT 'bench', '{"kept": 1}', 'standard', now() + interval '1 day' + n * interval '1 second'
            FROM generate_series(1, %(count)s) n
        """,
        finished="""
            INSERT INTO pgboss.job (name, data, policy, state, started_on, completed_on)
            SELECT 'bench', '{"kept": 1}', 'standard', 'completed', now(), now() FROM generate_series(1, %(count)s)
        """,
        forget=("DELETE FROM pgboss.job WHERE data = '{}'",),
        left="SELECT count(*) FROM pgboss.job WHERE name = 'bench' AND state < 'completed' AND start_after <= now()",
        vacuum="VACUUM (ANALYZE) pgboss.job",
    ),
    (
        Way("defaults, a poll every 2 s", {}, DRAIN | PICKUP),
        Way(
            "4 workers, batches of 500",
            {"batchSize": 500, "burstWhenBatchFull": True, "localConcurrency": 4}, DRAIN | FULL,
        ),
        Way(AT_ONCE, {"batchSize": 2, "burstWhenBatchFull": True, "localConcurrency": CONCURRENCY // 2}, SLOW),
    ),
)  # fmt: skip

PEERS = (PROCRASTINATE, PGQUEUER, GRAPHILE_WORKER, PG_BOSS)
