"""What a worker has just claimed is admitted together, and what was accepted is recorded together: never more than one by one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.db.pool import Conn, Database
from shared.errors import LeaseLost
from shared.queue import store
from shared.queue.job import Complete, Job, JobType, Lease, Verdict
from shared.queue.worker import Limits, Worker
from shared.webhooks.admission import Admission, admit, admit_together, settle_together
from shared.webhooks.sending import Answer
from tests.fakes.gateway import Gateway

NOWHERE = "https://hooks.example.org/in"
ACCEPTED = Answer(200, 12.0, "thanks", None)


@pytest.fixture
def gateway(database: Database) -> Gateway:
    return Gateway(database)


def claim(gateway: Gateway, size: int) -> list[tuple[Job, UUID]]:
    with gateway.database.connection() as connection:
        jobs = store.claim(connection, size, ["deliver_event"], 600)
    return [(job, UUID(job.payload["delivery_id"])) for job in jobs]


def ask(gateway: Gateway, asking: Sequence[tuple[Job, UUID]]) -> Mapping[UUID, Admission]:
    with gateway.database.connection() as connection:
        return admit_together(connection, asking)


def record(gateway: Gateway, accepted: Sequence[tuple[Job, UUID]], answer: Answer = ACCEPTED) -> set[UUID]:
    with gateway.database.connection() as connection:
        return set(settle_together(connection, accepted, [1] * len(accepted), [answer] * len(accepted)))


def test_what_is_admitted_together_is_what_each_would_be_told_alone(gateway: Gateway) -> None:
    endpoint = gateway.endpoint(NOWHERE, headers={"x-team": "blue"}, concurrency=8)
    gateway.deliveries(endpoint, 2)
    (first, of_first), other = claim(gateway, 2)
    together = ask(gateway, [other])[other[0].lease_token]
    with gateway.database.connection() as connection:
        alone = admit(connection, first, of_first)
    different = {"event", "body"}
    assert {name: getattr(together, name) for name in Admission.__slots__ if name not in different} == {
        name: getattr(alone, name) for name in Admission.__slots__ if name not in different
    }
    assert (together.body, alone.body) == (b'{"n":2}', b'{"n":1}')
    assert [attempt["outcome"] for attempt in gateway.attempts(other[1])] == [None]


def test_no_more_are_admitted_than_the_endpoint_takes(gateway: Gateway) -> None:
    endpoint, roomy = gateway.endpoint(NOWHERE, concurrency=3), gateway.endpoint(NOWHERE, concurrency=8)
    gateway.deliveries(endpoint, 2)
    assert len(ask(gateway, claim(gateway, 2))) == 2
    gateway.deliveries(endpoint, 3)
    gateway.deliveries(roomy, 3)
    claimed = claim(gateway, 6)
    admitted = ask(gateway, claimed)
    assert [found.endpoint for found in admitted.values()].count(endpoint) == 1
    assert [found.endpoint for found in admitted.values()].count(roomy) == 3
    left = next((job, delivery) for job, delivery in claimed if job.lease_token not in admitted)
    with gateway.database.connection() as connection:
        assert admit(connection, *left).reason == "concurrency"


def test_however_many_ask_at_once_the_limit_holds(gateway: Gateway) -> None:
    endpoint = gateway.endpoint(NOWHERE, concurrency=4)
    for _ in range(30):
        gateway.deliveries(endpoint, 12)
        claimed = claim(gateway, 12)
        begin = threading.Barrier(6)

        def one_by_one(pair: tuple[Job, UUID], begin: threading.Barrier = begin) -> int:
            begin.wait(60)
            with gateway.database.connection() as connection:
                return int(admit(connection, *pair).verdict == "send")

        def some(pairs: list[tuple[Job, UUID]], begin: threading.Barrier = begin) -> int:
            begin.wait(60)
            return len(ask(gateway, pairs))

        with ThreadPoolExecutor(6) as pool:
            asking = [pool.submit(some, claimed[n * 3 : n * 3 + 3]) for n in range(3)]
            asking += [pool.submit(one_by_one, claimed[9 + n]) for n in range(3)]
            admitted = sum(done.result(60) for done in asking)
        open_ = gateway.value("SELECT count(*) FROM webhook_attempts WHERE ended IS NULL")
        assert admitted == open_
        assert 1 <= open_ <= 4
        gateway.execute("TRUNCATE webhook_attempts, webhook_deliveries, ai_jobs CASCADE")
        gateway.execute("UPDATE webhook_endpoints SET promised_until = '-infinity', pulled_until = NULL")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE webhook_endpoints SET disabled_at = now(), disabled_reason = 'moved'",
        "UPDATE webhook_endpoints SET open_until = now() - interval '1 second', failures_in_row = 5",
        "UPDATE webhook_endpoints SET rate = 100",
        "UPDATE webhook_endpoints SET pulled_until = now()",
        "UPDATE webhook_endpoints SET promised_until = now() + interval '1 minute'",
        "UPDATE webhook_deliveries SET promised_at = now()",
        "UPDATE webhook_deliveries SET waits_until = now()",
        "UPDATE webhook_deliveries SET tries = 1",
        "UPDATE webhook_deliveries SET state = 'delivered', delivered_at = now()",
        "UPDATE ai_jobs SET run = 2",
        "UPDATE ai_jobs SET lease_token = gen_random_uuid()",
        """INSERT INTO webhook_attempts (delivery_id, try, endpoint_id, run, started, gives_up_at)
           SELECT id, 1, endpoint_id, 1, now() - interval '1 hour', now() FROM webhook_deliveries""",
    ],
    ids=[
        "disabled",
        "breaker",
        "rate",
        "pulled",
        "promised",
        "promise",
        "parked",
        "retry",
        "done",
        "replay",
        "lost",
        "cut off",
    ],
)
def test_who_is_not_plain_asks_for_itself(gateway: Gateway, change: str) -> None:
    gateway.deliveries(gateway.endpoint(NOWHERE))
    claimed = claim(gateway, 1)
    gateway.force(change)
    before = gateway.value("SELECT count(*) FROM webhook_attempts")
    assert not ask(gateway, claimed)
    assert gateway.value("SELECT count(*) FROM webhook_attempts") == before


@pytest.mark.parametrize("table", ["webhook_endpoints", "webhook_deliveries", "ai_jobs"])
def test_nobody_waits_for_a_lock(gateway: Gateway, table: str) -> None:
    gateway.deliveries(gateway.endpoint(NOWHERE))
    claimed = claim(gateway, 1)
    with gateway.database.transaction() as holder:
        holder.execute(f"SELECT FROM {table} FOR NO KEY UPDATE".encode())
        assert not ask(gateway, claimed)
    assert len(ask(gateway, claimed)) == 1


def test_what_was_accepted_is_recorded_together(gateway: Gateway) -> None:
    endpoint = gateway.endpoint(NOWHERE, concurrency=8)
    deliveries = gateway.deliveries(endpoint, 3)
    claimed = claim(gateway, 3)
    ask(gateway, claimed)
    assert record(gateway, claimed) == {job.lease_token for job, _ in claimed}
    for delivery in deliveries:
        assert gateway.delivery(delivery).state == "delivered"
        (attempt,) = gateway.attempts(delivery)
        assert (attempt["outcome"], attempt["http_status"], attempt["answer"]) == ("delivered", 200, "thanks")
    assert float(gateway.state(endpoint, "average_ms")) == 12.0
    assert record(gateway, claimed) == set()  # once


@pytest.mark.parametrize("table", ["webhook_deliveries", "ai_jobs"])
def test_nobody_waits_for_a_lock_to_be_recorded(gateway: Gateway, table: str) -> None:
    """The others of the same turn are recorded."""
    endpoint = gateway.endpoint(NOWHERE)
    gateway.deliveries(endpoint, 2)
    claimed = claim(gateway, 2)
    ask(gateway, claimed)
    (job, delivery), (other, _) = claimed
    with gateway.database.transaction() as holder:
        held = delivery if table == "webhook_deliveries" else job.id
        holder.execute(f"SELECT FROM {table} WHERE id = %s FOR NO KEY UPDATE".encode(), (held,))
        assert record(gateway, claimed) == {other.lease_token}
    assert record(gateway, claimed) == {job.lease_token}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE webhook_endpoints SET failures_in_row = 1",
        "UPDATE webhook_endpoints SET open_until = now(), failures_in_row = 5",
        "UPDATE ai_jobs SET lease_token = gen_random_uuid()",
        "UPDATE webhook_attempts SET ended = now(), outcome = 'interrupted'",
    ],
    ids=["failed before", "breaker", "lost", "ended"],
)
def test_what_needs_more_than_a_record_is_settled_by_itself(gateway: Gateway, change: str) -> None:
    (delivery,) = gateway.deliveries(gateway.endpoint(NOWHERE))
    claimed = claim(gateway, 1)
    ask(gateway, claimed)
    gateway.force(change)
    assert record(gateway, claimed) == set()
    assert gateway.delivery(delivery).state == "waiting"


class Clumsy:
    """Does what its test says in place of the type's own, and keeps what was recorded alone."""

    def __init__(self, fails_at: str) -> None:
        self.fails_at = fails_at
        self.alone: list[Any] = []

    def prepare(self, connection: Conn, jobs: Sequence[Job]) -> Mapping[UUID, object]:
        if self.fails_at == "prepare":
            connection.execute("SELECT 1 / 0")
        return {job.lease_token: "ready" for job in jobs}

    def record(self, connection: Conn, noted: Sequence[tuple[Job, Any]]) -> set[UUID]:
        if self.fails_at == "record":
            raise RuntimeError("a mistake")
        return {job.lease_token for job, _ in noted} if self.fails_at == "nothing" else set()

    def record_alone(self, connection: Conn, job: Job, note: Any) -> None:
        if self.fails_at == "lost":
            raise LeaseLost("gone")
        self.alone.append(note)


