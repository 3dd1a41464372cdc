"""Our queue beside procrastinate, pgqueuer, graphile-worker and pg-boss: one cluster, one run, rounds that take turns.

The cluster has Postgres' default durability for all of them: fsync, synchronous_commit and full_page_writes are on. Each queue
has two databases of its own, an empty one and one with a million other rows, and works in a process of its own, through its
real worker. A drain counts from the beginning of its first job until the last one is recorded as done; one that takes longer
than five seconds is ended, and counts what it did. A pickup counts from the call that adds a job, its commit included, to the
job's beginning, in one process: ours is woken there as by the wake queue, the others listen to their notifications.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from bench.contender import CONCURRENCY, OURS, PEERS, Contender, Way
from bench.driven import Driven
from bench.figures import Figure, Goal, Spread, ratios
from bench.lab import BenchFailed, Lab
from bench.peer_environments import commands
from bench.report import alone

ROUNDS = 3
JOBS, DRAIN_SECONDS = 20_000, 5.0
OTHERS = 1_000_000
SINGLE_CALLS, TURNS = 400, 4  # in a round: turns of so many calls
PICKUPS = 60  # in a round
SLOW_JOBS, SLOW_MS = 40 * CONCURRENCY, 100.0
SLOW_SECONDS = 30.0

ADD_TYPE = "INSERT INTO job_types (type) VALUES ('bench')"
DURABILITY = (
    "SELECT string_agg(name || ' ' || setting, ', ' ORDER BY name) FROM pg_settings WHERE name = ANY (%(names)s)"
)
DURABLE = ["fsync", "full_page_writes", "synchronous_commit", "wal_level"]

type Key = tuple[str, str, str]  # figure, contender, way


class Rounds:
    """What each round gave."""

    def __init__(self) -> None:
        self.values: dict[Key, list[float]] = defaultdict(list)
        self.delays: dict[str, list[list[float]]] = defaultdict(list)
        self.connections: dict[str, list[float]] = defaultdict(list)


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about ten minutes, and one more when the peers have to be installed."""
    return compare(note, [OURS, *PEERS], ROUNDS)


def compare(
    note: Callable[[str], None], contenders: Sequence[Contender], rounds: int, others: int = OTHERS
) -> list[Figure]:
    """The same of some of them, in as many rounds."""
    known = commands(note)
    seen = Rounds()
    with Lab() as lab:
        empty: list[Driven] = []
        full: list[Driven] = []
        for contender in (each for each in contenders if each.runtime in known):
            command = known[contender.runtime](contender.driver)
            try:
                pair = [open_driven(lab, contender, command, name) for name in ("empty", "full")]
            except BenchFailed as failed:
                if contender is OURS:
                    raise
                note(f"queue: {contender.name} is not measured: {failed}")
                continue
            empty.append(pair[0])
            full.append(pair[1])
            note(f"queue: {contender.name} beside {others:,} {contender.beside} …")
            full[-1].fill(others)
            full[-1].connection.execute(contender.tables.vacuum)
        row = full[0].connection.execute(DURABILITY, {"names": DURABLE}).fetchone()
        note(f"queue: the cluster's settings for all are {row[0] if row else '?'}")
        for number in range(rounds):
            note(f"queue: round {number + 1} of {rounds} …")
            turn = number % len(empty)
            _round(empty[turn:] + empty[:turn], full[turn:] + full[:turn], seen, note)
    return list(_figures([driven.contender for driven in empty], seen, others))


def open_driven(lab: Lab, contender: Contender, command: Sequence[str], what: str) -> Driven:
    """A contender in a database of its own, with its tables, empty."""
    name = f"{contender.driver}_{what}"
    if contender is OURS:
        url = lab.database(name)
        driven = Driven(contender, command, url, lab.connect(url))
        driven.connection.execute(ADD_TYPE)
        return driven
    url = lab.postgres.create(name)
    driven = Driven(contender, command, url, lab.connect(url))
    driven.install()
    return driven


