"""The queue on a real database: claims, leases, fences, verdicts, rescue, burial and follow-ups."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from shared.db.pool import Database
from shared.errors import Failure, FailureKind, LeaseLost, PermanentError, TransientError
from shared.queue import store
from shared.queue.job import Complete, Continue, Job, JobType, Lease, Snooze, Verdict, Write
from shared.queue.listing import list_jobs
from shared.queue.policy import Policy
from shared.queue.worker import Limits, Worker
from tests.fakes.eventually import eventually

TYPE = "embed_record"  # no conversation, no unique index: the plain kind
LEASE_SECONDS = 30.0  # no machine stands still for as long


class Bench:
    """One worker whose single type runs whatever the test says."""

    def __init__(self, database: Database, **limits: Any) -> None:
        self.database = database
        self.delays: list[float] = []
        self.work: Callable[[Job, Lease], Verdict] = lambda job, lease: Complete()
        self.buried: list[Failure] = []
        policy = Policy(age_limit=3600)
        self.type = JobType(TYPE, lambda job, lease: self.work(job, lease), policy, self.on_bury)
        bounds = Limits(lease_seconds=LEASE_SECONDS, **limits)
        self.worker = Worker(database, {TYPE: self.type}, self.delays.append, bounds)

    def on_bury(self, job: Job, failure: Failure) -> list[Write]:
        self.buried.append(failure)
        return []

    def add(self, **changes: Any) -> UUID:
        with self.database.connection() as connection:
            return store.enqueue(connection, {"type": TYPE} | changes)

    def row(self, job: UUID) -> dict[str, Any]:
        """One job's row, `wait` being the seconds for which its last writer has put it off."""
        with self.database.connection() as connection, connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            found = cursor.execute(
                "SELECT *, extract(epoch FROM next_run_at - updated_at)::float8 AS wait FROM ai_jobs WHERE id = %s",
                [job],
            ).fetchone()
        assert found is not None
        return found

    def attempts(self, job: UUID) -> list[tuple[Any, ...]]:
        with self.database.connection() as connection:
            return connection.execute(
                "SELECT run, claim, outcome, error_class, http_status FROM job_attempts WHERE job_id = %s ORDER BY run, claim",
                [job],
            ).fetchall()

    def execute(self, sql: Any, **parameters: Any) -> None:
        with self.database.connection() as connection:
            connection.execute(sql, parameters)

    def claim(self, size: int = 1) -> Sequence[Job]:
        with self.database.connection() as connection:
            return store.claim(connection, size, [TYPE], LEASE_SECONDS)


@pytest.fixture
def bench(database: Database) -> Bench:
    with database.connection() as connection:
        connection.execute("TRUNCATE message_events, ai_jobs, job_attempts, conversations, messages CASCADE")
        connection.execute("UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL")
    return Bench(database)


def fails(error: Exception) -> Callable[[Job, Lease], Verdict]:
    def work(job: Job, lease: Lease) -> Verdict:
        raise error

    return work


def test_a_job_runs_once_and_is_done(bench: Bench) -> None:
    job = bench.add()
    assert bench.worker.poll_once(4) == 1
    assert bench.worker.poll_once(4) == 0
    assert bench.row(job)["status"] == "done"
    assert bench.attempts(job) == [(1, 1, "done", None, None)]


def test_many_claimers_never_share_a_job(bench: Bench) -> None:
    jobs = {bench.add() for _ in range(200)}

    def claim_all(_: int) -> list[UUID]:
        found: list[UUID] = []
        while batch := bench.claim(7):
            found += [job.id for job in batch]
        return found

    with ThreadPoolExecutor(6) as pool:
        counts = Counter(job for batch in pool.map(claim_all, range(6)) for job in batch)
    assert set(counts) == jobs
    assert set(counts.values()) == {1}


def test_claims_are_in_due_order_and_never_more_than_asked(bench: Bench) -> None:
    late, early = bench.add(), bench.add()
    bench.execute("UPDATE ai_jobs SET next_run_at = now() - interval '1 minute' WHERE id = %(id)s", id=early)
    bench.add(n=3)
    assert [job.id for job in bench.claim(2)] == [early, late]


