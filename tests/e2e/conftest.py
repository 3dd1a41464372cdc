"""What the files of the fault matrix share: one stage a file, reset for each cell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.db.pool import Database
from tests.e2e.matrix_cells import Stage, staged


@pytest.fixture(scope="module")
def file_stage(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(database, tmp_path_factory.mktemp("matrix")) as stage:
        yield stage


@pytest.fixture
def stage(file_stage: Stage) -> Stage:
    """Everything works, and nothing waits."""
    file_stage.reset()
    return file_stage
