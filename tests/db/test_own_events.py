"""Events of our own: a flagged conversation and a dead job are told once, to those who ask, with ids and a reason alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from shared.conversation import attention, inbound
from shared.conversation.overdue import flag_overdue
from shared.db.pool import Database
from shared.errors import Failure, FailureKind, HeldError, PermanentError
from shared.queue import closing, replay, store
from shared.queue.job import Job, Lease, Snooze, Verdict
from tests.fakes.deliveries import add_delivery, add_endpoint, add_event, forget_deliveries
from tests.fakes.desk import ADDRESS, conversation, dies, flagged, fresh, raising, take_over
from tests.fakes.queue_bench import TYPE, QueueBench
from tests.fakes.replies import callback
from tests.fakes.world import World, run_all

TOLD = """
    SELECT e.type, e.subject, e.data, e.source_id, e.body,
        (SELECT count(*)::int FROM webhook_deliveries d WHERE d.event_id = e.id)
    FROM webhook_events e ORDER BY e.seq
"""
TOLD_BY_ENDPOINT = """
    SELECT data ->> 'endpoint_id', data ->> 'reason', count(*)::int FROM webhook_events
    WHERE type = 'job.failed' AND source_id IS NULL GROUP BY 1, 2
"""
JOBS = """
    SELECT d.id::text, j.payload ->> 'delivery_id', j.status, j.max_attempts
    FROM webhook_deliveries d JOIN ai_jobs j ON j.id = d.job_id
