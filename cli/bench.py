"""`bench`: the measured figures in one table; a goal that is missed is a finding, not a failure."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from bench.catalogue import BENCHES, measure
from bench.machine import Machine
from bench.report import report
from cli.output import AsJson, Output
from shared.errors import UserError


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help=f"One of {', '.join(BENCHES)}; all of them by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the figures on this machine, all of them (about half an hour) or one, and print them beside their goals."""
    if name is not None and name not in BENCHES:
        raise UserError(f"There is no figure called {name!r}: choose from {', '.join(BENCHES)}.")
    output, figures = Output(as_json=as_json), []
    with Machine() as machine:
        for each in [name] if name else BENCHES:
            began = time.monotonic()
            figures += measure(each, output.note)
            output.note(f"{each}: {time.monotonic() - began:.0f} s")
    report(output, machine, figures)
