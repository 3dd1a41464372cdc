"""Who may deliver when: the breaker, concurrency and rate of an endpoint, over all instances, and that waiting is no polling."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.db.pool import Conn, Database
from shared.errors import Failure, LeaseLost
from shared.queue import store
from shared.queue.closing import cancel
from shared.queue.job import Job
from shared.webhooks import endpoints
from shared.webhooks.admission import Admission, admit, settle
from shared.webhooks.sending import Answer, failure_of
from tests.fakes.eventually import eventually
from tests.fakes.faulty_server import answer
from tests.fakes.gateway import GUARD, Gateway, Receiver

NOWHERE = "https://hooks.example.org/in"  # no test of admission alone sends anything
HELD_OPEN = "UPDATE webhook_endpoints SET open_until = open_until + interval '1 hour'"


@pytest.fixture
def gateway(database: Database) -> Gateway:
    return Gateway(database)


class Instance:
    """A process that asks and records, without sending."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def claim(self, size: int = 1) -> list[Job]:
        with self.gateway.database.connection() as connection:
            return list(store.claim(connection, size, ["deliver_event"], 600))

    def ask(self, job: Job) -> Admission:
        with self.gateway.database.connection() as connection:
            return admit(connection, job, UUID(job.payload["delivery_id"]))

    def next(self) -> tuple[Job, Admission]:
        """Claim one that is due, and ask for it."""
        (job,) = self.claim()
        return job, self.ask(job)

    def record(self, job: Job, admission: Admission, status: int | None, took_ms: float = 10.0) -> Failure | None:
        """Record what came of an attempt."""
        failure = failure_of(status or 503, None)
        answered = Answer(status, took_ms, "", failure)
        assert admission.try_ is not None
        with self.gateway.database.connection() as connection:
            delivery = UUID(job.payload["delivery_id"])
            settle(connection, job, delivery, admission.try_, answered, 5.0 if failure else None)
        return failure

    def end(self, job: Job, admission: Admission, status: int | None = 200, took_ms: float = 10.0) -> None:
        """Record what came of an attempt, and end or requeue its job."""
        failure = self.record(job, admission, status, took_ms)
        with self.gateway.database.connection() as connection:
            if failure is None:
                store.mark_done(connection, job)
            else:
                store.requeue_with_backoff(connection, job, failure, 5.0)

    def wait(self, job: Job, admission: Admission) -> float:
        """Put off one that has to wait, as the worker does; for how long."""
        assert admission.verdict == "wait"
        assert admission.wait_seconds is not None
        with self.gateway.database.connection() as connection:
            failure = failure_of(503, None)
            assert failure
            store.snooze(connection, job, failure, admission.wait_seconds)
        return admission.wait_seconds


@pytest.fixture
def one(gateway: Gateway) -> Instance:
    return Instance(gateway)


@pytest.fixture
def two(gateway: Gateway) -> Instance:
    return Instance(gateway)


def broken(gateway: Gateway, one: Instance, *, waiting: int = 1, **settings: Any) -> UUID:
    """An endpoint whose breaker has just opened, and so many that have not been tried yet."""
    endpoint = gateway.endpoint(NOWHERE, **settings)
    gateway.deliveries(endpoint, 5)
    for _ in range(5):
        one.end(*one.next(), 503)
    gateway.execute("UPDATE ai_jobs SET next_run_at = now() + interval '1 day' WHERE status = 'pending'")
    gateway.deliveries(endpoint, waiting)
    return endpoint


def seconds_open(gateway: Gateway, endpoint: UUID) -> float | None:
    found = gateway.value(
        "SELECT extract(epoch FROM open_until - clock_timestamp())::float8 FROM webhook_endpoints WHERE id = %(id)s",
        id=endpoint,
    )
    return None if found is None else float(found)


def is_opened_for(gateway: Gateway, endpoint: UUID, seconds: float) -> bool:
    """Whether the attempt that has just ended opened it for so long, from some moment between its beginning and its end."""
    (least, most) = gateway.rows(
        "SELECT extract(epoch FROM e.open_until - a.ended)::float8, extract(epoch FROM e.open_until - a.started)::float8"
        " FROM webhook_endpoints e JOIN webhook_attempts a ON a.endpoint_id = e.id"
        " WHERE e.id = %(id)s AND a.ended IS NOT NULL ORDER BY a.ended DESC LIMIT 1",
        id=endpoint,
    )[0]
    return bool(least <= seconds <= most)


def test_five_failures_in_a_row_open_it_and_four_do_not(gateway: Gateway, one: Instance) -> None:
    endpoint = gateway.endpoint(NOWHERE)
    gateway.deliveries(endpoint, 10)
    for status in (503, 503, 503, 503, 200, 503, 503, 503, 404):
        one.end(*one.next(), status)
    assert seconds_open(gateway, endpoint) is None
    one.end(*one.next(), None)
    assert is_opened_for(gateway, endpoint, 10)


