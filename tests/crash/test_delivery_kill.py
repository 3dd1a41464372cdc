"""The process that delivers is killed at each boundary of its way: nothing is lost, ids stay, and at most one goes out twice.

The boundaries come from the code, so that a new one cannot be forgotten. Those of receiving are in a file of their own.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest

from shared.app import App
from shared.boundary import OF_DELIVERING, OF_THE_QUEUE, Boundary
from shared.db.pool import Database
from shared.queue import store
from shared.settings import load
from tests.crash.delivery_process import deliver_all, deliver_until
from tests.fakes.faulty_server import Seen, answer
from tests.fakes.gateway import Gateway, Receiver
from tests.fakes.senders import SECRETS_KEY
from tests.fakes.world import ENVIRONMENT

_processes = multiprocessing.get_context("forkserver")


@dataclass
class Site:
    """A receiver, and this process's own application, which goes on after the killed one."""

    gateway: Gateway
    receiver: Receiver
    environment: dict[str, str]
    app: App
    endpoint: UUID

    def killed_at(self, boundary: Boundary, slots: int = 1) -> None:
        process = _processes.Process(target=deliver_until, args=(self.environment, boundary.value, slots))
        process.start()
        process.join(90)
        assert process.exitcode == -signal.SIGKILL

    def go_on(self, slots: int = 1) -> None:
        """Another process finds what the dead one has left."""
        self.gateway.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'processing'")
        with self.gateway.database.connection() as connection:
            store.rescue(connection)
        deliver_all(self.app, self.environment["DATABASE_URL"], slots)


@pytest.fixture
def site(database: Database, database_url: str) -> Iterator[Site]:
    _processes.set_forkserver_preload(["tests.crash.delivery_process"])
    gateway = Gateway(database)
    environment = ENVIRONMENT | {
        "DATABASE_URL": database_url,
        "SECRETS_KEY": SECRETS_KEY,
        "OUTBOUND_ALLOW_HOSTS": "127.0.0.1",
        "DB_POOL_MAX": "4",
    }
    with Receiver() as receiver:
        app = App(load(environment), database=database)
        yield Site(gateway, receiver, environment, app, gateway.endpoint(receiver.url, concurrency=16))


def first_of_each(says: int) -> object:
    """A receiver that answers each event's first delivery with this status, and takes the second."""
    known: set[str] = set()

    def answered(seen: Seen) -> bytes:
        is_new = seen.headers["webhook-id"] not in known
        known.add(seen.headers["webhook-id"])
        return answer(says if is_new else 200)

    return answered


WAY = [*OF_DELIVERING, *OF_THE_QUEUE]
# A bare completion shares the transaction of the next claim: only what writes more than that has one of its own.
WAY_OF_THE_ACCEPTED = [boundary for boundary in WAY if boundary is not Boundary.COMPLETING]


@pytest.mark.parametrize("boundary", WAY_OF_THE_ACCEPTED)
def test_what_is_accepted_arrives_once_and_after_a_kill_at_most_twice(site: Site, boundary: Boundary) -> None:
    (delivery,) = site.gateway.deliveries(site.endpoint)
    site.killed_at(boundary)
    site.go_on()
    after_sending = boundary in (Boundary.DELIVERED, Boundary.RETURNED)  # accepted, and nobody here knows
    assert len(site.receiver.arrivals) == (2 if after_sending else 1)
    assert len(set(site.receiver.ids)) == 1
    assert len({arrival.seen.body for arrival in site.receiver.arrivals}) == 1
    found = site.gateway.delivery(delivery)
    assert (found.state, found.status) == ("delivered", "done")
    before = boundary in (Boundary.ADMITTED, Boundary.DELIVERED, Boundary.RETURNED)
    outcomes = [attempt["outcome"] for attempt in site.gateway.attempts(delivery)]
    assert outcomes == (["interrupted", "delivered"] if before else ["delivered"])


@pytest.mark.parametrize("boundary", WAY)
def test_what_fails_first_is_made_again(site: Site, boundary: Boundary) -> None:
    site.receiver.says = first_of_each(503)  # type: ignore[assignment]
    (delivery,) = site.gateway.deliveries(site.endpoint)
    site.killed_at(boundary)
    site.go_on()
    assert len(set(site.receiver.ids)) == 1
    assert len(site.receiver.arrivals) == 2
    assert (site.gateway.delivery(delivery).state, site.gateway.delivery(delivery).status) == ("delivered", "done")


@pytest.mark.parametrize("status", [400, 410])
@pytest.mark.parametrize("boundary", WAY)
def test_what_is_refused_dies_with_its_reason(site: Site, boundary: Boundary, status: int) -> None:
    """Killed between the record and the burial, it dies of what was recorded, and is not sent again."""
    site.receiver.says = answer(status)
    (delivery,) = site.gateway.deliveries(site.endpoint)
    site.killed_at(boundary)
    site.go_on()
    found = site.gateway.delivery(delivery)
    assert (found.state, found.status) == ("dead", "failed")
    assert found.error_class == ("gone" if status == 410 else "rejected")
    assert len(site.receiver.arrivals) == (2 if boundary is Boundary.DELIVERED else 1)
    assert site.gateway.state(site.endpoint, "disabled_reason") == ("gone" if status == 410 else None)


@pytest.mark.parametrize("boundary", OF_DELIVERING)
def test_a_kill_in_the_middle_of_many(site: Site, boundary: Boundary) -> None:
    """Eight at once: each of those that were under way may go out twice, none three times, and all arrive."""
    deliveries = site.gateway.deliveries(site.endpoint, 40)
    site.killed_at(boundary, slots=8)
    site.go_on(slots=8)
    times = Counter(site.receiver.ids)
    assert len(times) == 40
    assert max(times.values()) <= 2
    assert sum(times.values()) <= 40 + 8
    assert {site.gateway.delivery(delivery).state for delivery in deliveries} == {"delivered"}
