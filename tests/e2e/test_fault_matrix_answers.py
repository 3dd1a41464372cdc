"""The fault matrix, part 3: answers that leave open whether the message was accepted."""

from __future__ import annotations

import pytest

from tests.e2e.matrix import CELLS, ROWS, SURE, Cell
from tests.e2e.matrix_cells import Stage, play_cell
from tests.e2e.test_fault_matrix_silence import SILENT

ANSWERS = [row for row in ROWS if row not in SURE and row not in SILENT]


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell.request in ANSWERS], ids=str)
def test_cell(stage: Stage, cell: Cell) -> None:
    assert play_cell(stage, cell) == cell.end