def test_while_it_is_open_deliveries_wait_without_using_attempts(gateway: Gateway, one: Instance) -> None:
    broken(gateway, one, waiting=3)
    jobs = one.claim(3)
    for job in jobs:
        assert 0 < one.wait(job, one.ask(job)) <= 30
    moments = (
        "SELECT extract(epoch FROM d.waits_until - e.open_until)::int FROM webhook_deliveries d"
        " JOIN webhook_endpoints e ON e.id = d.endpoint_id WHERE d.waits_until IS NOT NULL ORDER BY 1"
    )
    assert gateway.rows(moments) == [(0,), (10,), (20,)]  # one of them comes by each ten seconds
    assert (
        gateway.rows("SELECT attempts FROM ai_jobs WHERE id = ANY (%(ids)s)", ids=[job.id for job in jobs])
        == [(0,)] * 3
    )


def test_one_probe_at_a_time_over_two_instances(gateway: Gateway, one: Instance, two: Instance) -> None:
    endpoint = broken(gateway, one, waiting=5)
    gateway.pass_gateway_time(10.5)
    jobs = one.claim(5)
    with ThreadPoolExecutor(5) as pool:
        asked = list(pool.map(lambda pair: pair[0].ask(pair[1]), zip(itertools.cycle((one, two)), jobs, strict=False)))
    assert Counter(admission.verdict for admission in asked) == {"send": 1, "wait": 4}
    assert {admission.reason for admission in asked if admission.verdict == "wait"} == {"breaker"}
    assert gateway.value(
        "SELECT is_probe FROM webhook_attempts WHERE ended IS NULL AND endpoint_id = %(id)s", id=endpoint
    )


def test_each_failed_probe_doubles_the_pause_up_to_five_minutes(gateway: Gateway, one: Instance) -> None:
    endpoint = broken(gateway, one, waiting=8)
    for pause in (10, 20, 40, 80, 160, 300, 300):
        assert is_opened_for(gateway, endpoint, pause), pause
        gateway.pass_gateway_time((seconds_open(gateway, endpoint) or 0) + 0.1)
        gateway.execute(
            "UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending' AND id = (SELECT id FROM ai_jobs"
            " WHERE status = 'pending' AND attempts = 0 ORDER BY seq LIMIT 1)"
        )
        gateway.execute(
            "UPDATE ai_jobs SET next_run_at = now() + interval '1 day' WHERE status = 'pending' AND attempts > 0"
        )
        one.end(*one.next(), 503)


def test_a_probe_that_was_killed_frees_its_place_when_it_would_have_given_up(
    gateway: Gateway, one: Instance, two: Instance
) -> None:
    broken(gateway, one, waiting=3)
    gateway.pass_gateway_time(10.5)
    _, probe = one.next()  # and is never heard of again
    assert probe.verdict == "send"
    job, admission = two.next()
    assert 9 < two.wait(job, admission) <= 20
    gateway.pass_gateway_time(11)  # its time-out of five seconds, and five more
    assert two.next()[1].verdict == "send"


def test_what_was_killed_is_seen_and_made_again_at_once_by_its_own_job(
    gateway: Gateway, one: Instance, two: Instance
) -> None:
    gateway.deliveries(gateway.endpoint(NOWHERE, concurrency=1))
    _, first = one.next()
    gateway.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'processing'")
    with gateway.database.connection() as connection:
        store.rescue(connection)
    job, second = two.next()
    assert (first.try_, second.verdict, second.try_) == (1, "send", 2)
    two.end(job, second)
    outcomes = "SELECT outcome, error_class FROM webhook_attempts ORDER BY try"
    assert gateway.rows(outcomes) == [("interrupted", "interrupted"), ("delivered", None)]


def test_a_worker_that_lost_its_lease_neither_begins_nor_records(
    gateway: Gateway, one: Instance, two: Instance
) -> None:
    endpoint = gateway.endpoint(NOWHERE)
    (delivery,) = gateway.deliveries(endpoint)
    stale, admission = one.next()
    gateway.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'processing'")
    with gateway.database.connection() as connection:
        store.rescue(connection)
    with pytest.raises(LeaseLost):
        one.record(stale, admission, 410)
    assert [a["outcome"] for a in gateway.attempts(delivery)] == [None]
    _, again = two.next()
    with pytest.raises(LeaseLost):
        one.ask(stale)
    with pytest.raises(LeaseLost):
        one.end(stale, admission, 410)
    assert gateway.state(endpoint, "disabled_at") is None
    assert [a["outcome"] for a in gateway.attempts(delivery)] == ["interrupted", None]
    assert again.try_ == 2


