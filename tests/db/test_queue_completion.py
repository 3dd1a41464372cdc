"""Completions that share a commit: each fenced by itself, none lost, none in the way of another."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from shared.boundary import Boundary
from shared.db.pool import Database
from shared.errors import LeaseLost
from shared.queue import store
from shared.queue.job import Complete, Job, JobType, Lease, Verdict, Write
from shared.queue.worker import Limits, Worker
from tests.fakes.eventually import eventually
from tests.fakes.queue_bench import TYPE, QueueBench


@pytest.fixture
def bench(database: Database) -> QueueBench:
    return QueueBench(database, concurrency=16)


def test_a_refused_completion_hurts_none_of_the_others(bench: QueueBench) -> None:
    jobs = bench.add(5)
    first = bench.claim(5)
    bench.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 s' WHERE id = ANY (%(ids)s)", ids=jobs[:2])
    assert bench.rescue() == 2
    (again,) = bench.claim(1)  # one of the two runs elsewhere, the other waits
    assert sorted(bench.finish(*first)) == sorted(jobs[2:])
    assert [bench.row(job)["status"] for job in jobs] == ["processing", "pending", "done", "done", "done"]
    assert bench.row(jobs[0])["lease_token"] == again.lease_token
    assert [bench.outcomes(job) for job in jobs] == [["crashed"], ["crashed"], ["done"], ["done"], ["done"]]


def test_a_late_completion_is_logged_and_the_drain_goes_on(bench: QueueBench, caplog: pytest.LogCaptureFixture) -> None:
    jobs = bench.add(6)
    taken = threading.Event()

    def work(job: Job, lease: Lease) -> Verdict:
        if job.id == jobs[0] and not taken.is_set():
            taken.set()
            bench.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 s' WHERE id = %(id)s", id=job.id)
            bench.rescue()
        return Complete()

    bench.work = work
    with caplog.at_level("WARNING"):
        assert bench.worker.drain(6, 60) == 7
    assert bench.states() == {"done": 6}
    assert bench.outcomes(jobs[0]) == ["crashed", "done"]
    assert [str(jobs[0]) in line for line in caplog.messages if "lease_lost" in line] == [True]


def test_a_row_that_somebody_has_locked_keeps_the_others_from_nothing(bench: QueueBench) -> None:
    jobs = bench.add(8)
    run = threading.Event()

    def work(job: Job, lease: Lease) -> Verdict:
        assert run.wait(30)
        return Complete()

    bench.work = work
    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(bench.worker.drain, 8, 60)
        eventually(lambda: bench.states() == {"processing": 8})
        with bench.database.transaction() as other:
            other.execute("SELECT FROM ai_jobs WHERE id = %s FOR NO KEY UPDATE", [jobs[3]])
            run.set()
            eventually(lambda: bench.states() == {"processing": 1, "done": 7})
            assert not drained.done()  # it returns when all is recorded
        assert drained.result(60) == 8
    assert bench.states() == {"done": 8}


def test_together_they_wait_for_no_lock(bench: QueueBench) -> None:
    jobs = bench.add(4)
    held = bench.claim(4)
    with bench.database.transaction() as other:
        other.execute("SELECT FROM ai_jobs WHERE id = %s FOR NO KEY UPDATE", [jobs[1]])
        assert sorted(bench.finish(*held)) == sorted({*jobs} - {jobs[1]})
    assert bench.finish(*held) == [jobs[1]]


def test_each_conversation_whose_flag_is_set_gets_its_next_job(bench: QueueBench) -> None:
    conversations = [bench.conversation(f"+3160000000{n}") for n in range(4)]
    for number, conversation in enumerate(conversations):
        bench.execute(
            "INSERT INTO ai_jobs (payload, conversation_id, rerun) VALUES (%(payload)s, %(conversation)s, %(rerun)s)",
            payload=Jsonb({"type": "autoreply", "message_id": str(number)}),
            conversation=conversation,
            rerun=number % 2 == 0,
        )
    with bench.database.connection() as connection:
        held = store.claim(connection, 9, ["autoreply"], 5)
        turn = store.turn(connection, held, 9, ["autoreply"], 5)
    assert sorted(turn.finished.values()) == [False, False, True, True]
    assert [job.conversation_id for job in turn.claimed] == [conversations[0], conversations[2]]
    assert [job.payload["message_id"] for job in turn.claimed] == ["0", "2"]
    assert bench.states() == {"done": 4, "processing": 2}


def test_a_follow_up_of_a_shared_commit_wakes_a_worker(bench: QueueBench) -> None:
    bench.execute(
        "INSERT INTO ai_jobs (payload, conversation_id, rerun) VALUES (%(payload)s, %(conversation)s, true)",
        payload=Jsonb({"type": "autoreply"}),
        conversation=bench.conversation("+31600000009"),
    )
    worker = Worker(bench.database, {"autoreply": JobType("autoreply", lambda job, lease: Complete())},
                    bench.delays.append, Limits(lease_seconds=5))  # fmt: skip
    assert worker.poll_once(4) == 1
    assert bench.delays == [0.0]
    assert bench.states() == {"done": 1, "pending": 1}


def test_a_success_among_others_ends_its_type_s_rest(bench: QueueBench) -> None:
    bench.add(2)
    held = bench.claim(2)
    bench.execute("UPDATE job_types SET failures_in_row = 7, resting_until = now() + interval '1 h', resting_reason = 'x'"
                  " WHERE type = %(type)s", type=TYPE)  # fmt: skip
    bench.finish(*held)
    rests = bench.rows("SELECT failures_in_row, resting_until FROM job_types WHERE type = %(type)s", type=TYPE)
    assert rests == [(0, None)]


def test_what_the_database_refuses_together_is_recorded_one_by_one(bench: QueueBench) -> None:
    """An attempt that is already there refuses one job's completion: the others are done all the same."""
    jobs = bench.add(5)
    bench.execute("INSERT INTO job_attempts (job_id, run, claim, started, outcome) VALUES (%(id)s, 1, 1, now(), 'done')",
                  id=jobs[2])  # fmt: skip
    assert bench.worker.poll_once(5) == 5
    assert bench.states() == {"done": 4, "processing": 1}
    assert bench.row(jobs[2])["status"] == "processing"


