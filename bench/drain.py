"""Jobs that do nothing, drained by the real worker: a second's worth, alone and beside 200,000 rows that are not due."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.figures import Figure, Goal, Spread, ratios
from bench.lab import BenchFailed, Lab
from bench.report import alone
from shared.db.pool import Conn, Database
from shared.queue.job import Complete, Job, JobType, Lease, Verdict
from shared.queue.worker import Limits, Worker

ROUNDS, WARM_UP = 3, 1
JOBS, CONCURRENCY, CONNECTIONS = 5000, 8, 4
BESIDE = 200_000
SECONDS_AT_MOST = 120.0

ADD_TYPE = "INSERT INTO job_types (type) VALUES ('bench')"
DUE = """
    INSERT INTO ai_jobs (payload) SELECT jsonb_build_object('type', 'bench', 'n', n) FROM generate_series(1, %(count)s) n
"""
FUTURE = """
    INSERT INTO ai_jobs (payload, next_run_at)
    SELECT jsonb_build_object('type', 'bench', 'n', n), now() + interval '1 day' + n * interval '1 second'
    FROM generate_series(1, %(count)s) n
"""
FINISHED = """
    INSERT INTO ai_jobs (payload, status, attempts, claims, next_run_at)
    SELECT jsonb_build_object('type', 'bench', 'n', n), 'done', 1, 1, now() - n * interval '1 second'
    FROM generate_series(1, %(count)s) n
"""
LEFT = "SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing') AND next_run_at <= now()"
FORGET_DRAINED = "DELETE FROM ai_jobs WHERE claimed_at IS NOT NULL"


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about a minute."""
    with Lab() as lab:
        alone_url, beside_url = lab.database("alone"), lab.database("beside")
        empty, full = lab.connect(alone_url), lab.connect(beside_url)
        for connection in (empty, full):
            connection.execute(ADD_TYPE)
        note(f"drain: adding {BESIDE:,} rows that are not due …")
        full.execute(FUTURE, {"count": BESIDE // 2})
        full.execute(FINISHED, {"count": BESIDE // 2})
        note(f"drain: {JOBS:,} jobs, {ROUNDS} rounds of each …")
        rates: dict[str, list[float]] = {"alone": [], "beside": []}
        for number in range(WARM_UP + ROUNDS):
            for name, url, connection in (("alone", alone_url, empty), ("beside", beside_url, full)):
                rate = _drain(url, connection, JOBS if number >= WARM_UP else JOBS // 10)
                if number >= WARM_UP:
                    rates[name].append(rate)
    single = Spread.of(rates["alone"])
    what = f"jobs that do nothing, {CONCURRENCY} at once"
    return [
        Figure("drain", what, single, "/s"),
        Figure("drain", f"the same beside {BESIDE:,} future and finished rows", Spread.of(rates["beside"]), "/s", single,
               ratios(rates["beside"], rates["alone"]), Goal(0.9, "ratio", at_least=True)),
    ]  # fmt: skip


def _drain(url: str, connection: Conn, count: int) -> float:
    """Jobs a second; each round begins with the same rows. Raises BenchFailed when jobs are left."""
    connection.execute(FORGET_DRAINED)
    connection.execute(DUE, {"count": count})
    connection.execute("VACUUM ANALYZE ai_jobs, job_attempts")
    database = Database(url, CONNECTIONS)
    try:
        worker = Worker(database, {"bench": JobType("bench", _nothing)}, lambda _: None, Limits(CONCURRENCY))
        began = time.perf_counter()
        ran = worker.drain(CONCURRENCY, SECONDS_AT_MOST)
        seconds = time.perf_counter() - began
    finally:
        database.close()
    row = connection.execute(LEFT).fetchone()
    if ran != count or row is None or row[0]:
        raise BenchFailed(f"The drain ran {ran} of {count} jobs and left {row[0] if row else '?'}.")
    return count / seconds


def _nothing(job: Job, lease: Lease) -> Verdict:
    del job, lease
    return Complete()


def main() -> None:
    """Measure and print."""
    alone(measure)


if __name__ == "__main__":
    main()