def test_a_backlog_of_one_type_makes_no_other_wait_and_is_not_starved(bench: Bench) -> None:
    bench.execute(
        "INSERT INTO ai_jobs (payload, next_run_at) SELECT jsonb_build_object('type', 'embed_record'),"
        " now() - interval '30 s' FROM generate_series(1, 500)"
    )
    for _ in range(10):
        bench.add(type="send_message")
    with bench.database.connection() as connection:
        first = store.claim(connection, 1, ["embed_record", "send_message"], LEASE_SECONDS)
        next_eight = store.claim(connection, 8, ["embed_record", "send_message"], LEASE_SECONDS)
    assert [job.type for job in first] == ["send_message"]
    counts = Counter(job.type for job in next_eight)
    assert counts["send_message"] > counts["embed_record"] >= 1


def test_a_job_of_the_future_waits(bench: Bench) -> None:
    with bench.database.transaction() as connection:  # in which the clock stands
        store.enqueue(connection, {"type": TYPE}, delay_seconds=60)
        assert store.next_due(connection, [TYPE]) == 60
    assert bench.claim() == []


def test_the_due_index_serves_the_claim(bench: Bench) -> None:
    bench.add()
    with bench.database.transaction(deadline=90) as connection:
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute(
            "INSERT INTO ai_jobs (payload, next_run_at) SELECT jsonb_build_object('type', 'other'), now() - interval '1 h'"
            " FROM generate_series(1, 20000)"
        )
        connection.execute("ANALYZE ai_jobs")
        plan = "\n".join(
            str(row[0])
            for row in connection.execute(
                "EXPLAIN SELECT id FROM ai_jobs j WHERE j.type = 'embed_record' AND j.status = 'pending'"
                " AND j.next_run_at <= now() ORDER BY j.next_run_at, j.seq LIMIT 8 FOR UPDATE SKIP LOCKED"
            )
        )
    assert "ai_jobs_due" in plan
    assert "Seq Scan" not in plan
    assert "Sort" not in plan


def test_transient_failures_wait_ten_and_twenty_seconds_and_the_third_is_final(bench: Bench) -> None:
    bench.work = fails(TransientError("flaky", "the other side is tired"))
    job = bench.add()
    waits = []
    for _ in range(3):
        bench.execute("UPDATE ai_jobs SET next_run_at = now() WHERE id = %(id)s", id=job)
        assert bench.worker.poll_once(1) == 1
        waits.append(bench.row(job)["wait"])
    assert waits[:2] == [10, 20]
    assert bench.delays[:2] == [10.0, 20.0]
    row = bench.row(job)
    assert (row["status"], row["attempts"], row["error_class"]) == ("failed", 3, "flaky")
    assert [attempt[2] for attempt in bench.attempts(job)] == ["retry", "retry", "failed"]
    assert [failure.error_class for failure in bench.buried] == ["flaky"]


def test_a_permanent_failure_is_final_at_once(bench: Bench) -> None:
    bench.work = fails(PermanentError("content_filter", "refused"))
    job = bench.add()
    bench.worker.poll_once(1)
    assert (bench.row(job)["status"], bench.row(job)["attempts"]) == ("failed", 1)


def test_an_unexpected_exception_is_retried_and_takes_no_neighbour_with_it(bench: Bench) -> None:
    bad, good = bench.add(bad=True), bench.add()

    def work(job: Job, lease: Lease) -> Verdict:
        if job.payload.get("bad"):
            raise KeyError("a bug")
        return Complete()

    bench.work = work
    assert bench.worker.poll_once(4) == 2
    assert bench.row(good)["status"] == "done"
    assert (bench.row(bad)["status"], bench.row(bad)["error_class"]) == ("pending", "unexpected")


def test_a_snooze_uses_no_attempt_but_not_for_ever(bench: Bench) -> None:
    bench.work = lambda job, lease: Snooze(30, "not yet")
    job = bench.add()
    bench.worker.poll_once(1)
    row = bench.row(job)
    assert (row["status"], row["attempts"], row["claims"]) == ("pending", 0, 1)
    assert row["wait"] == 30
    bench.execute("UPDATE ai_jobs SET next_run_at = now(), run_started_at = now() - interval '59.9 minutes'")
    bench.worker.poll_once(1)
    assert (bench.row(job)["status"], bench.row(job)["error_class"]) == ("failed", "expired")


