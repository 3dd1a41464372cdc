"""Dead deliveries replayed: as they are, or to another endpoint, by filter and at a rate; and one of them sent again."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import pytest

from cli import __main__ as command
from cli.output import Status
from shared.db.pool import Database
from shared.errors import UserError
from shared.queue import closing, dead_letters, replay, replays, replays_drive
from shared.queue.dead_letters import Filter
from shared.queue.replays import Replay
from shared.queue.replays_dry_run import count_replay
from shared.webhooks import endpoints, events
from shared.webhooks.resend import Resent, resend
from tests.fakes.deliveries import add_delivery, add_endpoint, add_event, forget_deliveries
from tests.fakes.desk import lines, refused
from tests.fakes.faulty_server import answer
from tests.fakes.gateway import Gateway, Receiver
from tests.fakes.world import World

WHO, WHY = "anna", "billing has moved"
JOBS = """
    SELECT id, status, run, closed_by, closed_reason FROM ai_jobs WHERE type = 'deliver_event' ORDER BY seq
"""
NEW = """
    SELECT d.id, d.event_id, d.endpoint_id, d.state, d.replay_of, d.replay_id, j.id, j.status, j.max_attempts, j.replay_id
    FROM webhook_deliveries d JOIN ai_jobs j ON j.payload ->> 'delivery_id' = d.id::text
    WHERE d.replay_of IS NOT NULL ORDER BY j.seq
"""
SLOTS = """
    SELECT extract(epoch FROM j.next_run_at - r.created_at)::float8 FROM ai_jobs j JOIN replays r ON r.id = j.replay_id
    ORDER BY j.seq
