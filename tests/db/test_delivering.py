"""Deliveries by the real worker to servers on loopback: what each answer leads to, and what stays the same over the tries."""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.backoff import DELIVERY_SECONDS
from shared.db.pool import Database
from shared.queue import store
from shared.queue.job import Lease, Snooze
from shared.queue.replay import restart
from shared.signature import verify_standard, verify_timestamped
from shared.webhooks import endpoints
from shared.webhooks.deliver import Courier
from shared.webhooks.sending import Sender
from tests.fakes.eventually import eventually
from tests.fakes.faulty_server import Seen, answer, closed_port
from tests.fakes.gateway import GUARD, SECRET, VAULT, Gateway, Receiver


@pytest.fixture
def gateway(database: Database) -> Gateway:
    return Gateway(database, JOB_LEASE_SECONDS="30")  # what hangs is held for as long as a test lasts


def run_once(gateway: Gateway) -> int:
    """Whatever is due or waits, once."""
    gateway.all_due()
    return gateway.app.worker.poll_once(8)


def are_all(gateway: Gateway, state: str) -> bool:
    """Run what is due; whether each delivery is so by then."""
    gateway.run()
    return gateway.rows("SELECT DISTINCT state FROM webhook_deliveries") == [(state,)]


def one(gateway: Gateway, url: str, **settings: Any) -> tuple[UUID, UUID]:
    """An endpoint and one delivery to it."""
    endpoint = gateway.endpoint(url, **settings)
    return endpoint, gateway.deliveries(endpoint)[0]


def says_in_turn(*answers: bytes) -> Callable[[Seen], bytes]:
    """The answers one after another, the last one again and again; several may ask at once."""
    left = itertools.chain(answers, itertools.repeat(answers[-1]))
    return lambda seen: next(left)


def test_it_arrives(gateway: Gateway) -> None:
    with Receiver(answer(202, b"thank you")) as receiver:
        _, delivery = one(gateway, receiver.url, headers={"X-Tenant": "north"})
        gateway.run()
        (seen,) = [arrival.seen for arrival in receiver.arrivals]
    found = gateway.delivery(delivery)
    assert (found.state, found.tries, found.status, found.attempts) == ("delivered", 1, "done", 1)
    (attempt,) = gateway.attempts(delivery)
    assert (attempt["outcome"], attempt["http_status"], attempt["answer"]) == ("delivered", 202, "thank you")
    assert (seen.body, seen.headers["x-tenant"]) == (b'{"n":1}', "north")
    assert seen.headers["x-idempotency-key"] == str(delivery)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 503])
def test_what_passes_is_tried_again_by_the_table(gateway: Gateway, status: int) -> None:
    with Receiver(says_in_turn(answer(status), answer(200))) as receiver:
        _, delivery = one(gateway, receiver.url)
        run_once(gateway)
        found = gateway.delivery(delivery)
        assert (found.state, found.status, found.attempts) == ("waiting", "pending", 1)
        assert DELIVERY_SECONDS[0] / 2 <= found.wait <= DELIVERY_SECONDS[0]
        run_once(gateway)
    assert gateway.delivery(delivery).state == "delivered"
    assert [(a["outcome"], a["http_status"]) for a in gateway.attempts(delivery)] == [
        ("failed", status),
        ("delivered", 200),
    ]


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 422])
def test_what_does_not_pass_is_a_dead_letter_at_once_and_the_type_goes_on(gateway: Gateway, status: int) -> None:
    with Receiver(answer(status, b"no", Location="/elsewhere")) as receiver:
        _, delivery = one(gateway, receiver.url)
        gateway.run()
    found = gateway.delivery(delivery)
    assert (found.state, found.tries, found.status) == ("dead", 1, "failed")
    assert found.error_class == ("redirected" if status == 302 else "rejected")
    assert gateway.value("SELECT count(*) FROM dead_letters") == 1
    assert gateway.value("SELECT http_status FROM job_attempts") == status
    assert gateway.value("SELECT resting_until IS NULL FROM job_types WHERE type = 'deliver_event'")


