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
from hypothesis import HealthCheck, settings

from local.postgres import EmbeddedPostgres
from shared.db.migrate import limit_role, migrate
from shared.db.pool import Database

pytest.register_assert_rewrite("tests.db.queue_story", "tests.fakes")  # what they assert says what it compared

TEMPLATE = "template_migrated"
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")

# A landing must not depend on which examples this run draws, nor on how busy the machine is while it draws them. To look for
# new ones: `./antwoord test unit -- --hypothesis-profile=search --hypothesis-seed=7`.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "search", settings.get_profile("steady"), derandomize=False, max_examples=2_000, print_blob=True
)
settings.load_profile("steady")

# Plans and pages are asserted beside statistics that the test itself has made, not beside those of a moment's autovacuum.
UNDISTURBED = ("ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()")

# A file runs in one worker, so that the longest begin first, or the last of them runs alone at the end.
LONGEST = (
    "test_console_browser", "test_up", "test_chaos", "test_azure_hooks", "test_phone_page", "test_model_outage",
    "test_kill_host", "test_fault_matrix_silence", "test_fault_matrix_sure", "test_saga_kill", "test_database_away",
    "test_faults", "test_fault_matrix_answers", "test_doctor", "test_scale_out", "test_queue_model",
)  # fmt: skip

_numbers = itertools.count(1)
_cluster: EmbeddedPostgres | None = None
_folder = Path()


def _start() -> EmbeddedPostgres:
    """The run's cluster; nothing in it has to survive."""
    global _cluster, _folder
    if _cluster is None:
        _folder = Path(tempfile.mkdtemp(prefix="antwoord-test-")) / "pg"
        _cluster = EmbeddedPostgres(_folder, disposable=True)
        _cluster.run(UNDISTURBED)
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
        config.option.loadscopereorder = False  # by the number of tests, which says little; see LONGEST


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a parallel run: the longest files, and then the others from the last folder to the first, which ends with short ones."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    places = {name: place for place, name in enumerate(LONGEST)}
    folders = {"e2e": 0, "crash": 1, "db": 2}
    items.sort(key=lambda item: (places.get(item.path.stem, len(places)), folders.get(item.path.parent.name, 3)))


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
