"""The fault matrix, part 2: requests without an answer, and look-ups that fail in other ways than with a status."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.matrix import CELLS, OUTCOMES, ROWS, SURE, Cell
from tests.e2e.matrix_cells import Stage, play_cell

SILENT = [row for row in ROWS if row not in SURE and row.startswith(("no answer", "connection", "201, one byte"))]


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell.request in SILENT], ids=str)
def test_cell(stage: Stage, cell: Cell) -> None:
    assert play_cell(stage, cell) == cell.end


@pytest.mark.parametrize(
    ("do", "more"),
    [
        ("drop_before", {}),
        ("broken_body", {}),
        ("status", {"status": 401, "code": 20003}),
        ("status", {"status": 404}),
        ("status", {"status": 429, "headers": {"Retry-After": "3"}}),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.get("status", "")),
)
def test_a_look_up_that_fails_in_another_way_counts_as_failed_too(stage: Stage, do: Any, more: dict[str, Any]) -> None:
    stage.twilio.faults.add("list", do, **more)
    cell = Cell("connection lost, accepted", "fails", "held 1")
    assert play_cell(stage, cell) == OUTCOMES["held 1"].end