def test_the_first_success_closes_it_and_pulls_forward_what_waits(gateway: Gateway, one: Instance) -> None:
    """Five hundred wait: they come at the endpoint's pace, 200 at a time, and the last of them pulls the next."""
    endpoint = broken(gateway, one, waiting=500, concurrency=10)
    gateway.execute(HELD_OPEN)  # all of them are asked while it is open, however long that takes
    for job in one.claim(500):
        one.wait(job, one.ask(job))
    last = "SELECT extract(epoch FROM max(next_run_at) - now()) FROM ai_jobs WHERE attempts = 0 AND status = 'pending'"
    assert gateway.value(last) > 2 * 3600
    gateway.pass_gateway_time(3610.5)
    one.end(*one.next(), 200, 100.0)
    assert seconds_open(gateway, endpoint) is None
    pulled = last.replace("max(next_run_at) - now())", "next_run_at - now())::float8") + " ORDER BY 1"
    waits = [wait for (wait,) in gateway.rows(pulled)]
    # 10 ms apart: an average of 100 ms, ten at once
    assert waits[0] <= 0 < waits[199] - waits[0] <= 2.0 < 60 < waits[200]
    steps = [later - earlier for earlier, later in itertools.pairwise(waits[:200])]
    assert max(steps) < 0.011
    for _ in range(6):
        gateway.pass_gateway_time(2.1)
        for job in one.claim(500):
            one.end(job, one.ask(job), 200)
    assert gateway.value("SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'") == 500
    assert gateway.state(endpoint, "pulled_until") is None


def test_a_dead_endpoint_with_thousands_waiting_is_hardly_asked(gateway: Gateway, one: Instance) -> None:
    """After the first look at each, one comes by in ten seconds."""
    broken(gateway, one, waiting=3000)
    gateway.execute(HELD_OPEN)  # all of them are asked while it is open, however long that takes
    gateway.execute(
        "UPDATE ai_jobs SET next_run_at = now() + interval '1 day' WHERE status = 'pending' AND seq NOT IN"
        " (SELECT seq FROM ai_jobs WHERE attempts = 0 ORDER BY seq LIMIT 100)"
    )
    for job in one.claim(500):
        one.wait(job, one.ask(job))
    due = (
        "SELECT count(*) FROM ai_jobs WHERE status = 'pending' AND attempts = 0"
        " AND next_run_at < (SELECT open_until + interval '295 s' FROM webhook_endpoints)"
    )
    assert 29 <= gateway.value(due) <= 31
    assert not one.claim()


def test_however_many_wait_each_is_looked_at_within_six_hours(gateway: Gateway, one: Instance) -> None:
    endpoint = broken(gateway, one)
    gateway.execute("UPDATE webhook_endpoints SET promised_until = now() + interval '3 days'")
    assert 3 * 3600 <= one.wait(*one.next()) <= 6 * 3600
    assert gateway.value(
        "SELECT promised_until > now() + interval '2 days' FROM webhook_endpoints WHERE id = %(id)s", id=endpoint
    )


def test_what_asking_reads_does_not_grow_with_what_waits(gateway: Gateway, one: Instance) -> None:
    """The plans are made while the tables are small, and kept: each step must be by an index."""
    endpoint = gateway.endpoint(NOWHERE, rate=1000.0, concurrency=64)
    gateway.deliveries(endpoint)
    with gateway.database.connection() as connection:
        one.end(*one.next())
        few = pages_at_rest(connection, one, gateway, endpoint)
        gateway.deliveries(endpoint, 5000)
        gateway.execute("UPDATE webhook_deliveries SET waits_until = now() + interval '1 h' WHERE state = 'waiting'")
        gateway.execute("UPDATE ai_jobs SET next_run_at = now() + interval '1 h' WHERE status = 'pending'")
        gateway.execute("INSERT INTO webhook_attempts (delivery_id, try, endpoint_id, run, started, gives_up_at, ended, outcome)"
                        " SELECT id, 1, endpoint_id, 1, now(), now(), now(), 'failed' FROM webhook_deliveries"
                        " WHERE NOT EXISTS (SELECT FROM webhook_attempts a WHERE a.delivery_id = webhook_deliveries.id)"
                        )  # fmt: skip
        many = pages_at_rest(connection, one, gateway, endpoint)
    assert many < few + 60, (few, many)


def pages_at_rest(connection: Conn, one: Instance, gateway: Gateway, endpoint: UUID) -> int:
    """The fewest of three: now and then a session reads the catalogue anew."""
    return min(pages(connection, one, gateway, endpoint) for _ in range(3))


def pages(connection: Conn, one: Instance, gateway: Gateway, endpoint: UUID) -> int:
    """How many pages one admission touches."""
    gateway.deliveries(endpoint)
    (job,) = one.claim()
    found = connection.execute(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM admit_delivery(%(job)s, %(token)s, %(delivery)s)",
        {"job": job.id, "token": job.lease_token, "delivery": UUID(job.payload["delivery_id"])},
    ).fetchone()
    assert found is not None
    return int(found[0][0]["Plan"]["Shared Hit Blocks"]) + int(found[0][0]["Plan"]["Shared Read Blocks"])