@pytest.mark.parametrize("fault", ["silence", "nobody listens", "dropped"])
def test_what_may_have_been_acted_on_is_tried_again(gateway: Gateway, fault: str) -> None:
    with Receiver(lambda seen: None if fault == "silence" else b"") as receiver:
        if fault == "dropped":
            receiver.release.set()
            receiver.says = lambda seen: None
        url = f"http://127.0.0.1:{closed_port()}/" if fault == "nobody listens" else receiver.url
        _, delivery = one(gateway, url, timeout_seconds=1.0 if fault == "silence" else 30.0)
        run_once(gateway)
    found = gateway.delivery(delivery)
    assert (found.state, found.status, found.attempts) == ("waiting", "pending", 1)
    assert found.error_class == {"silence": "timeout", "nobody listens": "connect", "dropped": "dropped"}[fault]


def test_an_address_that_became_forbidden_is_a_dead_letter(database: Database) -> None:
    gateway = Gateway(database, OUTBOUND_ALLOW_HOSTS="internal.example.org")
    _, delivery = one(gateway, "http://127.0.0.1:9/hook")
    gateway.run()
    found = gateway.delivery(delivery)
    assert (found.state, found.status, found.error_class) == ("dead", "failed", "address_refused")


@pytest.mark.parametrize(
    "host", ["💩.example.org", f"{'a' * 64}.example.org", "a..example.org"], ids=["emoji", "long", "empty"]
)
def test_an_address_that_cannot_exist_is_a_dead_letter_at_once(gateway: Gateway, host: str) -> None:
    endpoint, delivery = one(gateway, "https://hooks.example.org/")
    gateway.execute(
        "UPDATE webhook_endpoints SET url = %(url)s WHERE id = %(id)s", id=endpoint, url=f"https://{host}/hook"
    )
    gateway.run()
    found = gateway.delivery(delivery)
    assert (found.state, found.tries, found.status, found.error_class) == ("dead", 1, "failed", "bad_host_name")


def test_what_waits_for_a_disabled_endpoint_is_seen_as_dead_letters_and_is_replayed(gateway: Gateway) -> None:
    with Receiver(answer(500)) as receiver:
        endpoint = gateway.endpoint(receiver.url)
        gateway.deliveries(endpoint, 7)
        eventually(lambda: (gateway.run(), gateway.state(endpoint, "open_until"))[1])
        # Now some wait for their next try, the others for the breaker.
        gateway.execute("UPDATE ai_jobs SET next_run_at = now() + interval '3 hours'")
        with gateway.database.connection() as connection:
            endpoints.disable(connection, endpoint, who="anna", reason="moved")
        eventually(lambda: are_all(gateway, "dead"))
        dead = gateway.rows("SELECT id, error_class FROM dead_letters")
        assert [row[1] for row in dead] == ["endpoint_disabled"] * 7
        receiver.says = answer(200)
        with gateway.database.connection() as connection:
            endpoints.enable(connection, endpoint, who="anna")
            restart(connection, [row[0] for row in dead], who="anna")
        eventually(lambda: are_all(gateway, "delivered"))
    assert gateway.value("SELECT count(*) FROM dead_letters") == 0


def test_410_ends_the_endpoint_and_what_waits_for_it(gateway: Gateway) -> None:
    with Receiver(answer(410)) as receiver:
        endpoint = gateway.endpoint(receiver.url, concurrency=1)
        first, *others = gateway.deliveries(endpoint, 3)
        assert gateway.app.worker.poll_once(1) == 1
        assert (gateway.state(endpoint, "disabled_reason"), gateway.delivery(first).error_class) == ("gone", "gone")
        gateway.run()
        assert len(receiver.arrivals) == 1
    assert {(gateway.delivery(other).state, gateway.delivery(other).error_class) for other in others} == {
        ("dead", "endpoint_disabled")
    }
    with gateway.database.connection() as connection:
        endpoints.enable(connection, endpoint, who="test")
    with Receiver() as back:
        gateway.execute("UPDATE webhook_endpoints SET url = %(url)s", url=back.url)
        restarted(gateway, others[0])
        gateway.run()
        assert gateway.delivery(others[0]).state == "delivered"