def test_continue_commits_its_step_and_goes_on_at_once(bench: Bench) -> None:
    steps: list[int] = []

    def work(job: Job, lease: Lease) -> Verdict:
        steps.append(job.claims)
        write = Write("UPDATE ai_jobs SET max_attempts = max_attempts + 1 WHERE id = %(id)s", {"id": job.id})
        return Continue([write]) if len(steps) < 3 else Complete()

    bench.work = work
    job = bench.add()
    assert bench.worker.drain(2, 60) == 3
    row = bench.row(job)
    assert (row["status"], row["attempts"], row["max_attempts"], steps) == ("done", 1, 5, [1, 2, 3])


def test_a_worker_that_lost_its_lease_changes_nothing(bench: Bench) -> None:
    job = bench.add()
    late = bench.claim()[0]
    bench.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second'")
    bench.worker.poll_once(1)  # rescues, then runs it
    assert bench.row(job)["status"] == "done"
    write = Write("UPDATE ai_jobs SET max_attempts = 99", {})
    failure = Failure(FailureKind.TRANSIENT, "x", "x")
    late_moves: list[Callable[[Any], object]] = [
        lambda c: store.mark_done(c, late, [write]),
        lambda c: store.mark_failed(c, late, failure, [write]),
        lambda c: store.requeue_with_backoff(c, late, failure, 1),
        lambda c: store.snooze(c, late, failure, 1),
        lambda c: store.continue_job(c, late, [write]),
        lambda c: store.give_back(c, late),
    ]
    for move in late_moves:
        with pytest.raises(LeaseLost), bench.database.transaction() as connection:
            move(connection)
    with pytest.raises(LeaseLost), Lease(bench.database, late, 5).transaction():
        pass
    row = bench.row(job)
    assert (row["status"], row["max_attempts"]) == ("done", 3)
    assert [attempt[2] for attempt in bench.attempts(job)] == ["crashed", "done"]


def test_who_began_to_look_before_a_job_was_put_off_sees_no_longer_wait_than_it_has(bench: Bench) -> None:
    job = bench.add()
    claimed = bench.claim()[0]
    failure = Failure(FailureKind.TRANSIENT, "x", "x")
    with bench.database.transaction() as looking:
        looking.execute("SELECT now()")
        with bench.database.connection() as connection:
            store.requeue_with_backoff(connection, claimed, failure, 10)
        (seen,) = list_jobs(looking, ids=[job])
    assert seen.next_run_in is not None
    assert seen.next_run_in <= 10


def test_a_rescued_job_keeps_its_attempt_counted(bench: Bench) -> None:
    job = bench.add()
    bench.claim()
    bench.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second'")
    with bench.database.connection() as connection:
        assert store.rescue(connection) == 1
        assert store.rescue(connection) == 0
    row = bench.row(job)
    assert (row["status"], row["attempts"], row["error_class"]) == ("pending", 1, "crashed")


def test_a_job_that_kills_its_worker_ends_as_poison_and_others_go_on(bench: Bench) -> None:
    poison, other = bench.add(), bench.add()
    bench.execute("UPDATE ai_jobs SET attempts = 2 WHERE id = %(id)s", id=poison)
    bench.claim(1)
    bench.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'processing'")
    bench.worker.poll_once(4)
    assert (bench.row(poison)["status"], bench.row(poison)["error_class"]) == ("failed", "poison")
    assert bench.row(other)["status"] == "done"
    assert [failure.error_class for failure in bench.buried] == ["poison"]


def test_a_running_job_is_renewed(bench: Bench) -> None:
    worker = Worker(bench.database, {TYPE: bench.type}, bench.delays.append, Limits(lease_seconds=1))
    job = bench.add()
    renewed, before = threading.Event(), set(threading.enumerate())

    def work(claimed: Job, lease: Lease) -> Verdict:
        first = bench.row(job)["lease_until"]
        eventually(lambda: bench.row(job)["lease_until"] > first)
        renewed.set()
        return Complete()

    bench.work = work
    worker.poll_once(1)
    assert renewed.is_set()
    assert bench.row(job)["status"] == "done"
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in left if name == "lease-renewal" or name.startswith("job")]