def test_concurrency_holds_over_two_instances(gateway: Gateway, one: Instance, two: Instance) -> None:
    gateway.deliveries(gateway.endpoint(NOWHERE, concurrency=3), 12)
    jobs = one.claim(12)
    with ThreadPoolExecutor(8) as pool:
        asked = list(pool.map(lambda pair: pair[0].ask(pair[1]), zip(itertools.cycle((one, two)), jobs, strict=False)))
    assert Counter(admission.verdict for admission in asked) == {"send": 3, "wait": 9}
    moments = [at for (at,) in gateway.rows(
        "SELECT extract(epoch FROM waits_until)::float8 FROM webhook_deliveries WHERE waits_until IS NOT NULL ORDER BY 1"
    )]  # fmt: skip
    assert len(moments) == 9
    # A moment for each, a third of 100 ms apart while nothing is known of the endpoint, or of what those under way have taken.
    assert min(later - earlier for earlier, later in itertools.pairwise(moments)) > 0.03
    ages = "SELECT extract(epoch FROM clock_timestamp() - min(started))::float8 FROM webhook_attempts"
    assert max(admission.wait_seconds or 0 for admission in asked) <= 9 * max(0.1, gateway.value(ages)) / 3
    sending = next(n for n, admission in enumerate(asked) if admission.verdict == "send")
    one.end(jobs[sending], asked[sending])
    waiting = next(n for n, admission in enumerate(asked) if admission.verdict == "wait")
    assert two.ask(jobs[waiting]).verdict == "send"


def test_when_answers_take_longer_than_they_did_those_that_wait_come_by_less_often(
    gateway: Gateway, one: Instance
) -> None:
    gateway.deliveries(gateway.endpoint(NOWHERE, concurrency=1), 3)
    gateway.execute("UPDATE webhook_endpoints SET average_ms = 5")
    first, second, third = one.claim(3)
    began = time.monotonic()
    assert one.ask(first).verdict == "send"
    assert (one.ask(second).wait_seconds or 9) < 1 + time.monotonic() - began
    gateway.execute("UPDATE webhook_attempts SET started = started - interval '4 seconds'")
    assert 4 <= (one.ask(third).wait_seconds or 0) < 6 + 2 * (time.monotonic() - began)


def test_a_healthy_endpoint_s_row_is_hardly_written(gateway: Gateway, one: Instance) -> None:
    endpoint = gateway.endpoint(NOWHERE, concurrency=64)
    gateway.deliveries(endpoint, 101)
    one.end(*one.next())
    version = "SELECT xmin::text || ctid::text FROM webhook_endpoints"
    seen = []
    for _ in range(100):
        one.end(*one.next())
        seen.append(gateway.value(version))
    assert len(set(seen)) < 20  # one in twenty is a sample of its answers' times
    assert gateway.state(endpoint, "average_ms") == "10"


def moments(
    gateway: Gateway, instances: list[Instance], count: int, step: float, at_once: int | None = None
) -> list[float]:
    """Let time pass in steps, and take back what asking takes; when each attempt began, in seconds since now.

    A machine that stands still in the middle of it comes late, as much as it stood: so the rates here are slow, whose grace is
    five seconds.
    """
    began: list[float] = []
    passed, at = 0.0, time.monotonic()  # what has passed, and the moment here that belongs to it
    while len(began) < count:
        for instance in instances:
            jobs = instance.claim(at_once or count)
            since = time.monotonic()
            for job in jobs:
                admission = instance.ask(job)
                if admission.verdict == "send":
                    began.append(passed)
                    instance.end(job, admission)
                else:
                    instance.wait(job, admission)
                now = time.monotonic()
                gateway.pass_gateway_time(since - now)
                since, at = now, at + now - since
        now = time.monotonic()
        gateway.pass_gateway_time(at + step - now)
        passed, at = passed + step, now
    return began


def test_a_rate_is_kept_to_over_two_instances_and_each_is_claimed_about_twice(
    gateway: Gateway, one: Instance, two: Instance
) -> None:
    gateway.deliveries(gateway.endpoint(NOWHERE, rate=0.2, concurrency=64), 60)
    began = moments(gateway, [one, two], 60, 2.5)
    assert 285 <= began[-1] <= 315
    assert most_within(began, 50.0) <= 12
    assert gateway.value("SELECT max(claims) FROM ai_jobs") <= 2


def test_being_a_little_late_sends_nobody_to_the_end(gateway: Gateway, one: Instance) -> None:
    gateway.deliveries(gateway.endpoint(NOWHERE, rate=0.2, concurrency=64), 40)
    began = moments(gateway, [one], 40, 3.0)
    assert began[-1] <= 225
    assert gateway.value("SELECT max(claims) FROM ai_jobs") <= 2


def test_after_ten_minutes_away_there_is_no_burst(gateway: Gateway, one: Instance, two: Instance) -> None:
    gateway.deliveries(gateway.endpoint(NOWHERE, rate=0.2, concurrency=64), 50)
    for job in one.claim(50):
        admission = one.ask(job)
        if admission.verdict == "send":
            one.end(job, admission)
        else:
            one.wait(job, admission)
    gateway.pass_gateway_time(600)
    began = moments(gateway, [one, two], 49, 2.5)
    assert most_within(began, 50.0) <= 12
    assert began[-1] >= 230