def test_a_lease_is_kept_until_its_job_is_recorded(database: Database) -> None:
    """A completion that waits for a lock for longer than a lease is still this worker's."""
    bench = QueueBench(database, lease_seconds=1.0)
    (job,) = bench.add()
    started, run = threading.Event(), threading.Event()

    def work(claimed: Job, lease: Lease) -> Verdict:
        started.set()
        run.wait(30)
        return Complete()

    bench.work = work
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(bench.worker.poll_once, 1)
        assert started.wait(30)
        first = bench.row(job)["lease_until"]
        with bench.database.transaction() as other:
            other.execute("SELECT FROM ai_jobs WHERE id = %s FOR KEY SHARE", [job])
            other.execute("LOCK job_attempts IN SHARE MODE")  # no completion can be recorded, a renewal can
            run.set()
            eventually(lambda: bench.rows("SELECT now() > %(first)s", first=first)[0][0])
            eventually(lambda: bench.rows("SELECT lease_until > now() FROM ai_jobs")[0][0])
        assert ran.result(30) == 1
    assert bench.outcomes(job) == ["done"]


def test_the_boundaries_are_passed_in_order(database: Database) -> None:
    passed: list[Boundary] = []
    bench = QueueBench(database, checkpoint=passed.append)
    bench.add()
    bench.worker.poll_once(1)
    # One statement is its own transaction: there is no moment at which it is open and this process could do something.
    assert passed == [Boundary.CLAIMED, Boundary.RETURNED, Boundary.COMPLETED]
    passed.clear()
    bench.work = lambda job, lease: Complete([Write("SELECT 1", {})])
    bench.add()
    bench.worker.poll_once(1)
    assert passed == [Boundary.CLAIMED, Boundary.RETURNED, Boundary.COMPLETING, Boundary.COMPLETED]


def test_two_rescuers_put_each_job_back_once(bench: QueueBench) -> None:
    jobs = bench.add(200)
    bench.claim(200)
    bench.expire()
    together = threading.Barrier(2, timeout=30)

    def rescue(_: int) -> int:
        together.wait()
        total = 0
        while rescued := bench.rescue():
            total += rescued
        return total

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(rescue, range(2))) == 200
    assert {tuple(bench.outcomes(job)) for job in jobs[:20]} == {("crashed",)}
    assert bench.rows("SELECT count(*), min(attempts), max(attempts) FROM ai_jobs WHERE status = 'pending'") == [
        (200, 1, 1)
    ]