def restarted(gateway: Gateway, delivery: UUID) -> None:
    with gateway.database.connection() as connection:
        job = gateway.value("SELECT job_id FROM webhook_deliveries WHERE id = %(id)s", id=delivery)
        restart(connection, [job], who="test")


def test_every_try_is_the_same_event_signed_anew(gateway: Gateway) -> None:
    """Eight tries, then a dead letter; a restart goes on with the same id and the same bytes, and says that it is one."""
    with Receiver(answer(503)) as receiver:
        endpoint, delivery = one(gateway, receiver.url)
        waits = []
        for _ in range(8):
            gateway.execute("UPDATE webhook_endpoints SET failures_in_row = 0, open_until = NULL")
            gateway.execute("UPDATE webhook_attempts SET started = started - interval '2 seconds'")
            run_once(gateway)
            waits.append(gateway.delivery(delivery).wait)
        found = gateway.delivery(delivery)
        assert (found.state, found.tries, found.status, found.attempts) == ("dead", 8, "failed", 8)
        for wait, longest in zip(waits[:-1], DELIVERY_SECONDS, strict=True):
            assert longest / 2 <= wait <= longest
        receiver.says = answer(200)
        restarted(gateway, delivery)
        gateway.run()
        seen = [arrival.seen for arrival in receiver.arrivals]
    assert gateway.delivery(delivery).state == "delivered"
    assert len(seen) == 9
    assert len({(s.headers["webhook-id"], s.headers["x-idempotency-key"], s.body) for s in seen}) == 1
    for s in seen:
        verify_standard(
            message_id=s.headers["webhook-id"], timestamp=s.headers["webhook-timestamp"],
            signature=s.headers["webhook-signature"], body=s.body, secrets=[SECRET], now=time.time(),
        )  # fmt: skip
    assert ["x-replay-id" in s.headers for s in seen] == [False] * 8 + [True]
    first = gateway.value("SELECT extract(epoch FROM min(started))::bigint FROM webhook_attempts")
    assert abs(int(seen[-1].headers["x-original-timestamp"]) - first) <= 1
    assert seen[-1].headers["x-replay-attempt"] == "1"
    assert [a["run"] for a in gateway.attempts(delivery)] == [1] * 8 + [2]
    assert endpoint


def test_a_timestamp_is_that_of_the_attempt(gateway: Gateway) -> None:
    with Receiver(answer(503)) as receiver:
        one(gateway, receiver.url)
        run_once(gateway)
        first = int(receiver.arrivals[0].seen.headers["webhook-timestamp"])
        eventually(lambda: int(time.time()) > first)
        run_once(gateway)
        assert int(receiver.arrivals[1].seen.headers["webhook-timestamp"]) > first


def test_retry_after_puts_the_next_try_off_and_uses_this_one(gateway: Gateway) -> None:
    with Receiver(answer(429, Retry_After="300")) as receiver:
        _, delivery = one(gateway, receiver.url)
        run_once(gateway)
    found = gateway.delivery(delivery)
    assert (found.attempts, found.error_class) == (1, "throttled")
    assert found.wait == 300


def test_an_endpoint_may_have_decorrelated_waits(gateway: Gateway) -> None:
    with Receiver(answer(503)) as receiver:
        _, delivery = one(gateway, receiver.url, schedule="decorrelated")
        last = 5.0
        for _ in range(3):
            run_once(gateway)
            found = gateway.delivery(delivery)
            assert found.last_wait is not None
            assert 5 <= found.last_wait <= 3 * last
            assert found.wait == pytest.approx(found.last_wait)
            last = found.last_wait