def test_no_moment_is_promised_that_is_further_away_than_six_hours(gateway: Gateway, one: Instance) -> None:
    """Or those that cannot go within 72 hours would be buried at once, and take the moments of those who come later along."""
    endpoint = gateway.endpoint(NOWHERE, rate=0.001, concurrency=4)
    gateway.deliveries(endpoint, 80)
    one.end(*one.next())
    waits = [one.wait(job, one.ask(job)) for job in one.claim(300)]
    promised = [round(wait, -3) for wait in waits[:21]]
    assert promised == [1000.0 * place for place in range(1, 22)]
    assert min(waits[21:]) >= 3 * 3600
    assert max(waits) <= 6 * 3600
    ahead = "SELECT extract(epoch FROM paced_at - now())::float8 FROM webhook_endpoints WHERE id = %(id)s"
    assert 21_500 < gateway.value(ahead, id=endpoint) <= 22_000
    gateway.pass_gateway_time(5 * 3600)
    for job in one.claim(300):
        admission = one.ask(job)
        if admission.verdict == "wait":
            one.wait(job, admission)
    gateway.pass_gateway_time(3001)
    one.next()
    assert 18_000 < gateway.value(ahead, id=endpoint) <= 23_000  # the last that have a moment pull the next


PLACES = """
    SELECT count(*) FILTER (WHERE promised_at IS NOT NULL)::int, count(*) FILTER (WHERE waits_until IS NOT NULL)::int
    FROM webhook_deliveries WHERE endpoint_id = %(id)s
"""
CLAIMS = "SELECT sum(claims)::int FROM ai_jobs"
DUE = "SELECT count(*) FROM ai_jobs WHERE status = 'pending' AND next_run_at < now()"


def look(one: Instance, looks: int) -> int:
    """Claim what is due, as often as that, and ask; how many may go, which they do."""
    sent = 0
    for _ in range(looks):
        for job in one.claim(8):
            admission = one.ask(job)
            if admission.verdict == "send":
                sent += 1
                one.end(job, admission)
            elif admission.verdict == "wait":
                one.wait(job, admission)
    return sent


@pytest.fixture
def crowded(gateway: Gateway, one: Instance) -> UUID:
    """An endpoint whose thousand deliveries fell due together; as one a second may go, hardly any has."""
    endpoint = gateway.endpoint(NOWHERE, rate=1.0, concurrency=64)
    gateway.deliveries(endpoint, 1000)
    look(one, 6)
    return endpoint


def test_thousands_that_fall_due_together_are_not_claimed_one_by_one(gateway: Gateway, crowded: UUID) -> None:
    """Two hundred moments are given ahead, and the others are parked by whoever was claimed first."""
    promised, parked = gateway.rows(PLACES, id=crowded)[0]
    assert 150 <= promised <= 220
    assert 1000 - 260 <= parked <= 1000 - promised
    assert gateway.value(CLAIMS) <= 50
    assert gateway.value(DUE) < 50


def test_what_is_parked_keeps_its_order_and_has_a_due_time_of_its_own(gateway: Gateway, crowded: UUID) -> None:
    """Whatever becomes of the process that parked it, a timer finds it half a minute behind its place in line."""
    line = gateway.rows(
        "SELECT extract(epoch FROM j.next_run_at - d.waits_until)::float8, j.status FROM webhook_deliveries d"
        " JOIN ai_jobs j ON j.id = d.job_id WHERE d.waits_until IS NOT NULL"
    )
    assert {status for _, status in line} == {"pending"}
    assert 29.9 < min(line)[0] <= max(line)[0] < 60
    order = (
        "SELECT j.seq, j.claims FROM webhook_deliveries d JOIN ai_jobs j ON j.id = d.job_id"
        " WHERE d.waits_until IS NOT NULL ORDER BY d.waits_until, j.seq"
    )
    found = gateway.rows(order)
    unasked = [seq for seq, claims in found if not claims]
    assert unasked == sorted(unasked)
    assert found[0] == (min(seq for seq, _ in found), 1), "it was claimed beside the one that parked the others"
    fresh = gateway.deliveries(crowded)[0]
    last = gateway.value("SELECT max(waits_until) FROM webhook_deliveries WHERE id <> %(id)s", id=fresh)
    gateway.execute("UPDATE webhook_endpoints SET sent_until = now() + interval '1 minute'")
    look(Instance(gateway), 1)
    assert gateway.value("SELECT waits_until > %(last)s FROM webhook_deliveries WHERE id = %(id)s", id=fresh, last=last)