def test_a_job_that_runs_too_long_is_no_longer_renewed(bench: Bench) -> None:
    worker = Worker(
        bench.database, {TYPE: bench.type}, bench.delays.append, Limits(lease_seconds=1, job_max_seconds=0.1)
    )
    job = bench.add()

    def work(claimed: Job, lease: Lease) -> Verdict:
        with bench.database.connection(deadline=90) as connection:
            eventually(lambda: store.rescue(connection))
        return Complete()

    bench.work = work
    worker.poll_once(1)
    assert (bench.row(job)["status"], bench.row(job)["error_class"]) == ("pending", "crashed")


def test_a_planned_stop_gives_the_attempt_back(bench: Bench) -> None:
    from shared.queue.outcome import Stopped

    bench.work = fails(Stopped("stopping"))
    job = bench.add()
    bench.worker.poll_once(1)
    row = bench.row(job)
    assert (row["status"], row["attempts"]) == ("pending", 0)
    assert bench.attempts(job)[0][2] == "returned"
    bench.worker.stop()
    assert bench.worker.drain(2, 5) == 0


def test_unknown_types_are_never_claimed(bench: Bench) -> None:
    with bench.database.connection() as connection:
        job = store.enqueue(connection, {"type": "of_tomorrow"})
    assert bench.worker.poll_once(4) == 0
    assert bench.row(job)["status"] == "pending"


def test_a_payload_without_a_type_is_refused_by_the_table(bench: Bench) -> None:
    with pytest.raises(psycopg.errors.NotNullViolation), bench.database.connection() as connection:
        store.enqueue(connection, {"kind": "x"})


@pytest.mark.parametrize(
    "change",
    [
        "status = 'processing'",
        "lease_token = gen_random_uuid()",
        "closed_at = now(), closed_by = 'x'",
        "closed_at = now()",
        "attempts = -1",
        "status = 'sleeping'",
    ],
)
def test_illegal_states_are_refused_by_the_table(bench: Bench, change: str) -> None:
    bench.add()
    with pytest.raises(psycopg.errors.CheckViolation):
        bench.execute(f"UPDATE ai_jobs SET {change}")


def test_rerun_makes_one_follow_up_in_the_statement_that_finishes(bench: Bench) -> None:
    with bench.database.connection() as connection:
        row = connection.execute("INSERT INTO conversations (address) VALUES ('+31600000001') RETURNING id").fetchone()
        assert row
        payload = Jsonb({"type": "autoreply", "conversation_id": str(row[0]), "message_id": "x"})
        connection.execute(
            "INSERT INTO ai_jobs (payload, conversation_id, rerun) VALUES (%s, %s, true)", [payload, row[0]]
        )
        job = store.claim(connection, 1, ["autoreply"], 5)[0]
        with connection.transaction():
            assert store.mark_done(connection, job) is True
        follow = store.claim(connection, 1, ["autoreply"], 5)[0]
        assert follow.payload == job.payload
        assert follow.id != job.id
        with connection.transaction():
            assert store.mark_failed(connection, follow, Failure(FailureKind.PERMANENT, "x", "x")) is False
        assert store.claim(connection, 1, ["autoreply"], 5) == []


class _FromModel(Exception):
    """Stands for an error of the model's client: what makes a type rest is its package."""


_FromModel.__module__ = "openai"


def test_after_five_model_failures_the_type_rests_and_probes_one_at_a_time(bench: Bench) -> None:
    error = _FromModel("down")
    error.status_code = 502  # type: ignore[attr-defined]
    bench.work = fails(error)
    first, *_ = [bench.add() for _ in range(6)]
    assert bench.worker.poll_once(4) == 4  # four failures: retries
    assert bench.worker.poll_once(1) == 1  # the fifth: it rests
    assert rests_on(bench)
    assert bench.worker.poll_once(4) == 0
    bench.execute("UPDATE job_types SET resting_until = now() WHERE type = %(type)s", type=TYPE)
    bench.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
    assert bench.worker.poll_once(4) == 1  # one probe
    assert rests_on(bench)
    assert bench.worker.poll_once(4) == 0
    bench.work = lambda job, lease: Complete()
    bench.execute("UPDATE job_types SET resting_until = now() WHERE type = %(type)s", type=TYPE)
    assert bench.row(first)["wait"] == 10
    bench.execute("UPDATE ai_jobs SET next_run_at = next_run_at + interval '1 hour' WHERE id = %(id)s", id=first)
    assert bench.worker.poll_once(4) == 1  # a probe that succeeds wakes the type
    assert bench.worker.poll_once(8) == 4  # all but the probe that failed, which waits its ten seconds