"""
CALLS = (
    "SELECT funcname, calls::int FROM pg_stat_xact_user_functions WHERE funcname LIKE 'tell%' OR funcname LIKE '%event'"
)
NEW_CONVERSATION = "INSERT INTO conversations (address) VALUES (%(address)s) RETURNING id"
PAUSE = "UPDATE job_types SET paused = true WHERE type = 'deliver_event'"
GO_ON = "UPDATE job_types SET paused = false WHERE type = 'deliver_event'"
QUESTION = "hoeveel verlof heb ik, en waarom is Jan ziek?"
SECRETS = (QUESTION, "Jan", ADDRESS, "https://", "refused")


@pytest.fixture
def world(database: Database) -> World:
    made = fresh(database)
    forget_deliveries(made)
    add_endpoint(made, "pager", "conversation.needs_person")
    add_endpoint(made, "archive")  # asks for all that comes from sources, and for nothing of ours
    made.execute(PAUSE)  # told, not delivered
    return made


@pytest.fixture
def bench(database: Database) -> Iterator[QueueBench]:
    world = World(database)
    forget_deliveries(world)
    add_endpoint(world, "pager", "job.*")
    yield QueueBench(database)
    forget_deliveries(world)


def told(world: World) -> list[tuple[Any, ...]]:
    return world.rows(TOLD)


# A conversation needs a person


def asks_at_once(world: World) -> None:
    world.says(ADDRESS, "HELP", OptOutType="HELP")  # Twilio has answered: flagged where the message is stored


def asks_at_once_later(world: World) -> None:
    world.says(ADDRESS, "hoi")
    world.run()
    asks_at_once(world)


def asks_by_a_word(world: World) -> None:
    world.says(ADDRESS, "medewerker")
    world.run()


def its_answer_dies(world: World) -> None:
    dies(world, QUESTION)


def its_answer_is_held(world: World) -> None:
    world.line.before = raising(TimeoutError(), times=1)
    world.says(ADDRESS, QUESTION)
    world.settle_doubts(rounds=30)


def its_answer_is_not_delivered(world: World) -> None:
    world.says(ADDRESS, QUESTION)
    run_all(world)
    callback(world, world.line.accepted[-1], "undelivered", ErrorCode="63016")


def the_documents_do_not_say(world: World) -> None:
    world.model.says = lambda _: "NO_ANSWER"
    world.says(ADDRESS, QUESTION)
    world.run()


def a_person_has_it(world: World) -> None:
    world.says(ADDRESS, "hoi")
    world.run()
    take_over(world)
    world.says(ADDRESS, QUESTION)
    run_all(world)


def it_is_overdue(world: World) -> None:
    world.says(ADDRESS, QUESTION)
    world.execute("UPDATE messages SET created_at = now() - interval '25 hours'")
    with world.database.connection() as connection:
        flag_overdue(connection)
        flag_overdue(connection)


def its_job_is_cancelled(world: World) -> None:
    world.says(ADDRESS, QUESTION)
    with world.database.connection() as connection:
        closing.cancel(connection, [world.value("SELECT id FROM ai_jobs")], who="anna")


@pytest.mark.parametrize(
    "flags",
    [asks_at_once, asks_at_once_later, asks_by_a_word, its_answer_dies, its_answer_is_held, its_answer_is_not_delivered,
     the_documents_do_not_say, a_person_has_it, it_is_overdue, its_job_is_cancelled],
    ids=lambda flags: flags.__name__,
)  # fmt: skip
def test_each_way_of_asking_for_a_person_is_told_once_without_a_text(
    world: World, flags: Callable[[World], None]
) -> None:
    flags(world)
    ((kind, subject, data, source, body, deliveries),) = told(world)
    talk = conversation(world)
    assert (kind, subject, source, body, deliveries) == ("conversation.needs_person", str(talk), None, None, 1)
    assert data == {"conversation_id": str(talk), "reason": flagged(world)}
    assert not any(secret in str(data) for secret in SECRETS)
    ((delivery, of_job, status, tries),) = world.rows(JOBS)
    assert (of_job, status, tries) == (delivery, "pending", 8)


def flag(connection: Any, talk: UUID, reason: str = "asked") -> None:
    write = attention.flag(talk, reason)
    connection.execute(write.sql, write.parameters)


def test_who_is_asked_for_already_is_not_asked_for_again_until_somebody_has_looked(world: World) -> None:
    talk = world.value(NEW_CONVERSATION, address=ADDRESS)
    with world.database.connection() as connection:
        flag(connection, talk)
        flag(connection, talk, "held")
        assert len(told(world)) == 1
        connection.execute("UPDATE conversations SET needs_person_since = NULL, needs_person_reason = NULL")
        assert len(told(world)) == 1
        flag(connection, talk)
    assert len(told(world)) == 2


def test_a_flag_that_is_rolled_back_was_never_told(world: World) -> None:
    talk = world.value(NEW_CONVERSATION, address=ADDRESS)
    with world.database.connection() as connection, connection.transaction(force_rollback=True):
        flag(connection, talk)
        assert connection.execute("SELECT count(*) FROM webhook_deliveries").fetchone() == (1,)
    assert (told(world), world.rows(JOBS)) == ([], [])


def test_two_who_ask_for_the_same_person_at_once_are_told_once(world: World) -> None:
    talk = world.value(NEW_CONVERSATION, address=ADDRESS)
    together = Barrier(6)

    def ask(_: int) -> None:
        with world.database.connection(wait=60, deadline=90) as connection:
            together.wait(60)
            flag(connection, talk)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(ask, range(6)))
    assert len(told(world)) == 1


# Who is told


@pytest.mark.parametrize(
    ("wanted", "count"),
    [((), 0), (("response.completed",), 0), (("job.failed",), 0), (("conversation.needs",), 0),
     (("conversation.needs_person",), 1), (("conversation.*",), 1), (("x", "*"), 0), (("c*",), 1)],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else str(value),
)  # fmt: skip
def test_only_who_asks_is_told_and_when_nobody_does_nothing_is_written(
    world: World, wanted: tuple[str, ...], count: int
) -> None:
    forget_deliveries(world)
    add_endpoint(world, "some", *wanted)
    asks_at_once(world)
    assert [row[5] for row in told(world)] == [1] * count
    assert world.value("SELECT count(*)::int FROM ai_jobs WHERE type = 'deliver_event'") == count


def test_who_is_disabled_is_not_told_and_all_others_are(world: World) -> None:
    world.execute("UPDATE webhook_endpoints SET disabled_at = now(), disabled_reason = 'gone' WHERE name = 'pager'")
    asks_at_once(world)
    assert told(world) == []
    for name in ("chat", "second"):
        add_endpoint(world, name, "conversation.needs_person")
    asks_by_a_word(world)  # asked for already
    world.says("+31600000002", "HELP", OptOutType="HELP")
    assert [row[5] for row in told(world)] == [2]


# A job has died


def fails(job: Job, lease: Lease) -> Verdict:
    raise PermanentError("rejected", f"refused: {QUESTION}")


def is_held(job: Job, lease: Lease) -> Verdict:
    raise HeldError("held", f"nobody can tell: {QUESTION}")


def fails_in_passing(job: Job, lease: Lease) -> Verdict:
    raise TimeoutError(QUESTION)


def sleeps(job: Job, lease: Lease) -> Verdict:
    return Snooze(30, "not yet")


LAST_TRY = "UPDATE ai_jobs SET attempts = 2"
CLAIMED = "claimed"  # by a worker that is gone before it begins
ITS_LEASE_IS_OVER = "UPDATE ai_jobs SET attempts = 3, lease_until = now() - interval '1 second'"
TOO_OLD = "UPDATE ai_jobs SET run_started_at = now() - interval '61 minutes'"
RESTS = "UPDATE job_types SET resting_until = now() + interval '1 h', resting_reason = 'x'"
DEATHS: dict[str, tuple[Callable[[Job, Lease], Verdict], tuple[str, ...], str]] = {
    "for good": (fails, (), "rejected"),
    "held": (is_held, (), "held"),
    "of its last try": (fails_in_passing, (LAST_TRY,), "timeout"),
    "with its worker": (fails, (CLAIMED, ITS_LEASE_IS_OVER), "poison"),
    "of age": (sleeps, (TOO_OLD,), "expired"),
    "of age while its type rests": (fails, (TOO_OLD, RESTS), "expired"),
}


@pytest.mark.parametrize("death", list(DEATHS))
def test_each_way_to_die_is_told_once_without_the_error_s_text(bench: QueueBench, death: str) -> None:
    work, before, reason = DEATHS[death]
    bench.work = work
    [job] = bench.add()
    for step in before:
        if step == CLAIMED:
            bench.claim()
        else:
            bench.execute(step)
    bench.worker.poll_once(1)
    bench.worker.poll_once(1)
    assert bench.row(job)["status"] == "failed"
    ((kind, subject, data, source, body, deliveries),) = bench.rows(TOLD)
    assert (kind, subject, source, body, deliveries) == ("job.failed", str(job), None, None, 1)
    assert data == {"job_id": str(job), "job_type": TYPE, "conversation_id": None, "reason": reason}


def test_what_is_put_back_finished_cancelled_or_closed_is_not_told_and_a_second_death_is(bench: QueueBench) -> None:
    bench.work = fails_in_passing
    waits, goes = bench.add(2)
    bench.worker.poll_once(2)
    with bench.database.connection() as connection:
        assert closing.cancel(connection, [waits], who="anna") == {waits: "cancelled"}
    assert bench.rows(TOLD) == []
    bench.work = fails
    bench.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
    bench.worker.poll_once(1)
    assert len(bench.rows(TOLD)) == 1
    with bench.database.connection() as connection:
        replay.restart(connection, [goes], who="anna")
        bench.worker.poll_once(1)
        assert closing.close(connection, [goes], who="anna", reason="no") == {goes: "closed"}
    assert len(bench.rows(TOLD)) == 2


def test_an_answer_that_dies_is_told_as_a_job_and_as_a_conversation(world: World) -> None:
    add_endpoint(world, "engineers", "job.failed")
    [job] = dies(world, QUESTION)
    talk = str(conversation(world))
    found = {kind: data for kind, _, data, *_ in told(world)}
    assert found == {
        "conversation.needs_person": {"conversation_id": talk, "reason": "content_filter"},
        "job.failed": {
            "job_id": str(job), "job_type": "autoreply", "conversation_id": talk, "reason": "content_filter",
        },
    }  # fmt: skip
    assert len(told(world)) == 2


def dies_delivering(world: World, event: UUID | None = None) -> None:
    """A delivery of this event, or of a vendor's, dies."""
    _, job = add_delivery(world, add_endpoint(world, f"x{uuid4().hex[:8]}", "nothing"), "waiting", event=event)
    buried(world, job, "http_500")


