"""The fault matrix, part 1: requests that surely were not accepted. No look-up is asked, whatever it would find."""

from __future__ import annotations

import pytest

from tests.e2e.matrix import BEGIN, CELLS, COLUMNS, DOCUMENT, END, ROWS, SURE, Cell, as_markdown
from tests.e2e.matrix_cells import REQUESTS, Stage, play_cell


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell.request in SURE], ids=str)
def test_cell(stage: Stage, cell: Cell) -> None:
    assert play_cell(stage, cell) == cell.end


def test_every_row_is_played_and_every_cell_once() -> None:
    assert list(REQUESTS) == ROWS
    assert len(set(CELLS)) == len(CELLS) == len(ROWS) * len(COLUMNS)


def test_the_document_shows_the_table() -> None:
    text = DOCUMENT.read_text("utf-8")
    shown = BEGIN + text.split(BEGIN)[1].split(END)[0] + END
    assert shown == as_markdown(), "run: .venv/bin/python -m tests.e2e.matrix"
