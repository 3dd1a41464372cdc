"""The connections that the application may take, against what the server gives."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from shared.db.budget import Budget, Teller, read_budget, require_room
from shared.db.pool import Database
from shared.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


OTHERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'antwoord' AND pid <> ALL (%(ours)s) AND pid <> pg_backend_pid()
"""


def of(connection: psycopg.Connection, pool_max: int = 4) -> Budget:
    return read_budget(connection, pool_max)


@pytest.fixture
def few(database_url: str) -> Iterator[str]:
    """The file's database for a user who gets three connections."""
    name = "budgeted"
    with psycopg.connect(database_url, autocommit=True) as administrator:
        administrator.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 3".encode())
        yield database_url.replace("postgres:", f"{name}:", 1)
        administrator.execute(f"DROP ROLE {name}".encode())


def test_a_process_takes_its_pool_and_one_for_the_leases(database: Database) -> None:
    with database.connection() as connection:
        limit = int(connection.execute("SHOW max_connections").fetchone()[0])  # type: ignore[index]
        reserved = int(connection.execute("SHOW superuser_reserved_connections").fetchone()[0])  # type: ignore[index]
        budget = of(connection)
    assert (budget.per_process, budget.available) == (5, limit - reserved)
    assert budget.processes == (limit - reserved) // 5
    require_room(budget)


def test_what_is_open_is_counted(database_url: str) -> None:
    pool = Database(database_url, 2)
    with (
        psycopg.connect(database_url) as looking,
        pool.connection() as one, pool.connection() as two, pool.dedicated() as three,
    ):  # fmt: skip
        ours = [connection.info.backend_pid for connection in (one, two, three)]
        opened = of(looking).open
        # What a transaction has seen of the sessions stays as it was, whatever other tests do on this server.
        others = looking.execute(OTHERS, {"ours": ours}).fetchone()
    pool.close()
    assert others is not None
    assert opened == others[0] + 3


def test_the_narrowest_limit_counts(few: str, database_url: str) -> None:
    with psycopg.connect(few) as connection:
        assert of(connection).available == 3
    with psycopg.connect(database_url, autocommit=True) as administrator:
        name = administrator.info.dbname
        administrator.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 2".encode())
        assert of(administrator).available == 2
        administrator.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1".encode())


def test_too_little_room_is_one_sentence() -> None:
    with pytest.raises(UserError) as refused:
        require_room(Budget(5, 3, 0))
    assert str(refused.value) == (
        "The database gives this user at most 3 connections, and one process needs 5 (DB_POOL_MAX 4 and 1 for renewing leases): "
        "raise the server's max_connections, or set DB_POOL_MAX to 2 or less."
    )
    require_room(Budget(5, 5, 0))


def test_it_is_logged_once_when_the_database_answers(few: str, caplog: pytest.LogCaptureFixture) -> None:
    pool = Database(few, 4)
    teller = Teller(pool, 4)
    with caplog.at_level(logging.INFO, "antwoord"):
        teller.tell()
        teller.tell()
    assert [record.levelname for record in caplog.records] == ["INFO", "ERROR"]
    assert '"per_process": 5, "available": 3, "processes": 0' in caplog.records[0].getMessage()
    assert "raise the server's max_connections" in caplog.records[1].getMessage()
    pool.close()
    caplog.clear()
    Teller(Database("postgresql://nobody@127.0.0.1:1/nothing", 4), 4).tell()
    assert "connection_budget" not in caplog.text


def test_a_start_without_room_fails_and_says_why(few: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
    ran = subprocess.run(
        [sys.executable, "-m", "cli", "host", "--port", "0"], cwd=ROOT, env=environment | {"DATABASE_URL": few},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "at most 3 connections, and one process needs 5" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) <= 5  # wrapped, and no traceback
