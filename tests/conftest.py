"""One embedded Postgres a run; one fresh, migrated database a test file."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from local.postgres import EmbeddedPostgres
from shared.db.migrate import limit_role, migrate
from shared.db.pool import Database

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """The run's cluster; nothing in it has to survive."""
    cluster = EmbeddedPostgres(Path(tempfile.mkdtemp(prefix="antwoord-test-")) / "pg", disposable=True)
    template = cluster.create("template_migrated")
    with psycopg.connect(template, autocommit=True) as connection:
        migrate(connection)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def database_url(postgres: EmbeddedPostgres) -> str:
    """A fresh migrated database for this test file."""
    url = postgres.create(f"test_{next(_numbers)}", template="template_migrated")
    with psycopg.connect(url, autocommit=True) as connection:
        limit_role(connection)
    return url


@pytest.fixture(scope="module")
def database(database_url: str) -> Iterator[Database]:
    """The application's own pool on the file's database."""
    pool = Database(database_url, 8)
    yield pool
    pool.close()