@pytest.mark.parametrize("fails_at", ["nothing", "prepare", "record", "each", "lost"])
def test_what_cannot_be_done_together_is_done_job_by_job(gateway: Gateway, fails_at: str) -> None:
    """Whatever goes wrong there, all jobs run, and are done when their notes are recorded, not before."""
    gateway.execute("TRUNCATE ai_jobs, job_attempts CASCADE")
    seen: list[object] = []
    clumsy = Clumsy(fails_at)

    def run(job: Job, lease: Lease) -> Verdict:
        seen.append(lease.prepared)
        return Complete(note=job.payload["key"])

    types = {"embed_record": JobType("embed_record", run, together=clumsy)}
    worker = Worker(gateway.database, types, lambda _: None, Limits(4))
    keys = sorted(str(uuid4()) for _ in range(6))
    with gateway.database.connection() as connection:
        for key in keys:
            store.enqueue(connection, {"type": "embed_record", "key": key})
    with contextlib.suppress(LeaseLost):
        worker.drain(4, 60.0)
    assert seen == [None if fails_at == "prepare" else "ready"] * 6
    done = gateway.value("SELECT count(*) FROM ai_jobs WHERE status = 'done'")
    assert done == (0 if fails_at == "lost" else 6)
    assert sorted(clumsy.alone) == ([] if fails_at in ("nothing", "lost") else keys)


def test_a_note_has_nothing_beside_it() -> None:
    with pytest.raises(ValueError, match="nothing else to record"):
        Complete(shows_health=False, note="kept")
