"""One embedded Postgres a run, shared by its worker processes; one fresh, migrated database a test file."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from local.postgres import EmbeddedPostgres
from shared.db.migrate import limit_role, migrate
from shared.db.pool import Database

TEMPLATE = "template_migrated"
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")

_numbers = itertools.count(1)
_cluster: EmbeddedPostgres | None = None
_folder = Path()


def _start() -> EmbeddedPostgres:
    """The run's cluster; nothing in it has to survive."""
    global _cluster, _folder
    if _cluster is None:
        _folder = Path(tempfile.mkdtemp(prefix="antwoord-test-")) / "pg"
        _cluster = EmbeddedPostgres(_folder, disposable=True)
        with psycopg.connect(_cluster.create(TEMPLATE), autocommit=True) as connection:
            migrate(connection)
    return _cluster


class _Sharing:
    """The controlling process of a parallel run starts the cluster; the workers are told where it is."""

    @pytest.hookimpl
    def pytest_configure_node(self, node: Any) -> None:
        _start()
        node.workerinput["postgres"] = str(_folder)


def pytest_configure(config: pytest.Config) -> None:
    """Share the cluster if this run has workers."""
    if config.pluginmanager.hasplugin("dsession"):
        config.pluginmanager.register(_Sharing())


def pytest_unconfigure() -> None:
    """The last of all: the cluster goes."""
    if _cluster is not None:
        _cluster.close()


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> EmbeddedPostgres:
    """The run's cluster."""
    folder = getattr(request.config, "workerinput", {}).get("postgres")
    return EmbeddedPostgres(Path(folder)) if folder else _start()


@pytest.fixture(scope="module")
def database_url(postgres: EmbeddedPostgres) -> str:
    """A fresh migrated database for this test file."""
    url = postgres.create(f"test_{WORKER}_{next(_numbers)}", template=TEMPLATE)
    with psycopg.connect(url, autocommit=True) as connection:
        limit_role(connection)
    return url


@pytest.fixture(scope="module")
def database(database_url: str) -> Iterator[Database]:
    """The application's own pool on the file's database."""
    pool = Database(database_url, 8)
    yield pool
    pool.close()
