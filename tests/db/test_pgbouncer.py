"""What PgBouncer in transaction mode takes away is not missed: sessions, their settings, and their locks."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg
import pytest

from local.postgres import EmbeddedPostgres
from shared.db.migrate import available, migrate, version
from shared.db.pool import Database
from shared.queue import store
from shared.queue.job import Complete, Job, JobType, Lease, Verdict, Write
from shared.queue.worker import Limits, Worker
from tests.fakes.eventually import eventually
from tests.fakes.pgbouncer import PgBouncer, database, pgbouncer_url  # noqa: F401 - fixtures
from tests.fakes.world import World

JOBS = 400
TYPE = "embed_record"


def test_a_session_is_shared_and_keeps_nothing(database: Database, pgbouncer_url: str) -> None:  # noqa: F811
    """Or the other tests of this file would prove nothing."""
    with database.connection() as connection:

        def sessions() -> int:
            seen = {connection.execute("SELECT pg_backend_pid()").fetchone() for _ in range(8)}
            return len(seen)

        eventually(lambda: sessions() > 1, what="a second session")
        with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter"):
            psycopg.connect(pgbouncer_url, options="-c statement_timeout=1s")


def test_the_role_s_limits_hold(database: Database) -> None:  # noqa: F811
    with database.connection() as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("3s",)
        assert connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("15s",)


def test_migrations_are_applied_once_by_two_at_once(postgres: EmbeddedPostgres) -> None:
    url = postgres.create("pgbouncer_migrate")
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute("CREATE EXTENSION vector")
    applied: list[str] = []
    with PgBouncer(url) as bouncer:
        pool = Database(bouncer.url, 2)

        def run() -> None:
            with pool.dedicated() as connection:
                applied.extend(migrate(connection))

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pool.connection() as connection:
            assert version(connection) == len(available())
        pool.close()
    assert sorted(applied) == [migration.name for migration in available()]


def test_a_worker_of_many_threads_runs_each_job_once(database: Database) -> None:  # noqa: F811
    """More threads than the pool has connections, and more of these than PgBouncer has sessions."""
    ran: list[UUID] = []

    def work(job: Job, lease: Lease) -> Verdict:
        with lease.transaction() as connection:
            connection.execute("SELECT set_config('antwoord.job', %(id)s, true)", {"id": str(job.id)})
            shown = connection.execute("SELECT current_setting('antwoord.job')").fetchone()
        assert shown == (str(job.id),)
        ran.append(job.id)
        return Complete([Write("UPDATE ai_jobs SET max_attempts = 4 WHERE id = %(id)s", {"id": job.id})])

    with database.transaction() as connection:
        jobs = [store.enqueue(connection, {"type": TYPE, "n": n}) for n in range(JOBS)]
    workers = [Worker(database, {TYPE: JobType(TYPE, work)}, lambda _: None, Limits(12, lease_seconds=5)) for _ in "ab"]
    with ThreadPoolExecutor(2) as hosts:
        list(hosts.map(lambda worker: worker.drain(12, 90), workers))
    assert Counter(ran) == Counter(jobs)
    with database.connection() as connection:
        counted = "SELECT status, attempts, max_attempts, count(*) FROM ai_jobs WHERE id = ANY (%s) GROUP BY 1, 2, 3"
        states = connection.execute(counted, [jobs])
        assert states.fetchall() == [("done", 1, 4, JOBS)]


def test_webhooks_and_the_worker_at_once_leave_no_message_unanswered(pgbouncer_url: str) -> None:  # noqa: F811
    """They wait for PgBouncer's few sessions, and not for a connection of the pool, which nobody waits for for long."""
    pool_of_many = Database(pgbouncer_url, 32)
    world = World(pool_of_many)
    world.add_handbook()
    numbers = [f"+3160000{n:04d}" for n in range(6)]
    storing = threading.Event()

    def sends(number: str) -> None:
        for n in range(10):
            world.says(number, f"vraag {n}")

    def works() -> None:
        while not storing.is_set():
            world.app.worker.poll_once(4)

    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(works) for _ in range(2)]
        for sent in [pool.submit(sends, number) for number in numbers]:
            sent.result(90)
        storing.set()
        for worked in working:
            worked.result(90)
    while world.value("SELECT count(*) FROM ai_jobs WHERE status = 'pending' AND type = 'autoreply'"):
        world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
        world.run()
    assert world.rows("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == [(0,)]
    assert world.rows("SELECT count(*) FROM messages WHERE NOT from_self") == [(60,)]
    assert {number: bool(world.sent_to(number)) for number in numbers} == dict.fromkeys(numbers, True)
    pool_of_many.close()


def test_a_statement_that_hangs_is_cut_and_the_pool_goes_on(database: Database) -> None:  # noqa: F811
    def hangs() -> None:
        with database.transaction(deadline=0.2) as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute("SELECT pg_sleep(10)")

    with pytest.raises(psycopg.OperationalError) as cut:
        hangs()
    assert cut.value.sqlstate is None, "by this side"
    with database.connection() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
