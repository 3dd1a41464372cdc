"""The one table of figures. To add one: a script here with `measure` and `main`, and a line below."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from bench.figures import Figure

type Measure = Callable[[Callable[[str], None]], list[Figure]]

# name: what is measured. The script is bench/NAME.py.
BENCHES: Mapping[str, str] = {
    "acknowledge": "acknowledging a webhook, against a bare insert through the same host",
    "start": "process start to the first 200",
    "claimed": "from a message to its job being claimed, with and without wake",
    "answered": "from a message to its answer being accepted, with a model of 1.5 s",
    "queue": "our queue beside procrastinate, pgqueuer, graphile-worker and pg-boss",
    "claim": "one claim beside a million other rows, and its plan",
    "soak": "two million jobs through the table, and a transaction left open elsewhere",
    "replay": "replaying 50,000 dead letters at a rate, and what live jobs notice of it",
    "deliver": "deliveries beside the bare HTTP client, a hundred endpoints of which five hang, a replay at a rate",
    "scale": "latency as load grows: instances, a model with a limit of tokens a minute, WhatsApp's limits",
    "console": "the console's pages with 100,000 jobs and 2,000 conversations",
    "chaos": "10,000 messages while hosts are killed, the database restarts and every service fails: what went wrong",
}


def measure(name: str, note: Callable[[str], None]) -> list[Figure]:
    """Run one script; `note` is told what it is at."""
    run: Measure = importlib.import_module(f"bench.{name}").measure
    return run(note)
