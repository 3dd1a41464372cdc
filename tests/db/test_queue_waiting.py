"""A job that waits for the network lends its slot: others run meanwhile, and nothing else about it changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from shared.db.pool import Database
from shared.errors import TransientError
from shared.queue import store
from shared.queue.crew import Crew
from shared.queue.job import Complete, Job, JobType, Lease, Verdict
from shared.queue.policy import Policy
from shared.queue.worker import Limits, Worker
from tests.fakes.eventually import eventually

TYPE = "embed_record"
INVOCATION: ContextVar[str] = ContextVar("invocation")


class Site:
    """Workers whose jobs wait for the network until `answered` is set, if their payload says so."""

    def __init__(
        self,
        database: Database,
        concurrency: int,
        lease_seconds: float = 30.0,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.database = database
        self.answered = threading.Event()
        self.waiting: list[UUID] = []
        self.waited_in: list[str] = []
        self.ran: list[UUID] = []
        types = self.types = {TYPE: JobType(TYPE, self.run, Policy())}
        limits = Limits(concurrency, lease_seconds=lease_seconds)
        self.worker = Worker(database, types, lambda _: None, limits, tick=tick)

    def run(self, job: Job, lease: Lease) -> Verdict:
        if job.payload.get("waits"):
            with lease.waiting():
                self.waiting.append(job.id)
                self.answered.wait(90)
                if job.payload["waits"] == "in vain":
                    raise TransientError("dropped", "the network", wait=600.0)
            self.waited_in.append(INVOCATION.get("none"))
        if job.payload.get("holds"):
            self.waiting.append(job.id)
            self.answered.wait(90)
        self.ran.append(job.id)
        return Complete()

    def add(self, count: int = 1, **payload: Any) -> None:
        with self.database.connection() as connection:
            for _ in range(count):
                store.enqueue(connection, {"type": TYPE} | payload)

    def has_run(self, count: int) -> bool:
        return len(self.ran) == count

    def value(self, sql: Any) -> Any:
        with self.database.connection() as connection:
            row = connection.execute(sql).fetchone()
        return row and row[0]

    @contextmanager
    def draining(self, *concurrency: int) -> Iterator[None]:
        """Drains at work until what is inside has been seen; then the network answers."""
        with ThreadPoolExecutor(len(concurrency)) as pool:
            drains = [pool.submit(self.worker.drain, size, 90) for size in concurrency]
            try:
                yield
            finally:
                self.answered.set()
            for drain in drains:
                drain.result(90)
        eventually(lambda: not any(thread.name.startswith("job_") for thread in threading.enumerate()))


@pytest.fixture
def jobs(database: Database) -> Database:
    with database.connection() as connection:
        connection.execute("TRUNCATE ai_jobs, job_attempts CASCADE")
    return database


def test_others_run_while_jobs_wait(jobs: Database) -> None:
    site = Site(jobs, 2)
    site.add(2, waits="yes")
    site.add(10)
    with site.draining(2):
        eventually(lambda: len(site.ran) == 10)
        eventually(lambda: len(site.waiting) == 2)
        site.add()
        eventually(lambda: len(site.ran) == 11)
    assert len(site.ran) == 13
    assert site.value("SELECT count(*) FROM ai_jobs WHERE status = 'done'") == 13
    assert site.worker._slots.take(99) == 2


def test_a_job_that_does_not_say_that_it_waits_keeps_its_slot(jobs: Database) -> None:
    site = Site(jobs, 2)
    site.add(2, holds=True)
    site.add(3)
    with site.draining(2):
        eventually(lambda: len(site.waiting) == 2)
        assert site.value("SELECT count(*) FROM ai_jobs WHERE status = 'processing'") == 2
        assert not site.ran
    assert len(site.ran) == 5


def test_a_wake_s_drain_goes_on_with_others_while_its_job_waits(jobs: Database) -> None:
    """All of a process's wakes have a job that hangs, so no further wake comes in: they look for what is new by themselves."""
    site = Site(jobs, 2)
    site.add(2, waits="yes")
    with site.draining(1, 1):
        eventually(lambda: len(site.waiting) == 2)
        for count in range(1, 6):
            site.add()
            eventually(partial(site.has_run, count))
    assert len(site.ran) == 7


