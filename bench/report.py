"""How figures are shown: one table, or one JSON object."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console

from bench.figures import COLUMNS, Figure, as_json, row
from bench.machine import Machine
from cli.output import Output, table


def report(output: Output, machine: Machine, figures: Sequence[Figure]) -> None:
    """Print the machine and the figures."""

    def show(console: Console) -> None:
        console.print(machine.sentence())
        console.print(table(COLUMNS, [row(figure) for figure in figures]))

    output.result({"machine": machine.as_json(), "figures": [as_json(figure) for figure in figures]}, show)


def alone(measure: Callable[[Callable[[str], None]], list[Figure]]) -> None:
    """One script by itself: measure and print."""
    output = Output()
    with Machine() as machine:
        figures = measure(output.note)
    report(output, machine, figures)
