"""Events as people see them: listed, shown with their way, released or rejected when held, and forgotten when they are old."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from shared import audit
from shared.db.pool import Database
from shared.errors import UserError
from shared.idempotency import ReceiveStore
from shared.queue.retention import BATCHES
from shared.webhooks import events
from shared.webhooks.events import EventRow, Show
from shared.webhooks.retention import BATCH, EventRetention
from tests.fakes.deliveries import add_delivery, add_endpoint, add_event
from tests.fakes.senders import Sending, event_body

WHO = "anna"
OLDER = "UPDATE {table} SET {column} = {column} - interval '{age}'"
ADD_ATTEMPT = """
    INSERT INTO webhook_attempts (delivery_id, try, endpoint_id, run, started, gives_up_at, ended, duration_ms, outcome,
        http_status, error_class, error, answer)
    SELECT id, %(number)s, endpoint_id, 1, now(), now(), now(), 12.5, 'failed', 500, 'unavailable', 'HTTP 500', 'oops'
    FROM webhook_deliveries WHERE id = %(delivery)s
"""


@pytest.fixture
def world(database: Database) -> Sending:
    made = Sending(database)
    made.execute("DELETE FROM audit_log")
    return made


def held(world: Sending, *endpoints: str) -> UUID:
    """An event that waits for a person."""
    world.add_source(normaliser="json", paths={"text": "/answer", "sources": "/sources"})
    world.add_endpoints(endpoints)
    answer = world.send(body=event_body(answer="Je hebt 240 uur.", sources=["200 uur"]))[1]
    return UUID(answer["id"].removeprefix("evt_"))


def listed(world: Sending, **wanted: object) -> list[EventRow]:
    with world.database.connection() as connection:
        return events.list_events(connection, **{"limit": 50, **wanted})  # type: ignore[arg-type]


def jobs(world: Sending) -> list[tuple[str, int]]:
    return [
        (str(row[0]), int(row[1])) for row in world.rows("SELECT payload ->> 'delivery_id', max_attempts FROM ai_jobs")
    ]


def test_a_held_event_goes_nowhere_until_it_is_released(world: Sending) -> None:
    event = held(world, "one", "two")
    assert (jobs(world), world.wake.delays) == ([], [])
    (row,) = listed(world, show="held")
    assert (row.id, row.held_reason, row.is_held, row.held) == (event, "number", True, 2)
    with world.database.connection() as connection:
        with pytest.raises(UserError) as error:
            events.release_event(connection, event, who=WHO, reason=" ")
        assert error.value.name == "no_reason"
        assert events.release_event(connection, event, who=WHO, reason="it is right") == 2
        for again in (events.release_event, events.reject_event):
            with pytest.raises(UserError) as error:
                again(connection, event, who=WHO, reason="x")
            assert error.value.name == "event_not_held"
        lines = audit.list_entries(connection, limit=5)
    assert [(line.what, line.target_id, line.details) for line in lines[:1]] == [
        ("release_event", str(event), {"reason": "it is right"})
    ]
    deliveries = world.rows("SELECT id::text, job_id FROM webhook_deliveries WHERE state = 'waiting' ORDER BY 1")
    assert sorted(jobs(world)) == [(delivery, 8) for delivery, _ in deliveries]
    assert listed(world, show="held") == []
    (row,) = listed(world)
    assert (row.decision, row.is_held, row.waiting, row.held) == ("released", False, 2, 0)


def test_a_rejected_event_goes_nowhere_for_good(world: Sending) -> None:
    event = held(world, "one")
    with world.database.connection() as connection:
        assert events.reject_event(connection, event, who=WHO, reason="nonsense") == 1
        with pytest.raises(UserError):
            events.release_event(connection, event, who=WHO, reason="x")
        with pytest.raises(UserError) as error:
            events.reject_event(connection, uuid4(), who=WHO, reason="x")
    assert error.value.name == "no_event"
    assert jobs(world) == []
    assert [(row.decision, row.rejected) for row in listed(world)] == [("rejected", 1)]


def test_events_are_listed_by_what_is_asked_for(world: Sending) -> None:
    world.add_source()
    world.add_source("azure")
    endpoint = add_endpoint(world, "one", "job.failed")
    for name in ("openai", "azure", "openai"):
        world.send(name)
    world.send("azure", event_body(type="batch.failed"))
    own = add_event(world, "job.failed")
    add_delivery(world, endpoint, "dead", event=own)
    add_delivery(world, endpoint, "delivered", event=own)
    rows = listed(world)
    assert [row.source for row in rows] == [None, "azure", "openai", "azure", "openai"]
    assert [row.id for row in listed(world, limit=2, before_seq=rows[1].seq)] == [rows[2].id, rows[3].id]
    assert [row.id for row in listed(world, source="antwoord")] == [own]
    assert len(listed(world, source="azure")) == 2
    assert listed(world, source="nobody\0") == []
    assert [row.type for row in listed(world, event_type="batch.failed")] == ["batch.failed"]
    shows: tuple[Show, ...] = ("held", "dead", "waiting")
    assert [len(listed(world, show=show)) for show in shows] == [0, 1, 0]
    assert (rows[0].dead, rows[0].delivered) == (1, 1)


def test_an_event_is_shown_with_its_whole_way(world: Sending) -> None:
    endpoint = add_endpoint(world, "one")
    event = add_event(world)
    dead, job = add_delivery(world, endpoint, "dead", event=event)
    for number in (1, 2):
        world.execute(ADD_ATTEMPT, delivery=dead, number=number)
    waiting, _ = add_delivery(world, endpoint, "waiting", event=event)
    with world.database.connection() as connection:
        found = events.show_event(connection, event)
        assert events.show_event(connection, uuid4()) is None
    assert found
    assert (found.event.public_id, found.content.body, found.content.data) == (f"evt_{event.hex}", '{"n":1}', {"n": 1})
    by_id = {delivery.id: delivery for delivery in found.deliveries}
    assert (by_id[dead].state, by_id[dead].job_id, by_id[dead].job_status) == ("dead", job, "failed")
    assert by_id[dead].next_try_at is None
    assert by_id[waiting].next_try_at is not None
    assert [(tried.number, tried.http_status, tried.answer) for tried in found.attempts[dead]] == [
        (1, 500, "oops"),
        (2, 500, "oops"),
    ]
    assert found.attempts[waiting] == []


def older(world: Sending, age: str) -> None:
    world.execute(OLDER.format(table="webhook_events", column="received_at", age=age))
    world.execute(OLDER.format(table="webhook_receipts", column="completed_at", age=age))
    world.execute(OLDER.format(table="webhook_deliveries", column="delivered_at", age=age))


def forget(world: Sending, days: int = 30) -> int:
    return EventRetention(days).forget(world.database)


def test_receipts_are_kept_for_72_hours(world: Sending) -> None:
    world.add_source()
    body = event_body()
    world.send(body=body, identity="wh_1")
    older(world, "71 hours 59 minutes")
    assert forget(world) == 0
    assert world.send(body=body, identity="wh_1")[1]["status"] == "already_processed"
    older(world, "2 minutes")
    assert forget(world) == 1
    assert (world.count("webhook_receipts"), world.count("webhook_events")) == (0, 1)
    assert world.send(body=body, identity="wh_1")[1]["status"] == "already_processed", "its event is still there"


def test_what_was_taken_and_left_is_forgotten_too(world: Sending) -> None:
    world.add_source()
    world.execute(
        "INSERT INTO webhook_receipts (source_id, key, state, body_sha256, owner, locked_until)"
        " SELECT id, n::text, 'processing', '\\x00', gen_random_uuid(), now() - make_interval(hours => n)"
        " FROM webhook_sources, unnest(ARRAY[0, 71, 73]) n"
    )
    assert ReceiveStore().prune(world.database) == 1
    assert sorted(row[0] for row in world.rows("SELECT key FROM webhook_receipts")) == ["0", "71"]


def test_events_that_arrived_are_forgotten_and_those_that_did_not_never(world: Sending) -> None:
    endpoint = add_endpoint(world, "one")
    kept = {state: add_event(world) for state in ("waiting", "dead", "held")}
    gone = {state: add_event(world) for state in ("delivered", "rejected", "none")}
    for state, event in (kept | gone).items():
        if state != "none":
            delivery, _ = add_delivery(world, endpoint, "delivered" if state in kept else state, event=event)
            world.execute(ADD_ATTEMPT, delivery=delivery, number=1)
        if state in kept:
            add_delivery(world, endpoint, state, event=event)
    undecided, lately = add_event(world), add_event(world)
    world.execute("UPDATE webhook_events SET held_reason = 'number' WHERE id = %(id)s", id=undecided)
    older(world, "31 days")
    young = add_event(world)
    add_delivery(world, endpoint, "delivered", event=lately)
    assert forget(world) == 3
    found = {row[0] for row in world.rows("SELECT id FROM webhook_events")}
    assert found == {*kept.values(), undecided, young, lately}
    assert world.count("webhook_attempts") == 3


def test_what_was_closed_or_replayed_elsewhere_is_forgotten_as_long_after_that(world: Sending) -> None:
    endpoint, event = add_endpoint(world, "one"), add_event(world)
    for state in ("closed", "replayed"):
        delivery, job = add_delivery(world, endpoint, "dead", event=event)
        world.execute("UPDATE webhook_deliveries SET state = %(state)s WHERE id = %(id)s", id=delivery, state=state)
        world.force("UPDATE ai_jobs SET closed_at = now(), closed_by = 'anna' WHERE id = %(id)s", id=job)
    older(world, "31 days")
    assert forget(world) == 0
    world.force(OLDER.format(table="ai_jobs", column="closed_at", age="31 days"))
    assert forget(world) == 1


def test_forgetting_goes_on_where_it_was(world: Sending) -> None:
    most = BATCH * BATCHES
    world.execute(
        "INSERT INTO webhook_events (id, type, data, received_at)"
        " SELECT gen_random_uuid(), 'a', '{}', now() - interval '31 days' FROM generate_series(1, %(count)s)",
        count=most + 7,
    )
    retention = EventRetention(30)
    assert [retention.forget(world.database) for _ in range(3)] == [most, 7, 0]


def test_an_event_that_is_sent_again_at_this_moment_is_left_alone(world: Sending) -> None:
    endpoint, event = add_endpoint(world, "one"), add_event(world)
    older(world, "31 days")
    with world.database.transaction() as other:
        other.execute(
            "INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state)"
            " VALUES (gen_random_uuid(), %(event)s, %(endpoint)s, gen_random_uuid(), 'waiting')",
            {"event": event, "endpoint": endpoint},
        )
        assert forget(world) == 0
    assert forget(world) == 0
    assert world.count("webhook_events") == 1
