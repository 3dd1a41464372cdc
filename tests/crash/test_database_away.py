"""The database goes away in every way that it has, under two instances at work: they wait, and go on by themselves.

No job is lost or completed twice, and none pays with an attempt for what was not its fault.
"""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from local.postgres import EmbeddedPostgres
from shared.db.migrate import migrate
from tests.crash.instances import LEASE, MAKE_EFFECTS, Instances
from tests.fakes.eventually import eventually

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

DEADLOCKED = "SELECT count(*) FROM job_attempts WHERE error LIKE 'DeadlockDetected%'"
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO effects%' AND now() - query_start < interval '150 ms'
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedPostgres]:
    """A cluster of this file's own: the others keep theirs."""
    found = EmbeddedPostgres(Path(tempfile.mkdtemp(prefix="antwoord-away-")) / "pg", disposable=True)
    with psycopg.connect(found.create("antwoord"), autocommit=True) as connection:
        migrate(connection)
        connection.execute(MAKE_EFFECTS)
        connection.execute("ALTER DATABASE antwoord SET deadlock_timeout = '200ms'")
    yield found
    found.close()


@pytest.fixture
def site(cluster: EmbeddedPostgres) -> Iterator[Instances]:
    found = Instances(cluster.url("antwoord"))
    yield found
    found.close()


def test_restart(site: Instances, cluster: EmbeddedPostgres) -> None:
    site.run(cluster.restart)


def test_away_for_longer_than_a_lease(
    site: Instances, cluster: EmbeddedPostgres, caplog: pytest.LogCaptureFixture
) -> None:
    def strike() -> None:
        cluster.stop()
        time.sleep(LEASE * 1.25)
        cluster.start()

    with caplog.at_level(logging.WARNING):
        site.run(strike)
    said = [record.getMessage() for record in caplog.records]
    # Who has all slots full of jobs that insist on their outcome does not poll.
    assert [line for line in said if re.search("poll_failed|database_insisted|lease_renewal_failed", line)]
    tries = [line for line in said if re.search("poll_failed|error connecting", line)]
    assert len(tries) <= 60  # of two instances with eight threads: no storm


def test_frozen_for_longer_than_a_lease(site: Instances, cluster: EmbeddedPostgres) -> None:
    def strike() -> None:
        cluster.freeze()
        time.sleep(LEASE * 1.25)
        cluster.resume()

    site.run(strike)


def test_failover(site: Instances) -> None:
    """The connections are cut, the next ones reach a server that takes no writes, and at last one that does."""

    def strike() -> None:
        with site.administrator() as connection:
            for read_only in ("on", "off"):
                connection.execute(f"ALTER DATABASE antwoord SET default_transaction_read_only = {read_only}".encode())
                connection.execute(CUT)
                if read_only == "on":
                    time.sleep(LEASE * 1.25)

    site.run(strike)


def test_pool_exhausted(site: Instances) -> None:
    def strike() -> None:
        pool = site.pools[0]
        with pool.connection(wait=5), pool.connection(wait=5), pool.connection(wait=5):
            time.sleep(3.2)  # the pool's patience is 3 s

    site.run(strike)


def test_statement_timeout(site: Instances) -> None:
    def strike() -> None:
        with site.administrator() as connection, connection.transaction():
            connection.execute("LOCK TABLE ai_jobs IN ACCESS EXCLUSIVE MODE")
            time.sleep(LEASE * 1.25)

    with site.administrator() as connection:
        connection.execute("ALTER ROLE postgres IN DATABASE antwoord SET statement_timeout = '200ms'")
    site.run(strike)
    with site.administrator() as connection:
        connection.execute("ALTER ROLE postgres IN DATABASE antwoord SET statement_timeout = '3s'")


@pytest.fixture
def patient_site(cluster: EmbeddedPostgres) -> Iterator[Instances]:
    """Deadlocks come one after the other, and a lease cannot be renewed while its row is in one of them."""
    found = Instances(cluster.url("antwoord"), lease_seconds=6.0)
    yield found
    found.close()


def test_deadlock(patient_site: Instances) -> None:
    """Somebody who takes the locks in the wrong order meets the jobs in the middle of their writing, time and again."""
    site = patient_site

    def strike() -> None:
        ends = time.monotonic() + 60
        with site.administrator() as connection, site.administrator() as other:
            while other.execute(DEADLOCKED).fetchone() == (0,):
                assert time.monotonic() < ends
                with suppress(psycopg.errors.DeadlockDetected), connection.transaction():
                    connection.execute("LOCK TABLE effects IN EXCLUSIVE MODE")
                    eventually(lambda: other.execute(WAITING).fetchone() != (0,))  # a job has locked its row
                    connection.execute("SELECT FROM ai_jobs WHERE status = 'processing' FOR UPDATE")

    site.run(strike)