def _round(empty: Sequence[Driven], full: Sequence[Driven], seen: Rounds, note: Callable[[str], None]) -> None:
    _checkpoint(empty[0])  # what came before shall not be written in the middle of a figure
    calls: dict[str, list[float]] = defaultdict(list)
    for _ in range(TURNS):  # short turns: a single call is mostly a wait for the disk, which has its moods
        for driven in empty:
            driven.sweep()
            calls[driven.contender.name].append(driven.enqueue(SINGLE_CALLS))
    for name, rates in calls.items():
        seen.values["enqueue", name, ""].append(statistics.median(rates))
    for drivens, figure in ((empty, "drain"), (full, "full")):
        for driven, way in _ways(drivens, figure):
            _checkpoint(driven)
            drained = driven.drain(JOBS, way, DRAIN_SECONDS)
            note(
                f"queue: {figure}, {driven.contender.name}, {way.what}: {drained.ran:,} jobs, {drained.rate:,.1f} a second"
            )
            seen.values[figure, driven.contender.name, way.what].append(drained.rate)
            if figure == "drain":
                seen.connections[driven.contender.name].append(drained.connections)
    for driven, way in _ways(empty, "slow"):
        drained = driven.drain(SLOW_JOBS, way, SLOW_SECONDS, job_ms=SLOW_MS)
        ideal = CONCURRENCY / (SLOW_MS / 1000)
        seen.values["slow", driven.contender.name, way.what].append(drained.rate / ideal)
    for driven, way in _ways(empty, "pickup"):
        driven.sweep()
        seen.delays[driven.contender.name].append([seconds * 1000 for seconds in driven.pickup(PICKUPS, way)])


def _ways(drivens: Sequence[Driven], figure: str) -> Iterator[tuple[Driven, Way]]:
    for driven in drivens:
        for way in driven.contender.ways:
            if figure in way.figures:
                yield driven, way


def _checkpoint(driven: Driven) -> None:
    driven.connection.execute("CHECKPOINT")


def _figures(contenders: Sequence[Contender], seen: Rounds, others: int) -> Iterator[Figure]:
    ours = seen.values["enqueue", OURS.name, ""]
    yield Figure("queue", "enqueue, ours", Spread.of(ours), "/s")
    for contender in contenders[1:]:
        yield _beside(f"enqueue, ours beside {contender.name}", ours, seen.values["enqueue", contender.name, ""], True)
    for way in OURS.ways:
        if "drain" in way.figures:
            yield Figure(
                "queue", f"drain, ours, {way.what}", Spread.of(seen.values["drain", OURS.name, way.what]), "/s"
            )  # fmt: skip
    for contender in contenders[1:]:
        for way in contender.ways:
            for own in way.beside if "drain" in way.figures else ():
                drained, theirs = (
                    seen.values["drain", name, what] for name, what in ((OURS.name, own), (contender.name, way.what))
                )
                yield _beside(
                    f"drain, ours, {own}, beside {contender.name}, {way.what}", drained, theirs, way.is_to_be_beaten
                )
    for contender in contenders:
        for way in contender.ways:
            if "full" in way.figures:
                value = seen.values["full", contender.name, way.what]
                baseline = seen.values["drain", contender.name, way.what]
                goal = Goal(0.9, "ratio", at_least=True) if contender is OURS else None
                what = f"drain with {others:,} other rows, {contender.name}, {way.what} ({contender.beside})"
                yield Figure(
                    "queue", what, Spread.of(value), "/s", Spread.of(baseline), ratios(value, baseline), goal
                )  # fmt: skip
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        for contender in contenders:
            goal = Goal(5.0) if contender is OURS and name == "p50" else None
            spread = Spread.pooled(seen.delays[contender.name], share)
            yield Figure("queue", f"pickup {name}, {contender.name}", spread, "ms", goal=goal)
    for contender in contenders:
        for way in contender.ways:
            if "slow" in way.figures:
                goal = Goal(0.95, at_least=True) if contender is OURS else None
                spread = Spread.of(seen.values["slow", contender.name, way.what])
                what = f"slots kept full, jobs of {SLOW_MS:g} ms, {contender.name}, {way.what}"
                yield Figure("queue", what, spread, "of the ideal", goal=goal)
    for contender in contenders:
        yield Figure(
            "queue", f"connections while draining, {contender.name}", Spread.of(seen.connections[contender.name]), ""
        )  # fmt: skip


def _beside(what: str, ours: Sequence[float], theirs: Sequence[float], is_goal: bool) -> Figure:
    goal = Goal(1.0, "ratio", at_least=True) if is_goal else None
    return Figure("queue", what, Spread.of(ours), "/s", Spread.of(theirs), ratios(ours, theirs), goal)


def main() -> None:
    """Measure and print; `--only` and `--rounds` for those who look into one of them."""
    parser = argparse.ArgumentParser(description="Our queue beside its peers.")
    parser.add_argument(
        "--only", metavar="NAMES", help="peers to measure beside ours, with commas; 'none' for ours alone"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--others", type=int, default=OTHERS, help="future and finished rows of the full table")
    asked = parser.parse_args()
    peers = [peer for peer in PEERS if asked.only is None or peer.name in asked.only.split(",")]
    alone(lambda note: compare(note, [OURS, *peers], asked.rounds, asked.others))


if __name__ == "__main__":
    main()
