"""Two million jobs through one table, with retention and autovacuum at work; and what a transaction left open elsewhere does.

The jobs come in portions, each timed from its commit until all of it is recorded; the worker is one process from the first to the
last, and its memory is looked at on the way. Retention forgets what is finished as soon as there is more of it than a set
number, beside the drain. The beginning is where it has begun to forget.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psutil

from bench.contender import OURS
from bench.driven import Driven
from bench.figures import Figure, Goal, Spread
from bench.lab import BenchFailed, Lab
from bench.peer_environments import commands
from bench.queue import open_driven
from bench.report import alone
from shared.db.pool import Database
from shared.queue.retention import Retention

JOBS, PORTION = 2_000_000, 20_000
KEPT_PORTIONS = 5  # finished rows that are there at any time
COMPARED_PORTIONS = 10  # at the beginning and at the end
MEMORY_JOBS = 100_000
HELD_PORTION, HELD_PORTIONS = 10_000, 10
SECONDS_AT_MOST = 300.0  # for one portion
LOOK_SECONDS = 0.02

# Not a count: that would read the whole backlog each time.
IS_LEFT = """
    SELECT EXISTS (SELECT FROM ai_jobs WHERE type = 'bench' AND status = 'pending' AND next_run_at <= now())
        OR EXISTS (SELECT FROM ai_jobs WHERE type = 'bench' AND status = 'processing')
"""
PATIENT = "SET idle_in_transaction_session_timeout = 0"  # which cuts the application's own sessions short
SNAPSHOT = "SELECT count(*) FROM job_types"
DEAD = "SELECT n_dead_tup, autovacuum_count FROM pg_stat_user_tables WHERE relname = 'ai_jobs'"


@dataclass(slots=True)
class Soak:
    """Our queue in a database, and what its portions gave."""

    driven: Driven
    rates: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # after each portion, bytes
    done: int = 0

    def portion(self, count: int, process: psutil.Process) -> float:
        """Put `count` jobs through; jobs a second."""
        self.driven.connection.execute(OURS.tables.due, {"count": count})
        began = time.perf_counter()
        while self._is_left():
            if time.perf_counter() - began > SECONDS_AT_MOST:
                raise BenchFailed(f"{count:,} jobs were not done within {SECONDS_AT_MOST:g} s.")
            time.sleep(LOOK_SECONDS)
        rate = count / (time.perf_counter() - began)
        self.rates.append(rate)
        self.memory.append(process.memory_info().rss)
        self.done += count
        return rate

    def _is_left(self) -> bool:
        row = self.driven.connection.execute(IS_LEFT).fetchone()
        return bool(row and row[0])


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about ten minutes."""
    return soak(note, JOBS, PORTION) + held_open(note, HELD_PORTION, HELD_PORTIONS)


def soak(note: Callable[[str], None], jobs: int, portion: int) -> list[Figure]:
    """`jobs` through the table, `portion` at a time."""
    with Lab() as lab:
        ours = Soak(open_driven(lab, OURS, commands(note)["ours"](OURS.driver), "soak"))
        with ours.driven.working(OURS.ways[0]) as pid, _forgetting(ours, KEPT_PORTIONS * portion):
            process = psutil.Process(pid)
            while ours.done < jobs:
                rate = ours.portion(portion, process)
                if ours.done % (10 * portion) == 0:
                    note(f"soak: {ours.done:,} of {jobs:,} jobs, {rate:,.0f} a second …")
        row = ours.driven.connection.execute(DEAD).fetchone()
        note(f"soak: {row[0]:,} dead rows at the end, after {row[1]} vacuums" if row else "soak: no statistics")
    steady = ours.rates[KEPT_PORTIONS:]
    compared = max(min(COMPARED_PORTIONS, len(steady) // 2), 1)
    begin, end = Spread.of(steady[:compared]), Spread.of(steady[-compared:])
    share = end.middle / begin.middle
    first = ours.memory[0]
    later = ours.memory[min(MEMORY_JOBS // portion, len(ours.memory) - 1)]
    return [
        Figure("soak", f"drain after {ours.done:,} jobs, beside that at the beginning", end, "/s", begin,
               Spread(share, share, share), Goal(0.9, "ratio", at_least=True)),
        _memory(f"the worker's memory after {min(MEMORY_JOBS, ours.done - portion):,} more jobs", first, later),
        _memory("the worker's memory at the end", first, ours.memory[-1]),
    ]  # fmt: skip


def held_open(note: Callable[[str], None], portion: int, portions: int) -> list[Figure]:
    """The same portions while another session keeps a snapshot, which no vacuum may pass."""
    with Lab() as lab:
        ours = Soak(open_driven(lab, OURS, commands(note)["ours"](OURS.driver), "held"))
        other = lab.connect(ours.driven.url)
        with ours.driven.working(OURS.ways[0]) as pid:
            process = psutil.Process(pid)
            for _ in range(3):
                ours.portion(portion, process)
            before = Spread.of(ours.rates[1:])
            other.execute(PATIENT)
            other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            other.execute(SNAPSHOT)
            note(f"soak: {portion * portions:,} jobs beside an open transaction …")
            held = [ours.portion(portion, process) for _ in range(portions)]
            other.execute("COMMIT")
            ours.driven.connection.execute("VACUUM ai_jobs")
            after = [ours.portion(portion, process) for _ in range(2)]
    ends = sorted({1, portions // 2, portions} - {0})
    return [
        *(
            _held(f"drain beside an open transaction, jobs {(end - 1) * portion + 1:,} to {end * portion:,}",
                  held[end - 1], before)
            for end in ends
        ),
        _held("drain after it has ended and a vacuum has come", statistics.median(after), before),
    ]  # fmt: skip


@contextlib.contextmanager
def _forgetting(ours: Soak, kept: int) -> Iterator[None]:
    """Retention as the timer does it, only without its wait: whatever is finished beyond `kept` rows goes."""
    ended, retention = threading.Event(), Retention(days=0)
    database = Database(ours.driven.url, 1)

    def work() -> None:
        forgotten = 0
        while not ended.wait(0.1):
            while not ended.is_set() and ours.done - forgotten > kept:
                forgotten += retention.forget_finished(database)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        database.close()


def _memory(what: str, first: int, later: int) -> Figure:
    mib, growth = 1024 * 1024, later / first
    return Figure("soak", what, Spread(later / mib, later / mib, later / mib), "MiB",
                  Spread(first / mib, first / mib, first / mib), Spread(growth, growth, growth), Goal(1.05, "ratio"))  # fmt: skip


def _held(what: str, rate: float, before: Spread) -> Figure:
    share = rate / before.middle
    return Figure("soak", what, Spread(rate, rate, rate), "/s", before, Spread(share, share, share))


def main() -> None:
    """Measure and print; `--jobs` for a short form."""
    parser = argparse.ArgumentParser(description="Many jobs through one table.")
    parser.add_argument("--jobs", type=int, default=JOBS)
    jobs = parser.parse_args().jobs
    portion, held = min(PORTION, max(jobs // 20, 100)), min(HELD_PORTION, max(jobs // 20, 100))
    alone(lambda note: soak(note, jobs, portion) + held_open(note, held, HELD_PORTIONS))


if __name__ == "__main__":
    main()