def rests_on(bench: Bench) -> bool:
    """Whether the plain type rests; if so it does for longer than a busy machine takes to look."""
    with bench.database.connection() as connection:
        longer = "UPDATE job_types SET resting_until = resting_until + interval '1 hour' WHERE type = %(type)s"
        return connection.execute(f"{longer} AND resting_until > now()".encode(), {"type": TYPE}).rowcount == 1


def test_jobs_older_than_their_age_limit_are_buried_while_the_type_rests(bench: Bench) -> None:
    job = bench.add()
    bench.execute("UPDATE job_types SET resting_until = now() + interval '1 h', resting_reason = 'x'")
    bench.execute("UPDATE ai_jobs SET run_started_at = now() - interval '61 minutes'")
    bench.worker.poll_once(1)
    assert (bench.row(job)["status"], bench.row(job)["error_class"]) == ("failed", "expired")


def test_a_refused_credential_rests_the_type_and_buries_nothing(bench: Bench) -> None:
    error = _FromModel("no")
    error.status_code = 401  # type: ignore[attr-defined]
    bench.work = fails(error)
    jobs = [bench.add(), bench.add()]
    assert bench.worker.poll_once(1) == 1
    assert bench.worker.poll_once(1) == 0
    assert {bench.row(job)["status"] for job in jobs} == {"pending"}
    assert bench.row(jobs[0])["attempts"] == 0


def test_the_database_s_own_fault_gives_the_attempt_back(bench: Bench) -> None:
    bench.work = fails(psycopg.OperationalError("server closed the connection unexpectedly"))
    job = bench.add()
    bench.worker.poll_once(1)
    row = bench.row(job)
    assert (row["status"], row["attempts"], row["error_class"]) == ("pending", 0, "database")


def test_drain_waits_for_what_falls_due_soon(bench: Bench) -> None:
    with bench.database.connection() as connection:
        soon = store.enqueue(connection, {"type": TYPE}, delay_seconds=0.3)
        later = store.enqueue(connection, {"type": TYPE}, delay_seconds=300)
    assert bench.worker.drain(2, 60) == 1
    assert bench.row(soon)["status"] == "done"
    assert bench.row(later)["status"] == "pending"


def test_slots_of_all_drains_together_are_bounded(bench: Bench) -> None:
    limits = Limits(concurrency=3, lease_seconds=LEASE_SECONDS)
    worker = Worker(bench.database, {TYPE: bench.type}, bench.delays.append, limits)
    lock, full, running, most = threading.Lock(), threading.Event(), 0, 0

    def work(job: Job, lease: Lease) -> Verdict:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 3:
                full.set()
        assert full.wait(60)  # for all that may run at once
        threading.Event().wait(0.01)
        with lock:
            running -= 1
        return Complete()

    bench.work = work
    for _ in range(30):
        bench.add()
    with ThreadPoolExecutor(5) as pool:
        total = sum(pool.map(lambda _: worker.drain(2, 90), range(5)))
    assert (total, most) == (30, 3)


def test_a_drain_without_a_free_slot_waits_for_one(bench: Bench) -> None:
    limits = Limits(concurrency=1, lease_seconds=LEASE_SECONDS)
    worker = Worker(bench.database, {TYPE: bench.type}, bench.delays.append, limits)
    busy, release = threading.Event(), threading.Event()

    def work(job: Job, lease: Lease) -> Verdict:
        if not busy.is_set():
            busy.set()
            assert release.wait(60)
        return Complete()

    bench.work = work
    bench.add()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(worker.drain, 1, 60)
        assert busy.wait(60)
        bench.add()
        second = pool.submit(worker.drain, 1, 60)
        assert not release.wait(0.2)
        assert not second.done()
        release.set()
        assert first.result() + second.result() == 2