def test_a_crowd_that_waits_for_a_place_is_parked_too_if_there_is_a_rate(gateway: Gateway, one: Instance) -> None:
    """An endpoint that is slower than its rate: its thousand are not claimed one by one either, and go as places get free."""
    endpoint = gateway.endpoint(NOWHERE, rate=1.0, concurrency=1)
    gateway.deliveries(endpoint, 1000)
    job, admission = one.next()
    assert admission.verdict == "send"
    assert look(one, 6) == 0
    assert gateway.value(CLAIMS) <= 50
    assert gateway.value(DUE) < 50
    assert gateway.rows(PLACES, id=endpoint)[0][1] >= 900
    one.end(job, admission)
    gateway.pass_gateway_time(20)
    assert look(one, 1) >= 1
    passed, sent = 0, 0
    while sent < 20:
        sent += look(one, 1)
        gateway.pass_gateway_time(1)
        passed += 1
        assert passed <= 30


def test_what_is_parked_is_not_forgotten_when_nobody_comes_to_pull_it(
    gateway: Gateway, one: Instance, crowded: UUID
) -> None:
    """All that had a moment are gone, without having asked: the first of the others comes by itself, goes, and pulls the next."""
    promised = gateway.rows("SELECT job_id FROM webhook_deliveries WHERE promised_at IS NOT NULL")
    with gateway.database.connection() as connection:
        cancel(connection, [job for (job,) in promised], who="test")
    gateway.pass_gateway_time(len(promised) + 40)
    assert look(one, 1) >= 1
    promised_now, parked = gateway.rows(PLACES, id=crowded)[0]
    assert 150 <= promised_now <= 220
    assert promised_now + parked >= 1000 - len(promised) - 20


def test_a_crowd_goes_at_its_rate_and_each_is_claimed_hardly_more_than_once(gateway: Gateway, one: Instance) -> None:
    """Over the moments that were given first, and those that were pulled behind them."""
    gateway.deliveries(gateway.endpoint(NOWHERE, rate=10.0, concurrency=64), 260)
    sent, passed, began = 0, 0.0, time.monotonic()
    while sent < 260:
        sent += look(one, 2)
        assert sent <= 10 * (passed + time.monotonic() - began + 0.5) + 1
        gateway.pass_gateway_time(0.5)
        passed += 0.5
        assert passed <= 26 + 3
    assert gateway.value(CLAIMS) <= 260 * 1.6


def test_who_is_always_late_goes_at_the_rate_all_the_same(gateway: Gateway, one: Instance) -> None:
    """A queue that is two seconds behind: each misses its moment by more than the grace, and takes the one that it finds."""
    gateway.deliveries(gateway.endpoint(NOWHERE, rate=5.0, concurrency=64), 20)
    late = "UPDATE ai_jobs SET next_run_at = next_run_at + interval '2 s' WHERE id = %(id)s"
    sent, looks = 0, 0
    while sent < 20:
        for job in one.claim(20):
            admission = one.ask(job)
            if admission.verdict == "send":
                sent += 1
                one.end(job, admission)
            else:
                one.wait(job, admission)
                gateway.execute(late, id=job.id)
        gateway.pass_gateway_time(0.2)
        looks += 1
        assert looks <= 45, "nine seconds for what takes six"


def test_a_crowd_before_an_endpoint_that_is_disabled_dies_soon_and_goes_when_it_is_enabled(
    gateway: Gateway, one: Instance, crowded: UUID
) -> None:
    with gateway.database.connection() as connection:
        endpoints.disable(connection, crowded, who="test")
    due = "SELECT count(*) FROM ai_jobs WHERE status = 'pending' AND next_run_at < now() + interval '3 minutes'"
    assert gateway.value(due) == gateway.value("SELECT count(*) FROM ai_jobs WHERE status = 'pending'")
    gateway.pass_gateway_time(1.0)
    assert one.next()[1].verdict == "disabled"
    with gateway.database.connection() as connection:
        endpoints.enable(connection, crowded, who="test")
    gateway.pass_gateway_time(5.0)
    assert look(one, 40) >= 1
    assert 150 <= gateway.rows(PLACES, id=crowded)[0][0] <= 420


def test_a_crowd_takes_another_rate_at_once(gateway: Gateway, one: Instance, crowded: UUID) -> None:
    def change(rate: float | None) -> None:
        with gateway.database.connection() as connection:
            found = endpoints.find_endpoint(connection, crowded)
            assert found
            wanted = replace(found.settings, rate=rate)
            endpoints.change(connection, crowded, wanted, seen=found.version, guard=GUARD, who="test")

    ahead = "SELECT extract(epoch FROM paced_at - now())::float8 FROM webhook_endpoints WHERE id = %(id)s"
    change(0.1)
    assert 1500 < gateway.value(ahead, id=crowded) <= 2011
    change(100.0)
    assert gateway.value(ahead, id=crowded) <= 2.02
    change(None)
    before = gateway.rows(PLACES, id=crowded)[0][1]
    gateway.pass_gateway_time(30.0)
    assert look(one, 2) == 16
    assert gateway.rows(PLACES, id=crowded)[0][1] <= before - 200