"""
DISABLE = "UPDATE webhook_endpoints SET disabled_at = now(), disabled_reason = 'gone' WHERE name = %(name)s"


@pytest.fixture
def world(database: Database) -> World:
    made = World(database)
    forget_deliveries(made)
    made.execute("DELETE FROM audit_log")
    return made


def plan(world: World, *, rate: float = 1000.0, to: str | None = None, **filters: Any) -> Replay:
    with world.database.connection() as connection:
        return replays.start(connection, Filter(**filters), who=WHO, reason=WHY, rate=rate, to=to)


def advance(world: World, found: Replay) -> Replay:
    return replays_drive.advance(world.database, found.id, seconds=60)


def send(world: World, delivery: UUID, *, to: str | None = None, reason: str = WHY) -> Resent | None:
    with world.database.connection() as connection:
        return resend(connection, delivery, who=WHO, reason=reason, to=to)


# As they are


def test_dead_deliveries_run_again_as_they_are_one_many_or_those_that_a_filter_means(world: World) -> None:
    billing, archive = add_endpoint(world, "billing"), add_endpoint(world, "archive")
    (_, first), (_, second) = add_delivery(world, billing), add_delivery(world, billing, error_class="timeout")
    _, third = add_delivery(world, archive)
    assert first
    with world.database.connection() as connection:
        assert replay.restart(connection, [first], who=WHO) == {first: "restarted"}
        assert [row.id for row in dead_letters.list_dead(connection, Filter(endpoint="billing"))] == [second]
        assert dead_letters.list_dead(connection, Filter(endpoint="nowhere")) == []
    found = advance(world, plan(world, endpoint="archive"))
    assert (found.state, found.total, found.restarted) == ("done", 1, 1)
    assert world.rows(JOBS) == [
        (first, "pending", 2, None, None), (second, "failed", 1, None, None), (third, "pending", 2, None, None),
    ]  # fmt: skip
    found = advance(world, plan(world, job_type="deliver_event"))
    assert (found.total, found.restarted, found.to) == (1, 1, None)
    assert world.rows("SELECT DISTINCT status, run, attempts FROM ai_jobs") == [("pending", 2, 0)]
    assert world.value("SELECT count(*)::int FROM webhook_deliveries") == 3


# To another endpoint


def test_each_dead_delivery_goes_to_the_other_endpoint_as_one_of_its_own_and_is_closed(world: World) -> None:
    billing, archive = add_endpoint(world, "billing"), add_endpoint(world, "archive")
    events = [add_event(world) for _ in range(3)]
    dead = [add_delivery(world, billing, event=event) for event in events]
    found = advance(world, plan(world, rate=4.0, to="archive", endpoint="billing"))
    assert (found.state, found.restarted, found.to, found.not_deliveries) == ("done", 3, "archive", 0)
    closed = f"replayed to archive: {WHY}"
    assert world.rows(JOBS)[:3] == [(job, "failed", 1, WHO, closed) for _, job in dead]
    new = world.rows(NEW)
    assert [row[1:6] for row in new] == [
        (event, archive, "waiting", delivery, found.id) for event, (delivery, _) in zip(events, dead, strict=True)
    ]
    assert {row[7:] for row in new} == {("pending", 8, found.id)}
    assert world.rows("SELECT id, job_id FROM webhook_deliveries WHERE replay_of IS NOT NULL ORDER BY id") == sorted(
        (row[0], row[6]) for row in new
    )
    slots = [row[0] for row in world.rows(SLOTS)]
    assert [round(later - slots[0], 3) for later in slots] == [0.0, 0.25, 0.5], "each is due at its slot"
    assert {row[0] for row in world.rows("SELECT state FROM webhook_deliveries WHERE replay_of IS NULL")} == {
        "replayed"
    }
    told = {line.what: line.details for line in lines(world)}
    assert told["start_replay"]["to"] == "archive"
    assert told["replay_jobs"]["jobs"] == [str(job) for _, job in dead]
    assert told["finish_replay"]["restarted"] == 3


def test_what_is_no_delivery_is_left_out_and_counted_and_the_numbers_add_up(world: World) -> None:
    billing, _ = add_endpoint(world, "billing"), add_endpoint(world, "archive")
    world.execute(
        "INSERT INTO ai_jobs (payload, status) SELECT '{\"type\": \"suggest\"}', 'failed' FROM generate_series(1, 2)"
    )
    add_delivery(world, billing)
    world.execute(
        'INSERT INTO ai_jobs (payload, status) VALUES (\'{"type": "deliver_event", "delivery_id": "x"}\', \'failed\')'
    )
    with world.database.connection() as connection:
        asked = count_replay(connection, Filter(), rate=2.0, to="archive")
    assert (asked.total, asked.restarted, asked.not_deliveries, asked.to) == (4, 2, 2, "archive")
    found = advance(world, plan(world, to="archive"))
    assert (found.state, found.restarted, found.not_deliveries, found.skipped) == ("done", 1, 2, 1)
    assert found.handled == found.total == 4
    assert world.value("SELECT count(*)::int FROM dead_letters") == 3, "they are still there to be replayed"


def test_hundreds_go_once_each_whoever_drives_and_a_paused_type_keeps_them(world: World) -> None:
    billing, archive = add_endpoint(world, "billing"), add_endpoint(world, "archive")
    event = add_event(world)
    for _ in range(120):
        add_delivery(world, billing, event=event)
    world.execute("UPDATE job_types SET paused = true WHERE type = 'deliver_event'")
    found = advance(world, plan(world, to="archive"))
    assert (found.restarted, found.left_paused, found.paused_types) == (0, 120, ["deliver_event"])
    world.execute("UPDATE job_types SET paused = false")
    found = plan(world, to="archive")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: advance(world, found), range(3)))
    assert advance(world, found).restarted == 120
    assert world.rows(
        "SELECT endpoint_id, count(*)::int, count(DISTINCT replay_of)::int FROM webhook_deliveries WHERE replay_of IS NOT NULL"
        " GROUP BY 1"
    ) == [(archive, 120, 120)]


def test_an_endpoint_that_is_not_there_or_disabled_takes_nothing(world: World) -> None:
    add_delivery(world, add_endpoint(world, "billing"))
    add_endpoint(world, "archive")
    assert refused(lambda: plan(world, to="nowhere")) == "no_endpoint"
    found = plan(world, to="archive")
    world.execute(DISABLE, name="archive")
    assert refused(lambda: plan(world, to="archive")) == "endpoint_is_disabled"
    stopped = advance(world, found)
    assert (stopped.state, stopped.stopped_by, stopped.restarted) == ("stopped", "antwoord", 0)
    assert world.value("SELECT count(*)::int FROM dead_letters") == 1
    world.execute("UPDATE webhook_endpoints SET disabled_at = NULL, disabled_reason = NULL")
    with world.database.connection() as connection:
        replays.resume(connection, found.id, who=WHO)
    assert advance(world, found).restarted == 1


def test_the_command_says_where_they_would_go_and_sends_them(
    world: World, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    add_delivery(world, add_endpoint(world, "billing"))
    world.execute("INSERT INTO ai_jobs (payload, status) VALUES ('{\"type\": \"suggest\"}', 'failed')")
    add_endpoint(world, "archive")
    to_archive = ["dlq", "replay", "--rate", "100", "--to", "archive"]
    assert command.main([*to_archive, "--dry-run"]) == Status.DONE
    said = capsys.readouterr().out
    assert "1 would be sent to archive in 0 s" in said
    assert "1 left out: no deliveries, so they cannot go to archive" in said
    assert world.value("SELECT count(*)::int FROM replays") == 0
    assert command.main([*to_archive, "--endpoint", "billing", "--reason", WHY, "--json"]) == Status.DONE
    found = json.loads(capsys.readouterr().out)["replay"]
    assert (found["restarted"], found["to"], found["filter"]) == (1, "archive", {"endpoint": "billing"})
    assert command.main(["dlq", "list", "--endpoint", "billing"]) == Status.NOTHING
    assert command.main(["dlq", "replay", "--rate", "1", "--to", "nowhere", "--dry-run"]) == Status.USAGE
    assert "There is no endpoint nowhere: see `endpoints list`." in capsys.readouterr().err


# One of them


@pytest.mark.parametrize("to", [None, "billing"])
def test_a_dead_one_to_its_own_endpoint_runs_again_as_it_is(world: World, to: str | None) -> None:
    delivery, job = add_delivery(world, add_endpoint(world, "billing"))
    assert job
    assert send(world, delivery, to=to) == Resent(delivery, job, "billing")
    assert world.rows(JOBS) == [(job, "pending", 2, None, None)]
    assert refused(lambda: send(world, delivery)) == "delivery_waiting", "not twice"
    (line,) = lines(world)
    assert (line.who, line.what, line.target_id) == (WHO, "resend_delivery", str(delivery))
    assert line.details == {"to": "billing", "sent_as": str(delivery), "jobs": [str(job)], "reason": WHY}


def test_a_dead_one_to_another_endpoint_is_closed_and_a_new_one_goes(world: World) -> None:
    delivery, job = add_delivery(world, add_endpoint(world, "billing"))
    archive = add_endpoint(world, "archive")
    sent = send(world, delivery, to="archive")
    assert sent
    assert world.rows(JOBS)[0] == (job, "failed", 1, WHO, f"replayed to archive: {WHY}")
    ((new, _, endpoint, state, of, by_replay, new_job, *_),) = world.rows(NEW)
    assert (new, new_job, endpoint, state, of, by_replay) == (
        sent.delivery_id, sent.job_id, archive, "waiting", delivery, None,
    )  # fmt: skip
    assert refused(lambda: send(world, delivery, to="archive")) == "resend_waiting"
    # Its dead letter is closed, so to its own endpoint it goes as a new one too.
    again = send(world, delivery)
    assert again
    assert again.delivery_id not in (delivery, sent.delivery_id)


@pytest.mark.parametrize("to", [None, "archive"])
def test_a_delivered_one_goes_again_as_a_new_one_and_keeps_what_it_was(world: World, to: str | None) -> None:
    event = add_event(world)
    delivery, job = add_delivery(world, add_endpoint(world, "billing"), "delivered", event=event)
    add_endpoint(world, "archive")
    world.force("DELETE FROM ai_jobs WHERE id = %(id)s", id=job)  # finished jobs are forgotten
    sent = send(world, delivery, to=to)
    assert sent
    assert sent.to == (to or "billing")
    ((new, of_event, _, state, of, *_),) = world.rows(NEW)
    assert (new, of_event, state, of) == (sent.delivery_id, event, "waiting", delivery)
    assert world.value("SELECT state FROM webhook_deliveries WHERE id = %(id)s", id=delivery) == "delivered"
    assert refused(lambda: send(world, delivery, to=to)) == "resend_waiting"


@pytest.mark.parametrize("forgotten", [False, True], ids=["with its job", "its job is forgotten"])
def test_those_who_send_the_same_one_again_at_once_send_it_once(world: World, forgotten: bool) -> None:
    delivery, job = add_delivery(world, add_endpoint(world, "billing"), "delivered")
    if forgotten:
        world.execute("DELETE FROM ai_jobs WHERE id = %(id)s", id=job)
    together = Barrier(4)

    def once(_: int) -> str:
        together.wait(30)
        try:
            send(world, delivery)
        except UserError as wrong:
            return str(wrong.name)
        return "sent"

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(once, range(4))) == ["resend_waiting"] * 3 + ["sent"]


def test_what_is_on_its_way_or_held_is_not_sent_again(world: World) -> None:
    billing = add_endpoint(world, "billing")
    for state in ("waiting", "held", "rejected"):
        delivery, _ = add_delivery(world, billing, state)
        assert refused(partial(send, world, delivery)) == f"delivery_{state}"
    dead, _ = add_delivery(world, billing)
    assert refused(lambda: send(world, dead, reason=" ")) == "no_reason"
    assert refused(lambda: send(world, dead, to="nowhere")) == "no_endpoint"
    world.execute(DISABLE, name="billing")
    assert refused(lambda: send(world, dead)) == "endpoint_is_disabled"
    assert send(world, uuid4()) is None
    assert world.rows(NEW) == []
    assert lines(world) == []


def test_a_cancelled_delivery_is_closed_and_can_be_sent_again(world: World) -> None:
    delivery, job = add_delivery(world, add_endpoint(world, "billing"), "waiting")
    assert job
    with world.database.connection() as connection:
        assert closing.cancel(connection, [job], who=WHO) == {job: "cancelled"}
    assert world.rows("SELECT state, died_at, waits_until FROM webhook_deliveries") == [("closed", None, None)]
    sent = send(world, delivery)
    assert sent
    assert sent.delivery_id != delivery


def test_what_was_replayed_elsewhere_or_closed_is_no_open_dead_letter_any_more(world: World) -> None:
    billing, _ = add_endpoint(world, "billing"), add_endpoint(world, "archive")
    (elsewhere, _), (_, closed), (dead, _) = (add_delivery(world, billing) for _ in range(3))
    assert closed
    assert send(world, elsewhere, to="archive")
    with world.database.connection() as connection:
        closing.close(connection, [closed], who=WHO, reason="they have it by post")
        found = endpoints.find_endpoint(connection, "billing")
        shown = events.list_events(connection, limit=10, show="dead")
        everything = events.list_events(connection, limit=10)
    assert found
    assert found.dead == 1
    assert [event.dead for event in shown] == [1]
    assert [(event.dead, event.closed, event.replayed) for event in everything] == [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
    again = send(world, elsewhere)
    assert again
    assert again.to == "billing", "it may go here too, as a delivery of its own"
    assert world.value("SELECT state FROM webhook_deliveries WHERE id = %(id)s", id=dead) == "dead"


# What arrives


def test_dead_ones_arrive_where_they_are_sent_as_the_same_events_and_say_which_replay_they_are(
    database: Database,
) -> None:
    gateway = Gateway(database)
    with Receiver(answer(400)) as billing, Receiver() as archive:
        endpoint, other = gateway.endpoint(billing.url), gateway.endpoint(archive.url)
        dead = gateway.deliveries(endpoint, 3)
        gateway.run()
        assert {gateway.delivery(one).state for one in dead} == {"dead"}
        found = advance(
            gateway, plan(gateway, to=endpoint_name(gateway, other), endpoint=endpoint_name(gateway, endpoint))
        )
        gateway.all_due()
        gateway.run()
        refused_at, came = [one.seen for one in billing.arrivals], [one.seen for one in archive.arrivals]
    assert (found.restarted, len(refused_at), len(came)) == (3, 3, 3)
    assert same_events(refused_at) == same_events(came)
    assert {one.headers["x-replay-id"] for one in came} == {str(found.id)}
    assert not {one.headers["x-idempotency-key"] for one in came} & {str(one) for one in dead}
    assert gateway.rows("SELECT state, count(*)::int FROM webhook_deliveries GROUP BY 1 ORDER BY 1") == [
        ("delivered", 3), ("replayed", 3),
    ]  # fmt: skip
    assert gateway.value("SELECT count(*)::int FROM dead_letters") == 0


def test_a_dead_one_is_dead_until_it_is_tried_again_and_one_that_arrived_goes_again_as_the_same_event(
    database: Database,
) -> None:
    gateway = Gateway(database)
    with Receiver(answer(400)) as receiver:
        (delivery,) = gateway.deliveries(gateway.endpoint(receiver.url))
        gateway.run()
        assert send(gateway, delivery)
        assert (gateway.delivery(delivery).state, gateway.delivery(delivery).status) == ("dead", "pending")
        receiver.says = answer(200)
        gateway.run()
        assert (gateway.delivery(delivery).state, gateway.delivery(delivery).status) == ("delivered", "done")
        again = send(gateway, delivery)
        gateway.run()
        seen = [arrival.seen for arrival in receiver.arrivals]
    assert again
    assert gateway.delivery(again.delivery_id).state == "delivered"
    assert len(same_events(seen)) == 1
    assert [str(delivery), str(delivery), str(again.delivery_id)] == [one.headers["x-idempotency-key"] for one in seen]
    assert ["x-replay-id" in one.headers for one in seen] == [False, True, True]
    assert len({one.headers["x-original-timestamp"] for one in seen[1:]}) == 1


def test_what_is_sent_again_and_again_says_when_it_first_went_out(database: Database) -> None:
    gateway = Gateway(database)
    with Receiver() as receiver:
        (delivery,) = gateway.deliveries(gateway.endpoint(receiver.url))
        for _ in range(3):
            gateway.run()
            gateway.execute("UPDATE webhook_attempts SET started = started - interval '1 hour'")
            sent = send(gateway, delivery)
            assert sent
            delivery = sent.delivery_id
        gateway.run()
        seen = [arrival.seen for arrival in receiver.arrivals]
    first = gateway.value("SELECT extract(epoch FROM min(started))::bigint FROM webhook_attempts")
    assert len(seen) == 4
    # An hour was taken off thrice, of which the first repetition has seen one.
    assert [round((int(one.headers["x-original-timestamp"]) - first) / 3600) for one in seen[1:]] == [2, 1, 0]


def test_a_dead_letter_of_what_has_arrived_is_sent_again_as_a_new_one(world: World) -> None:
    """Its worker stopped behind the success of its last try: if its job ran again, nothing would be sent."""
    delivery, job = add_delivery(world, add_endpoint(world, "billing"), "delivered")
    world.force("UPDATE ai_jobs SET status = 'failed', error_class = 'poison' WHERE id = %(id)s", id=job)
    sent = send(world, delivery)
    assert sent
    assert sent.delivery_id != delivery


def endpoint_name(gateway: Gateway, endpoint: UUID) -> str:
    return str(gateway.value("SELECT name FROM webhook_endpoints WHERE id = %(id)s", id=endpoint))


def same_events(seen: list[Any]) -> set[tuple[str, bytes]]:
    return {(one.headers["webhook-id"], one.body) for one in seen}