def test_leases_are_renewed_while_jobs_wait(jobs: Database) -> None:
    site = Site(jobs, 1, lease_seconds=3.0)
    site.add(waits="yes")
    with site.draining(2):
        eventually(lambda: site.waiting)
        first = site.value("SELECT lease_until FROM ai_jobs")
        eventually(lambda: site.value("SELECT lease_until FROM ai_jobs") > first)
    assert site.value("SELECT claims FROM ai_jobs") == 1


def test_what_fails_in_a_wait_is_recorded_as_ever(jobs: Database) -> None:
    site = Site(jobs, 2)
    site.add(3, waits="in vain")
    with site.draining(2):
        eventually(lambda: len(site.waiting) == 3)
    assert (
        site.value("SELECT count(*) FROM ai_jobs WHERE status = 'pending' AND attempts = 1 AND error_class = 'dropped'")
        == 3
    )
    assert site.worker._slots.take(99) == 2


def test_wakes_leave_what_hangs_to_the_drain_that_stays(jobs: Database) -> None:
    """The second and third make room for further wake messages, and everything is recorded where the first one is."""
    site = Site(jobs, 2)

    def wake(name: str) -> int:
        INVOCATION.set(name)
        return site.worker.drain(1, 90)

    with ThreadPoolExecutor(3) as pool:
        site.add(waits="yes")
        stays = pool.submit(wake, "stays")
        eventually(lambda: site.worker._drains._stays)
        for count in (2, 3):
            site.add(waits="in vain" if count == 3 else "yes")
            left = pool.submit(wake, f"leaves {count}")
            left.result(90)
            eventually(lambda count=count: len(site.waiting) == count)  # type: ignore[misc]
        assert not stays.done()
        assert site.value("SELECT count(*) FROM ai_jobs WHERE status = 'processing'") == 3
        site.answered.set()
        stays.result(90)
    assert site.value("SELECT count(*) FROM ai_jobs WHERE status = 'done'") == 2
    assert site.value("SELECT count(*) FROM ai_jobs WHERE status = 'pending' AND error_class = 'dropped'") == 1
    # By then the others' invocations are over, and the platform would drop their lines.
    assert site.waited_in == ["stays", "stays"]
    assert site.worker._slots.take(99) == 2


def is_seen_in_time(scene: Callable[[], bool]) -> bool:
    """Whether something was seen before a job fell due, at one of a few tries: while a machine stands still the time passes."""
    return any(scene() for _ in range(4))


def one_ends_before_the_job_is_due(jobs: Database) -> bool:
    site = Site(jobs, 4)
    with jobs.connection() as connection:
        store.enqueue(connection, {"type": TYPE}, delay_seconds=2.0)
    with ThreadPoolExecutor(2) as pool:
        drains = [pool.submit(site.worker.drain, 1, 90) for _ in range(2)]
        eventually(lambda: any(drain.done() for drain in drains))
        is_in_time = not site.ran
        assert sorted(drain.result(90) for drain in drains) == [0, 1]
    return is_in_time


def test_only_as_many_drains_linger_as_there_are_jobs_to_linger_for(jobs: Database) -> None:
    assert is_seen_in_time(partial(one_ends_before_the_job_is_due, jobs))


def the_third_is_woken_again(jobs: Database) -> bool:
    woken: list[float] = []
    site = Site(jobs, 2)
    site.worker = Worker(jobs, site.types, woken.append, Limits(2), wakes_early=2.0)
    with jobs.connection() as connection:
        for _ in range(3):
            store.enqueue(connection, {"type": TYPE}, delay_seconds=2.5)
    with ThreadPoolExecutor(3) as pool:
        drains = [pool.submit(site.worker.drain, 1, 90) for _ in range(3)]
        eventually(lambda: any(drain.done() for drain in drains))
        seen, is_in_time = list(woken), not site.ran
        assert sum(drain.result(90) for drain in drains) == 3
    if is_in_time:
        assert len(seen) == 1
        assert 2.0 < seen[0] <= 4.5
    return is_in_time