def test_after_a_pause_of_the_type_a_crowd_goes_on_at_its_rate(gateway: Gateway, one: Instance, crowded: UUID) -> None:
    """All of them are overdue then."""
    gateway.execute("UPDATE job_types SET paused = true WHERE type = 'deliver_event'")
    gateway.pass_gateway_time(3600)
    assert not one.claim()
    gateway.execute("UPDATE job_types SET paused = false WHERE type = 'deliver_event'")
    claims = gateway.value(CLAIMS)
    assert look(one, 6) >= 1
    assert gateway.value(DUE) < 50
    assert gateway.value(CLAIMS) <= claims + 48
    promised, parked = gateway.rows(PLACES, id=crowded)[0]
    assert 150 <= promised <= 220
    assert promised + parked >= 950


def test_what_parking_reads_does_not_grow_with_what_is_parked(gateway: Gateway, one: Instance, crowded: UUID) -> None:
    touched = []
    with gateway.database.connection() as connection:
        for count in (1, 4000):
            gateway.deliveries(crowded, count)
            look(one, count // 500 + 2)
            gateway.execute("UPDATE webhook_endpoints SET sent_until = now() + interval '1 minute'")
            touched.append(pages(connection, one, gateway, crowded))
    assert touched[1] < touched[0] + 200


def test_a_slow_rate_leaves_nobody_behind_who_was_pulled_forward(gateway: Gateway, one: Instance) -> None:
    """The last of those that were pulled pulls the next, although its moment is long before the time that it uses up."""
    endpoint = gateway.endpoint(NOWHERE, rate=0.2, concurrency=4)
    gateway.deliveries(endpoint, 205)
    gateway.execute("UPDATE webhook_deliveries SET waits_until = now() + interval '5 h'")
    gateway.execute("UPDATE ai_jobs SET next_run_at = now() + interval '5 h' WHERE status = 'pending'")
    with gateway.database.connection() as connection:
        assert connection.execute("SELECT pull_waiting(%s)", (endpoint,)).fetchone() == (200,)
    sent, late, at = 0, 0.2, time.monotonic()
    gateway.pass_gateway_time(late)
    for _ in range(205):
        for job in one.claim(10):
            admission = one.ask(job)
            if admission.verdict == "send":
                one.end(job, admission)
                sent += 1
            else:
                one.wait(job, admission)
        now = time.monotonic()
        # What asking takes is no time, or it would add up, and they would be looked at too late.
        gateway.pass_gateway_time(at + 5.0 - now)
        at = now
    assert sent >= 204


def test_what_has_just_been_told_to_wait_is_pulled_forward_later(gateway: Gateway, one: Instance) -> None:
    """Its job is not put off yet when the breaker closes: it keeps its place among those that wait, and the next one takes it."""
    endpoint = broken(gateway, one, waiting=3)
    probe, waiting, other = one.claim(3)
    slow = one.ask(waiting)
    gateway.pass_gateway_time(10.5)
    one.end(probe, one.ask(probe), 200)
    gateway.execute("UPDATE webhook_endpoints SET concurrency = 4 WHERE id = %(id)s", id=endpoint)
    assert slow.verdict == "wait"
    with gateway.database.connection() as connection:
        failure = failure_of(503, None)
        assert failure
        store.snooze(connection, waiting, failure, 5 * 3600.0)
    assert one.ask(other).verdict == "send"
    assert gateway.value("SELECT next_run_at < now() + interval '5 s' FROM ai_jobs WHERE id = %(id)s", id=waiting.id)


def test_what_has_ended_is_not_among_those_that_wait(gateway: Gateway, one: Instance) -> None:
    broken(gateway, one, waiting=2)
    for job in one.claim(2):
        one.wait(job, one.ask(job))
    waiting = "SELECT count(*)::int FROM webhook_deliveries WHERE waits_until IS NOT NULL"
    assert gateway.value(waiting) == 2
    with gateway.database.connection() as connection:
        cancel(connection, [job.id], who="test")
    assert gateway.value(waiting) == 1


def most_within(began: list[float], seconds: float) -> int:
    """The most that begin within so many seconds."""
    return max(sum(first <= other < first + seconds for other in began) for first in began)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rate=st.floats(0.5, 50),
    steps=st.lists(st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.5, 1.0, 7.0, 60.0]), min_size=3, max_size=8),
    batch=st.integers(1, 6),
    at_once=st.sampled_from([1, 3, 100]),
)
def test_whatever_the_gaps_in_no_window_go_more_than_the_rate_allows(
    gateway: Gateway, rate: float, steps: list[float], batch: int, at_once: int
) -> None:
    """The promise of admit_delivery: in any T seconds at most rate × (T + grace) + 1, however the worker's looks are spread."""
    gateway = Gateway(gateway.database)
    instance = Instance(gateway)
    endpoint = gateway.endpoint(NOWHERE, rate=rate, concurrency=64)
    grace = max(0.5, min(1 / rate, 5))
    started = time.monotonic()
    passed = 0.0
    asked: list[float] = []
    began: list[float] = []
    for step in steps:
        gateway.deliveries(endpoint, batch)
        for job in instance.claim(at_once):
            before = passed + time.monotonic() - started
            admission = instance.ask(job)
            if admission.verdict == "send":
                asked.append(before)
                began.append(passed + time.monotonic() - started)
                instance.end(job, admission)
            else:
                instance.wait(job, admission)
        gateway.pass_gateway_time(step)
        passed += step
    for first, last in itertools.combinations(range(len(began)), 2):
        window = began[last] - asked[first] + 0.1  # the clock of this process and the database's
        assert last - first + 1 <= rate * (window + grace) + 1.001


