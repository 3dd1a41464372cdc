"""Real workers, killed with SIGKILL at every boundary and inside the job, or frozen beyond their lease."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from shared.boundary import OF_THE_QUEUE, Boundary
from shared.db.pool import Database
from shared.queue.job import JobType
from shared.queue.worker import Limits, Worker
from tests.crash.worker_process import LEASE_SECONDS, run
from tests.fakes.eventually import eventually
from tests.fakes.queue_bench import QueueBench

REPOSITORY = Path(__file__).resolve().parents[2]

# A completion without writes is one statement, its own transaction: this process can do nothing while that is open.
CASES = {
    f"{place}-{ends}": (place, ends)
    for place in (*OF_THE_QUEUE, "inside")
    for ends in ("done", "written")
    if (place, ends) != (Boundary.COMPLETING, "done")
}


@contextlib.contextmanager
def worker(url: str, job_type: str, *boundary: str) -> Iterator[subprocess.Popen[str]]:
    """A worker's process; it is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.worker_process", url, job_type, *boundary],
        cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


def add_type(bench: QueueBench, name: str) -> None:
    bench.execute("INSERT INTO job_types (type) VALUES (%(name)s) ON CONFLICT DO NOTHING", name=name)


def abandoned(bench: QueueBench) -> bool:
    """All leases end, and what had them is put back; whether nothing is in anybody's hands now."""
    bench.expire()
    bench.rescue()
    return "processing" not in bench.states()


def notes(bench: QueueBench, job: UUID) -> int:
    found = bench.rows("SELECT count(*) FROM audit_log WHERE target_id = %(job)s::text", job=job)
    return int(found[0][0])


class Killed:
    """All cases at once: each has a type, a job and a process of its own. Then one worker takes what they left."""

    def __init__(self, database: Database, url: str) -> None:
        self.bench = QueueBench(database)
        self.jobs: dict[str, UUID] = {}
        self.after_death: dict[str, tuple[str, int]] = {}
        with contextlib.ExitStack() as stack:
            processes = {}
            for case, (place, ends) in CASES.items():
                add_type(self.bench, case)
                (self.jobs[case],) = self.bench.add(type=case, ends=ends, dies=place == "inside")
                processes[case] = stack.enter_context(worker(url, case, *([] if place == "inside" else [place])))
            self.exits = {case: process.wait(90) for case, process in processes.items()}
        for case, job in self.jobs.items():
            self.after_death[case] = (self.bench.row(job)["status"], notes(self.bench, job))
        self.bench.expire()
        # What killed its worker on purpose was the first attempt alone; this process is the next to run it.
        self.bench.execute("UPDATE ai_jobs SET payload = payload - 'dies' WHERE status <> 'done'")
        limits = Limits(lease_seconds=LEASE_SECONDS)
        second = Worker(database, {case: JobType(case, run) for case in CASES}, lambda _: None, limits)

        def is_over() -> bool:
            second.drain(8, 1)
            return set(self.bench.states()) == {"done"}

        eventually(is_over)


@pytest.fixture(scope="module")
def killed(database: Database, database_url: str) -> Killed:
    return Killed(database, database_url)


@pytest.mark.parametrize("case", CASES)
def test_killed_anywhere_a_job_is_found_done_or_runs_again(killed: Killed, case: str) -> None:
    place, ends = CASES[case]
    assert killed.exits[case] == -signal.SIGKILL
    job, writes = killed.jobs[case], int(ends == "written")
    if place == Boundary.COMPLETED:
        assert killed.after_death[case] == ("done", writes)
        assert killed.bench.outcomes(job) == ["done"]
    else:
        assert killed.after_death[case] == ("processing", 0)
        assert killed.bench.outcomes(job) == ["crashed", "done"]
    row = killed.bench.row(job)
    assert (row["status"], row["attempts"]) == ("done", len(killed.bench.outcomes(job)))
    assert notes(killed.bench, job) == writes


LATE = ("done", "written", "continued", "snoozed", "retried", "buried", "in a transaction", "insisting",
        "in a transaction, unmoved")  # fmt: skip


def test_a_worker_that_was_frozen_beyond_its_lease_changes_nothing(database: Database, database_url: str) -> None:
    bench = QueueBench(database)
    add_type(bench, "frozen")
    jobs = {ends: bench.add(type="frozen", ends=ends, waits=True)[0] for ends in LATE[:8]}
    jobs[LATE[8]] = bench.add(type="frozen", ends=LATE[8], waits=True, due="1 h")[0]
    for first, last in ((0, 8), (8, 9)):  # as many as it has slots
        turn = {ends: jobs[ends] for ends in LATE[first:last]}
        bench.execute("UPDATE ai_jobs SET next_run_at = now() WHERE id = ANY (%(ids)s)", ids=list(turn.values()))
        with worker(database_url, "frozen") as process:
            assert process.stdout
            assert process.stdin
            begun = {process.stdout.readline().split()[-1] for _ in turn}
            assert begun == {str(job) for job in turn.values()}
            process.send_signal(signal.SIGSTOP)
            # Again, as a renewal may have been on its way.
            eventually(lambda: abandoned(bench))
            taken = bench.claim(9, "frozen")
            assert sorted(bench.finish(*taken)) == sorted(turn.values())
            process.send_signal(signal.SIGCONT)
            process.stdin.write("\n")
            process.stdin.flush()
            refused = Counter[str]()
            while sum(refused.values()) < len(turn):
                line = process.stdout.readline()
                assert line
                refused.update(job for job in map(str, turn.values()) if job in line and '"lease_lost"' in line)
            assert set(refused.values()) == {1}
        for ends, job in turn.items():
            row = bench.row(job)
            assert (row["status"], row["attempts"], row["run"]) == ("done", 2, 1), ends
            assert bench.outcomes(job) == ["crashed", "done"], ends
            assert notes(bench, job) == 0, ends


NEVER = 60.0  # seconds: longer than its worker lives


def test_what_kills_its_worker_dies_alone(database: Database, database_url: str) -> None:
    """One killer among 20 others, eight at once: it takes its neighbours down twice, and is buried without them."""
    bench = QueueBench(database)
    add_type(bench, "mixed")
    others = bench.add(4, type="mixed", takes=NEVER)
    (killer,) = bench.add(type="mixed", dies=True, takes=0.05)
    others += bench.add(3, type="mixed", takes=NEVER)  # its neighbours are still at work when it strikes
    others += bench.add(13, type="mixed", takes=0.05)
    deaths = 0

    def settled() -> bool:
        return not {"pending", "processing"} & set(bench.states())

    for _ in range(10):
        with worker(database_url, "mixed") as process:
            eventually(lambda: process.poll() is not None or settled())
            if process.poll() is None:
                break
            assert process.wait() == -signal.SIGKILL
            deaths += 1
        bench.expire()
        if deaths == 2:  # from now on they run one by one
            bench.execute("UPDATE ai_jobs SET payload = payload - 'takes' WHERE status <> 'done'")
    assert deaths == 3
    row = bench.row(killer)
    assert (row["status"], row["error_class"], row["attempts"]) == ("failed", "poison", 3)
    assert bench.outcomes(killer) == ["crashed"] * 3
    assert notes(bench, killer) == 1  # its burial, once
    assert {bench.row(job)["status"] for job in others} == {"done"}
    crashes = [bench.outcomes(job).count("crashed") for job in others]
    assert max(crashes) == 2  # innocent, and on their last attempt as it was: they had to be spared