def buried(world: World, job: UUID | None, error_class: str) -> None:
    """A worker claims it, with what else waits, and buries it."""
    with world.database.transaction() as connection:
        connection.execute(GO_ON)
        [mine] = [taken for taken in store.claim(connection, 100, ["deliver_event"], 60.0) if taken.id == job]
        store.mark_failed(connection, mine, Failure(FailureKind.PERMANENT, error_class, QUESTION))
        connection.execute(PAUSE)


def test_that_telling_failed_is_told_to_nobody_else_it_would_never_end(world: World) -> None:
    add_endpoint(world, "engineers", "job.*")
    dies_delivering(world)
    ours = "SELECT id, data FROM webhook_events WHERE type = 'job.failed' ORDER BY seq"
    ((event, data),) = world.rows(ours)
    assert (data["job_type"], data["reason"]) == ("deliver_event", "http_500")
    dies_delivering(world, event)
    assert len(world.rows(ours)) == 1, "a delivery of job.failed that dies is not told"
    asks_at_once(world)
    asked = world.value("SELECT id FROM webhook_events WHERE type = 'conversation.needs_person'")
    dies_delivering(world, asked)
    assert len(world.rows(ours)) == 2, "one of another event is"


def test_a_payload_that_cannot_be_read_dies_and_is_told(world: World) -> None:
    add_endpoint(world, "engineers", "job.failed")
    unreadable = 'INSERT INTO ai_jobs (payload) VALUES (\'{"type": "deliver_event", "delivery_id": 7}\') RETURNING id'
    buried(world, world.value(unreadable), "bad_payload")
    assert [data["reason"] for _, _, data, *_ in told(world)] == ["bad_payload"]