def test_two_workers_keep_to_rate_and_concurrency_with_real_requests(gateway: Gateway) -> None:
    together, most, counted = [0], [0], threading.Lock()

    def says(seen: object) -> bytes:
        came = time.monotonic()
        with counted:
            together[0] += 1
            most[0] = max(most[0], together[0])
        eventually(lambda: time.monotonic() > came + 0.05)
        with counted:
            together[0] -= 1
        return answer(200)

    other = gateway.beside()
    with Receiver(says) as narrow, Receiver() as paced, ThreadPoolExecutor(2) as pool:
        gateway.deliveries(gateway.endpoint(narrow.url, concurrency=2), 12)
        endpoint = gateway.endpoint(paced.url, rate=10.0, concurrency=64)
        gateway.deliveries(endpoint, 20)
        for drained in [pool.submit(drain_all, world) for world in (gateway, other)]:
            drained.result()
    assert (len(narrow.arrivals), len(paced.arrivals)) == (12, 20)
    assert most[0] <= 2
    began = [
        at for (at,) in gateway.rows(
            "SELECT extract(epoch FROM started)::float8 FROM webhook_attempts WHERE endpoint_id = %(id)s ORDER BY 1", id=endpoint
        )
    ]  # fmt: skip
    assert most_within(began, 0.5) <= 10 * (0.5 + 0.5) + 1
    assert began[-1] - began[0] >= 19 / 10 - 0.5


def drain_all(world: Gateway) -> None:
    """Drain until everything has arrived; a drain may end before what falls due at that very moment."""
    while world.value("SELECT EXISTS (SELECT FROM webhook_deliveries WHERE state <> 'delivered')"):
        world.app.worker.drain(4, 20)


def test_two_thousand_due_at_once_are_no_hindrance_to_their_rate_nor_to_others(gateway: Gateway) -> None:
    """The first arrive while nearly all wait, and so does what came last and is for somebody else."""
    with Receiver() as crowd, Receiver() as other, ThreadPoolExecutor(1) as pool:
        endpoint = gateway.endpoint(crowd.url, rate=20.0)
        gateway.deliveries(endpoint, 2000)
        gateway.deliveries(gateway.endpoint(other.url))
        drained = pool.submit(gateway.app.worker.drain, 8, 60)
        eventually(lambda: len(crowd.arrivals) >= 20 and other.arrivals)
        claims, (_, parked) = gateway.value(CLAIMS), gateway.rows(PLACES, id=endpoint)[0]
        arrived = len(crowd.arrivals)
        gateway.app.stop()
        drained.result()
    assert parked >= 2000 - 2 * 200 - arrived
    assert claims <= 2 * arrived + 100
    began = [at for (at,) in gateway.rows("SELECT extract(epoch FROM started)::float8 FROM webhook_attempts"
                                          " WHERE endpoint_id = %(id)s ORDER BY 1", id=endpoint)]  # fmt: skip
    assert most_within(began, 1.0) <= 20 * (1.0 + 0.5) + 1


def test_a_breaker_with_real_workers(gateway: Gateway) -> None:
    """A dead endpoint is asked once a pause, its deliveries use no attempts meanwhile, and all arrive when it is back."""
    with Receiver(answer(500)) as receiver:
        endpoint = gateway.endpoint(receiver.url)
        gateway.deliveries(endpoint, 12)
        worlds = [gateway, gateway.beside()]
        eventually(lambda: ([world.run() for world in worlds], gateway.state(endpoint, "open_until"))[1])
        asked = len(receiver.arrivals)
        assert 5 <= asked <= 5 + 4  # those that were out when it opened
        for pause in (11.0, 21.0):
            gateway.pass_gateway_time(pause)
            gateway.execute(
                "UPDATE ai_jobs SET next_run_at = now() + interval '1 h' WHERE status = 'pending' AND attempts > 0"
            )
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda world: world.run(), worlds))
            asked += 1
            assert len(receiver.arrivals) == asked
        receiver.says = answer(200)
        gateway.pass_gateway_time(41)
        for _ in range(20):  # its concurrency lets four go at once
            for world in worlds:
                world.run()
            gateway.all_due()
    assert gateway.value("SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'") == 12
    assert gateway.state(endpoint, "failures_in_row") == "0"