def test_no_more_drains_linger_than_jobs_can_run_at_once(jobs: Database) -> None:
    """The third's wake message comes again when its job is due: the platform scales by these."""
    assert is_seen_in_time(partial(the_third_is_woken_again, jobs))


def test_a_drain_goes_on_beyond_its_time_while_nothing_but_hanging_jobs_keeps_it(jobs: Database) -> None:
    """By timer alone nobody else would look after the others."""
    with ThreadPoolExecutor(1) as pool:
        for seconds in (0.2, 1.0, 5.0):
            site = Site(jobs, 2)
            site.add(waits="yes")
            began = time.monotonic()
            drain = pool.submit(site.worker.drain, 2, seconds)
            eventually(lambda site=site, drain=drain: site.worker._slots._lent or drain.done())  # type: ignore[misc]
            if time.monotonic() - began < seconds:
                break
            site.answered.set()  # its time was over before its job hung
            drain.result(90)
        try:
            eventually(lambda: time.monotonic() - began > seconds + 0.1)
            site.add()
            eventually(lambda: site.has_run(1))
        finally:
            site.answered.set()
        assert drain.result(90) == 2


def test_nothing_is_lost_when_as_much_is_left_to_a_drain_as_comes_back(jobs: Database) -> None:
    """What is out then is as much as before, and yet something has come back."""
    site = Site(jobs, 2)
    worker, back = site.worker, "what came back"
    with Crew[Any](2) as stays, Crew[Any](2) as leaves:
        assert not worker._drains.have_taken(stays)

        def hang() -> None:
            with worker._waiting(leaves):
                site.answered.wait(90)

        leaves.hand([hang])
        eventually(lambda: worker._slots.waits_of(leaves) == 1)
        stays.hand([lambda: back])
        eventually(lambda: not stays._back.empty())
        assert worker._drains.have_taken(leaves)
        worker._drains.look()
        try:
            found: list[Any] = worker._rest(stays)
            assert found == [back]
        finally:
            site.answered.set()
        eventually(lambda: stays.collect(1.0) == [] and not stays.expects)


def test_a_drain_that_ends_by_a_mistake_records_what_was_left_to_it(jobs: Database) -> None:
    mistaken = threading.Event()

    def tick() -> None:
        if mistaken.is_set():
            raise RuntimeError("a mistake")

    site = Site(jobs, 2, tick=tick)
    with ThreadPoolExecutor(2) as pool:
        site.add(waits="yes")
        stays = pool.submit(site.worker.drain, 1, 90)
        eventually(lambda: site.worker._drains._stays)
        site.add(waits="yes")
        pool.submit(site.worker.drain, 1, 90).result(90)
        mistaken.set()
        eventually(lambda: site.worker._drains._stays is None)
        site.answered.set()
        with pytest.raises(RuntimeError, match="a mistake"):
            stays.result(90)
    assert site.value("SELECT count(*) FROM ai_jobs WHERE status = 'done'") == 2
    assert not site.worker._heartbeat._held
    assert site.worker._slots.take(99) == 2


def it_looks_before_the_due_moment(jobs: Database) -> bool:
    site = Site(jobs, 2)
    with jobs.connection() as connection:
        store.enqueue(connection, {"type": TYPE}, delay_seconds=2.9)
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.01):
            site.worker._drains.look()

    with ThreadPoolExecutor(1) as pool, Crew[Any](2) as crew:
        pool.submit(look)
        crew.hand([lambda: "left to it"])
        has_lingered = site.worker._linger(time.monotonic() + 90, crew)
        is_over.set()
    with jobs.connection() as connection:
        is_in_time = has_lingered and (store.next_due(connection, [TYPE]) or 0.0) > 0.0
        connection.execute("DELETE FROM ai_jobs")
    return is_in_time


def test_a_drain_that_waits_for_a_due_moment_does_not_let_wait_what_was_left_to_it(jobs: Database) -> None:
    """However busily others look meanwhile for what is due."""
    assert is_seen_in_time(partial(it_looks_before_the_due_moment, jobs))