def one_by_one(bench: QueueBench, jobs: Sequence[Job]) -> int:
    done = 0
    for job in jobs:
        with bench.database.transaction() as connection:
            try:
                store.mark_done(connection, job)
            except LeaseLost:
                continue
            done += 1
    return done


def together_in_tens(bench: QueueBench, jobs: Sequence[Job]) -> int:
    return sum(len(bench.finish(*jobs[at : at + 10])) for at in range(0, len(jobs), 10))


@pytest.mark.parametrize("complete", [one_by_one, together_in_tens])
def test_a_rescue_that_races_with_completions_undoes_none(
    bench: QueueBench, complete: Callable[[QueueBench, Sequence[Job]], int]
) -> None:
    bench.add(300)
    held = bench.claim(300)
    bench.expire()
    start = threading.Barrier(2, timeout=30)

    def finish() -> int:
        start.wait()
        return complete(bench, held)

    def rescue() -> int:
        start.wait()
        return sum(bench.rescue() for _ in range(6))

    with ThreadPoolExecutor(2) as pool:
        finishing, rescuing = pool.submit(finish), pool.submit(rescue)
        done, rescued = finishing.result(), rescuing.result()
    assert done + rescued == 300
    assert bench.rows("SELECT outcome, count(*) FROM job_attempts GROUP BY outcome ORDER BY outcome") == [
        row for row in (("crashed", rescued), ("done", done)) if row[1]
    ]
    assert bench.rows("SELECT count(*) FROM ai_jobs j JOIN job_attempts a ON a.job_id = j.id"
                      " WHERE (j.status = 'done') <> (a.outcome = 'done')") == [(0,)]  # fmt: skip


def test_many_drains_share_the_work_and_record_all_of_it(database: Database, bench: QueueBench) -> None:
    jobs = bench.add(600)
    ran: list[Any] = []
    bench.work = lambda job, lease: ran.append(job.id) or Complete()  # type: ignore[func-returns-value]
    sizes = [1, 1, 1, 4, 9]
    with ThreadPoolExecutor(len(sizes)) as pool:
        total = sum(pool.map(lambda size: bench.worker.drain(size, 90), sizes))
    assert total == len(ran) == len(set(ran)) == len(jobs)
    assert bench.states() == {"done": 600}
    assert bench.rows("SELECT count(*) FROM job_attempts WHERE outcome = 'done'") == [(600,)]


def test_a_fault_of_the_database_loses_no_completion(database: Database, database_url: str) -> None:
    """All connections are cut while jobs end: all that ended is recorded, and none pays for it."""
    bench = QueueBench(
        database, concurrency=16, lease_seconds=300.0
    )  # beyond the drain, or what a cut took would be rescued
    bench.add(120)
    count, ended = itertools.count(1), set[UUID]()

    def work(job: Job, lease: Lease) -> Verdict:
        if next(count) % 25 == 0:
            with psycopg.connect(database_url, autocommit=True) as connection:
                connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                                   " WHERE datname = current_database() AND pid <> pg_backend_pid()")  # fmt: skip
        ended.add(job.id)
        return Complete()

    bench.work = work
    ran = bench.worker.drain(8, 90)
    # A cut between the commit of a claim and its answer leaves jobs to their lease, not begun.
    with psycopg.connect(database_url) as direct:  # whoever comes first after a cut may still meet it
        states = {row[0] for row in direct.execute("SELECT DISTINCT status FROM ai_jobs")}
        done = {row[0] for row in direct.execute("SELECT id FROM ai_jobs WHERE status = 'done'")}
        outcomes = {row[0] for row in direct.execute("SELECT DISTINCT outcome FROM job_attempts")}
        assert direct.execute("SELECT max(attempts) FROM ai_jobs").fetchall() == [(1,)]
    assert done == ended
    assert states <= {"done", "processing"}
    assert len(done) >= 120 - 8 * (next(count) // 25)  # of each cut one claim, at most
    assert ran >= len(done)
    assert outcomes <= {"done", "snoozed"}
