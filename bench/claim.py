"""One claim of sixteen jobs, alone and beside a million rows that are future or finished: its time, and its plan."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.contender import CONCURRENCY, OURS
from bench.driven import Driven
from bench.figures import Figure, Goal, Spread, percentile, ratios
from bench.lab import Lab
from bench.peer_environments import commands
from bench.queue import OTHERS, open_driven
from bench.report import alone
from shared.queue import store

ROUNDS, CLAIMS, WARM_UP = 5, 40, 5
LEASE_SECONDS = 30.0

# The claim is a function: its plans are told by auto_explain, as notices to the session that asks.
EXPLAIN = (
    "LOAD 'auto_explain'",
    "SET auto_explain.log_min_duration = 0",
    "SET auto_explain.log_nested_statements = on",
    "SET auto_explain.log_analyze = on",
    "SET auto_explain.log_buffers = on",
    "SET client_min_messages = log",
)
READS_EVERYTHING = ("Seq Scan on ai_jobs", "Bitmap Heap Scan on ai_jobs", "Sort Key: j.next_run_at")


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about a minute."""
    with Lab() as lab:
        command = commands(note)["ours"](OURS.driver)
        empty, full = (open_driven(lab, OURS, command, name) for name in ("alone", "beside"))
        note(f"claim: {OTHERS:,} rows that are not due …")
        full.fill(OTHERS)
        took: dict[str, list[float]] = {"empty": [], "full": []}
        for _ in range(ROUNDS):
            for name, driven in (("empty", empty), ("full", full)):
                driven.sweep()
                driven.connection.execute(OURS.tables.due, {"count": (WARM_UP + CLAIMS) * CONCURRENCY})
                driven.connection.execute(OURS.tables.vacuum)
                took[name].append(percentile([_claim(driven) * 1000 for _ in range(WARM_UP + CLAIMS)][WARM_UP:], 0.5))
        plans = _plans(full)
    for line in (line.strip() for plan in plans for line in plan.splitlines() if " on ai_jobs" in line):
        note(f"claim: {line}")
    wrong = float(sum(plan.count(words) for plan in plans for words in READS_EVERYTHING))
    alone_took = Spread.of(took["empty"])
    return [
        Figure("claim", f"one claim of {CONCURRENCY}, alone", alone_took, "ms"),
        Figure("claim", f"the same beside {OTHERS:,} future and finished rows", Spread.of(took["full"]), "ms", alone_took,
               ratios(took["full"], took["empty"]), Goal(1 / 0.9, "ratio")),
        Figure("claim", "scans in its plans that read the whole table or sort it", Spread(wrong, wrong, wrong), "",
               goal=Goal(0.0)),
    ]  # fmt: skip


def _claim(driven: Driven) -> float:
    """Seconds."""
    began = time.perf_counter()
    store.claim(driven.connection, CONCURRENCY, ["bench"], LEASE_SECONDS)
    return time.perf_counter() - began


def _plans(driven: Driven) -> list[str]:
    """The plans of one claim, innermost first."""
    said: list[str] = []
    driven.sweep()
    driven.connection.execute(OURS.tables.due, {"count": 1000})
    for statement in EXPLAIN:
        driven.connection.execute(statement)
    driven.connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    store.claim(driven.connection, CONCURRENCY, ["bench"], LEASE_SECONDS)
    return [text for text in said if "Query Text" in text]


def main() -> None:
    """Measure and print."""
    alone(measure)


if __name__ == "__main__":
    main()
