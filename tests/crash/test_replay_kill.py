"""A replay whose command is killed with SIGKILL again and again: another goes on, and each dead letter runs exactly once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from shared.db.pool import Database
from shared.queue import replays, replays_drive
from shared.queue.dead_letters import Filter
from shared.queue.job import Complete, Job, JobType, Lease, Verdict
from shared.queue.worker import Limits, Worker
from tests.fakes.eventually import eventually

REPOSITORY = Path(__file__).resolve().parents[2]
DEAD, RATE, KILLS = 4_000, 1000.0, 3

ADD_TYPE = "INSERT INTO job_types (type) VALUES ('noop')"
ADD_DEAD = """
    INSERT INTO ai_jobs (payload, status, attempts, claims) SELECT jsonb_build_object('type', 'noop', 'n', n), 'failed', 3, 3
    FROM generate_series(1, %(count)s) n
"""
# How many the plan says that it has restarted, and how many have been.
RESTARTED = "SELECT restarted, (SELECT count(*)::int FROM ai_jobs WHERE run > 1) FROM replays"
RUNS = "SELECT status, run, claims, count(*)::int FROM ai_jobs GROUP BY 1, 2, 3"
ATTEMPTS = "SELECT run, claim, outcome, count(*)::int FROM job_attempts GROUP BY 1, 2, 3"


def nothing(job: Job, lease: Lease) -> Verdict:
    del job, lease
    return Complete()


@contextlib.contextmanager
def working(database: Database) -> Iterator[None]:
    """A worker takes what is due; it does not carry the replay on."""
    worker, ended = Worker(database, {"noop": JobType("noop", nothing)}, lambda _: None, Limits()), threading.Event()

    def work() -> None:
        while not ended.wait(0.01):
            worker.drain(4, 1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)


def test_each_dead_letter_runs_once_however_often_its_replay_is_killed(database: Database, database_url: str) -> None:
    with database.connection() as connection:
        connection.execute(ADD_TYPE)
        connection.execute(ADD_DEAD, {"count": DEAD})
        plan = replays.start(connection, Filter(job_type="noop"), who="anna", reason="the model is back", rate=RATE)

    def restarted() -> int:
        """Always the same two numbers: both are written in one transaction, or neither is."""
        with database.connection() as connection:
            told, found = connection.execute(RESTARTED).fetchall()[0]
        assert told == found
        return int(told)

    with working(database):
        for number in range(KILLS):
            before = restarted()
            if before == DEAD and number:  # a slow machine's kill came late
                break
            command = [sys.executable, "-m", "cli", "dlq", "resume", str(plan.id)]
            running = subprocess.Popen(
                command, cwd=REPOSITORY, env=os.environ | {"DATABASE_URL": database_url},
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                eventually(lambda before=before: restarted() > before)  # type: ignore[misc]
            finally:
                running.kill()
                running.wait(30)
        eventually(lambda: replays_drive.advance(database, plan.id).state == "done")

        def is_idle() -> bool:
            with database.connection() as connection:
                return replays.became(connection, plan.id) == replays.Became(0, 0, 0)

        eventually(is_idle)
    with database.connection() as connection:
        ended = replays.show(connection, plan.id)
        assert ended is not None
        assert (ended.restarted, ended.joined, ended.left_out, ended.skipped) == (DEAD, 0, 0, 0)
        assert connection.execute(RUNS).fetchall() == [("done", 2, 1, DEAD)]
        assert connection.execute(ATTEMPTS).fetchall() == [(2, 1, "done", DEAD)]
