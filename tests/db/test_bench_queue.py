"""The bench's way of driving a queue, with ours: what it measures is what was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import psycopg
import pytest

from bench.contender import OURS, PEERS, Way
from bench.driven import Driven
from bench.lab import BenchFailed

ADD_TYPE = "INSERT INTO job_types (type) VALUES ('bench') ON CONFLICT DO NOTHING"
EMPTY = "TRUNCATE ai_jobs CASCADE"
JOBS = "SELECT status, next_run_at > now(), count(*)::int FROM ai_jobs GROUP BY 1, 2 ORDER BY 1, 2"


@pytest.fixture
def ours(database_url: str) -> Iterator[Driven]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(ADD_TYPE)
        connection.execute(EMPTY)
        yield Driven(OURS, [sys.executable, "-m", f"bench.peers.{OURS.driver}"], database_url, connection)


def test_a_drain_runs_all_its_jobs_and_leaves_the_others_alone(ours: Driven) -> None:
    ours.fill(20)
    drained = ours.drain(50, OURS.ways[0], 30.0)
    assert drained.ran == 50
    assert drained.connections >= 1
    assert ours.connection.execute(JOBS).fetchall() == [("done", False, 60), ("pending", True, 10)]
    ours.sweep()
    assert ours.connection.execute(JOBS).fetchall() == [("done", False, 10), ("pending", True, 10)]


def test_a_drain_that_takes_too_long_counts_what_it_did(ours: Driven) -> None:
    drained = ours.drain(50, Way("one at a time", {"concurrency": 1}, frozenset()), 0.5, job_ms=200.0)
    assert 0 < drained.ran < 50
    assert drained.rate == drained.ran / drained.seconds


def test_single_calls_and_pickups_are_timed(ours: Driven) -> None:
    assert ours.enqueue(10) > 0
    ours.sweep()
    assert ours.connection.execute(JOBS).fetchall() == []
    delays = ours.pickup(3, OURS.ways[0])
    assert len(delays) == 3
    assert all(0 < delay < 30 for delay in delays)


def test_a_driver_that_fails_says_why(ours: Driven) -> None:
    broken = Driven(OURS, [sys.executable, "-c", "raise SystemExit('out of luck')"], ours.url, ours.connection)
    with pytest.raises(BenchFailed, match=r"ours's driver failed: out of luck"):
        broken.install()
    with pytest.raises(BenchFailed, match="out of luck"):
        broken.enqueue(1)


def test_each_contender_has_what_the_figures_need() -> None:
    for contender in (OURS, *PEERS):
        figures = [figure for way in contender.ways for figure in way.figures]
        assert {"drain", "full", "slow", "pickup"} == set(figures), contender.name
        assert figures.count("pickup") == 1