def test_both_secrets_sign_while_one_is_being_replaced_and_then_one(gateway: Gateway) -> None:
    with Receiver() as receiver:
        endpoint = gateway.endpoint(receiver.url)
        with gateway.database.connection() as connection:
            new = endpoints.rotate(connection, endpoint, vault=VAULT, who="test")
        gateway.deliveries(endpoint)
        gateway.run()
        gateway.execute("UPDATE webhook_endpoints SET previous_until = now() - interval '1 second'")
        gateway.deliveries(endpoint)
        gateway.run()
        during, after = [arrival.seen for arrival in receiver.arrivals]
    for secret in (new, SECRET):
        verify_timestamped(
            signature=during.headers["x-webhook-signature"], body=during.body, secrets=[secret], now=time.time()
        )
    assert len(during.headers["webhook-signature"].split(" ")) == 2
    assert len(after.headers["webhook-signature"].split(" ")) == 1
    verify_timestamped(signature=after.headers["x-webhook-signature"], body=after.body, secrets=[new], now=time.time())


@pytest.mark.parametrize("key", ["", base64.b64encode(b"x" * 32).decode()])
def test_without_the_key_nothing_is_lost_and_somebody_is_told(
    gateway: Gateway, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SECRETS_KEY is not there, or is another one."""
    with Receiver() as receiver:
        endpoint, delivery = one(gateway, receiver.url)
        blind = gateway.beside(SECRETS_KEY=key)
        with caplog.at_level("ERROR", "antwoord"):
            assert blind.app.worker.poll_once(1) == 1
        found = gateway.delivery(delivery)
        assert (found.state, found.status, found.attempts, found.tries) == ("waiting", "pending", 0, 0)
        assert found.wait == 60
        assert "delivery_without_secrets" in caplog.text
        assert (gateway.attempts(delivery), gateway.state(endpoint, "failures_in_row")) == ([], "0")
        gateway.all_due()
        gateway.run()
    assert gateway.delivery(delivery).state == "delivered"


def test_an_event_of_our_own_gets_its_body_once(gateway: Gateway) -> None:
    """Two endpoints, tried at the same time: the same bytes for both, with a link to what it is about."""
    conversation, event = uuid4(), uuid4()
    gateway.execute(
        "INSERT INTO webhook_events (id, type, subject, occurred_at, data) VALUES (%(id)s, 'conversation.needs_person',"
        " %(subject)s, now(), '{\"reason\": \"asked\"}')", id=event, subject=str(conversation))  # fmt: skip
    with Receiver(says_in_turn(answer(503), answer(200))) as receiver:
        for _ in range(2):
            endpoint = gateway.endpoint(receiver.url)
            delivery, job = uuid4(), uuid4()
            gateway.execute(
                "INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state)"
                " VALUES (%(id)s, %(event)s, %(endpoint)s, %(job)s, 'waiting')",
                id=delivery, event=event, endpoint=endpoint, job=job)  # fmt: skip
            gateway.execute(
                "INSERT INTO ai_jobs (id, payload, max_attempts) VALUES (%(job)s, jsonb_build_object("
                "'type', 'deliver_event', 'delivery_id', %(id)s::uuid), 8)", id=delivery, job=job)  # fmt: skip
        run_once(gateway)
        run_once(gateway)
        bodies = {arrival.seen.body for arrival in receiver.arrivals}
    assert len(receiver.arrivals) == 3
    (body,) = bodies
    document = json.loads(body)
    assert document["link"] == f"https://antwoord.example.org/api/ops/conversations/{conversation}"
    assert (document["id"], document["source"], document["data"]) == (
        f"evt_{event.hex}",
        "antwoord",
        {"reason": "asked"},
    )
    assert b" " not in body


def test_a_process_that_was_frozen_between_its_admission_and_its_request_sends_nothing(gateway: Gateway) -> None:
    """Meanwhile another may have the job, or its place."""
    with Receiver() as receiver:
        _, delivery = one(gateway, receiver.url)
        clock = iter([0.0, 6.0]).__next__
        courier = Courier(gateway.database, Sender(GUARD), VAULT, "https://antwoord.example.org", clock=clock)
        with gateway.database.connection() as connection:
            (job,) = store.claim(connection, 1, ["deliver_event"], 30)
        verdict = courier.deliver(job, Lease(gateway.database, job, 30), delivery)
        assert isinstance(verdict, Snooze)
        assert (verdict.seconds, receiver.arrivals, gateway.attempts(delivery)) == (0.0, [], [])


def test_a_payload_that_names_no_delivery_is_buried(gateway: Gateway) -> None:
    for payload in ('{"type": "deliver_event"}', f'{{"type": "deliver_event", "delivery_id": "{uuid4()}"}}'):
        gateway.execute("INSERT INTO ai_jobs (payload) VALUES (%(payload)s::jsonb)", payload=payload)
    gateway.run()
    assert gateway.rows("SELECT status, error_class FROM ai_jobs") == [("failed", "bad_payload")] * 2


def test_hanging_endpoints_hold_nobody_up(gateway: Gateway) -> None:
    """Twenty deliveries hang in a process of four slots, and all the others arrive meanwhile."""
    with Receiver(lambda seen: None) as hanging, Receiver() as well:
        for _ in range(5):
            gateway.deliveries(gateway.endpoint(hanging.url, timeout_seconds=50), 4)
        others = [gateway.endpoint(well.url, concurrency=16) for _ in range(10)]
        for endpoint in others:
            gateway.deliveries(endpoint, 5)
        with ThreadPoolExecutor(1) as pool:
            draining = pool.submit(gateway.app.worker.drain, 4, 30)
            eventually(lambda: len(well.arrivals) == 50, what="all others")
            eventually(lambda: hanging.waiting == 20, what="all that hang are under way")
            assert not draining.done()
            gateway.deliveries(others[0])  # one that comes later
            eventually(lambda: len(well.arrivals) == 51)
            gateway.app.stop()
            hanging.release.set()
            draining.result(30)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("job_")]
    assert gateway.value("SELECT count(*) FROM webhook_deliveries WHERE state = 'waiting'") == 20


def test_more_hang_than_there_are_slots_to_lend(gateway: Gateway) -> None:
    """Slots and loans are used up: the next ones wait, and nothing is lost or begun twice."""
    with Receiver(lambda seen: None) as hanging:
        for _ in range(10):
            gateway.deliveries(gateway.endpoint(hanging.url, timeout_seconds=50), 4)
        with ThreadPoolExecutor(1) as pool:
            draining = pool.submit(gateway.app.worker.drain, 2, 30)
            eventually(lambda: hanging.waiting == 34, what="two slots and 32 that are lent")
            assert gateway.value("SELECT count(*) FROM ai_jobs WHERE status = 'processing'") == 34
            gateway.app.stop()
            hanging.release.set()
            draining.result(30)
    assert gateway.value("SELECT max(tries) FROM webhook_deliveries") == 1


def test_a_planned_stop_gives_back_what_hangs(gateway: Gateway) -> None:
    with Receiver(lambda seen: None) as hanging:
        _, delivery = one(gateway, hanging.url, timeout_seconds=50)
        with ThreadPoolExecutor(1) as pool:
            draining = pool.submit(gateway.app.worker.drain, 2, 30)
            eventually(lambda: hanging.waiting == 1)
            gateway.app.stop()
            eventually(lambda: gateway.delivery(delivery).status == "pending", what="given back after six seconds")
            hanging.release.set()
            draining.result(30)
        found = gateway.delivery(delivery)
        assert (found.state, found.attempts) == ("waiting", 0)
        assert gateway.attempts(delivery)[0]["outcome"] is None
    with Receiver() as back:
        gateway.execute("UPDATE webhook_endpoints SET url = %(url)s", url=back.url)
        other = gateway.beside()
        gateway.all_due()
        other.run()
    assert [a["outcome"] for a in gateway.attempts(delivery)] == ["interrupted", "delivered"]