# Many that die together


def die_together(world: World, endpoint: UUID, count: int, reason: str = "endpoint_disabled") -> None:
    """So many of an endpoint's deliveries are claimed and buried, one transaction each."""
    event = add_event(world)
    mine = {add_delivery(world, endpoint, "waiting", event=event)[1] for _ in range(count)}
    with world.database.connection() as connection:
        connection.execute(GO_ON)
        jobs = [job for job in store.claim(connection, 1000, ["deliver_event"], 60.0) if job.id in mine]
        assert len(jobs) == count
        for job in jobs:
            store.mark_failed(connection, job, Failure(FailureKind.PERMANENT, reason, "it is off"))
        connection.execute(PAUSE)


def told_by_endpoint(world: World) -> dict[tuple[str, str], int]:
    return {(endpoint, reason): count for endpoint, reason, count in world.rows(TOLD_BY_ENDPOINT)}


def test_of_an_endpoint_s_deliveries_that_die_for_one_reason_ten_an_hour_are_told(world: World) -> None:
    add_endpoint(world, "engineers", "job.failed")
    billing = add_endpoint(world, "billing", "nothing")
    die_together(world, billing, 60)
    assert told_by_endpoint(world) == {(str(billing), "endpoint_disabled"): 10}
    assert world.value("SELECT count(*)::int FROM dead_letters") == 60, "all are there to be seen and replayed"
    world.execute("UPDATE webhook_events SET received_at = received_at - interval '1 hour'")
    die_together(world, billing, 3)
    assert told_by_endpoint(world) == {(str(billing), "endpoint_disabled"): 13}


def test_another_endpoint_and_another_reason_are_told_all_the_same(world: World) -> None:
    add_endpoint(world, "engineers", "job.failed")
    billing, archive = add_endpoint(world, "billing", "nothing"), add_endpoint(world, "other", "nothing")
    die_together(world, billing, 30)
    die_together(world, archive, 1)
    die_together(world, billing, 1, "rejected")
    assert told_by_endpoint(world) == {
        (str(billing), "endpoint_disabled"): 10, (str(archive), "endpoint_disabled"): 1, (str(billing), "rejected"): 1,
    }  # fmt: skip


# What it costs


def test_a_message_that_asks_for_nobody_calls_nothing_of_this(world: World, database_url: str) -> None:
    def calls(body: str, **more: str) -> dict[str, int]:
        """How often the functions of this were called while a message was stored."""
        fields = [("MessageSid", f"SM{uuid4().hex}"), ("From", f"whatsapp:{ADDRESS}"), ("Body", body), ("NumMedia", "0"),
                  *more.items()]  # fmt: skip
        given = inbound.parameters(inbound.parse(fields), settle_seconds=0, default_language="nl")
        with psycopg.connect(database_url) as connection:
            connection.execute("SET LOCAL track_functions = 'pl'")
            connection.execute(inbound.STORE, given)
            return {str(name): int(count) for name, count in connection.execute(CALLS)}

    assert calls(QUESTION) == {}, "of a new conversation"
    assert calls("nog een vraag?") == {}, "and of one that is there"
    assert calls("HELP", OptOutType="HELP") == {"tell_needs_person": 1, "record_own_event": 1, "fan_out_event": 1}
