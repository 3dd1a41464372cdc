"""A type's rest: what ends it and what does not, what a pause keeps, and what a resumed type is too old for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import httpx2
import openai
import pytest

from shared.clients.azure_openai import ChatMessage
from shared.db.pool import Database
from shared.errors import DatabaseAway
from shared.queue import store, types
from shared.queue.job import Complete, Job, JobType, Lease, Snooze
from shared.queue.outcome import DATABASE_FAULT_SECONDS
from shared.queue.policy import Policy
from shared.queue.worker import Limits, Worker
from tests.fakes.queue_bench import TYPE, QueueBench
from tests.fakes.world import World

LATE = "+31612345678"
PHOTO = {"NumMedia": "1", "MediaUrl0": "https://example.org/1", "MediaContentType0": "image/jpeg"}
QUESTION = "Hoeveel verlofdagen heb ik?"
REST = """
    UPDATE job_types SET failures_in_row = 5, resting_until = now(), resting_reason = 'HTTP 503' WHERE type = %(type)s
"""
RESTS = "SELECT resting_until IS NOT NULL FROM job_types WHERE type = %(type)s"
PROBE_NOW = "UPDATE job_types SET resting_until = now() WHERE resting_until IS NOT NULL"
PUT_OFF = "UPDATE ai_jobs SET next_run_at = now() + interval '10 minutes' WHERE status = 'pending'"
DUE = """
    UPDATE ai_jobs SET next_run_at = now() + make_interval(secs => %(wait)s)
    WHERE status = 'pending' AND conversation_id = (SELECT id FROM conversations WHERE address = %(address)s)
"""
AGED = "UPDATE ai_jobs SET run_started_at = now() - interval '40 minutes', next_run_at = now() - interval '40 minutes'"
OF = """
    SELECT j.status, j.attempts, j.error_class FROM ai_jobs j JOIN conversations c ON c.id = j.conversation_id
    WHERE c.address = %(address)s AND j.type = 'autoreply' ORDER BY j.seq
"""


@pytest.fixture
def world(database: Database) -> World:
    found = World(database)
    found.execute(
        "TRUNCATE message_events, ai_jobs, job_attempts, conversations, messages, suggestions, documents CASCADE"
    )
    found.execute(
        "UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL, paused = false, age_from = NULL"
    )
    return found


def down(_: Sequence[ChatMessage]) -> str:
    raise openai.APIConnectionError(request=httpx2.Request("POST", "http://model.example/"))


def rests(world: World, job_type: str = "autoreply") -> bool:
    return bool(world.value(RESTS, type=job_type))


def test_a_photo_that_is_the_probe_ends_no_rest_and_the_question_that_came_later_lives(world: World) -> None:
    world.add_handbook()
    world.model.says = down
    for n in range(5):
        world.says(f"+3161000000{n}", QUESTION)
    world.app.worker.poll_once(8)
    assert rests(world)
    world.execute(PUT_OFF)  # only to follow the one
    world.says(LATE, QUESTION)
    for n in range(4):
        world.execute(DUE, address=LATE, wait=10)
        world.says(f"+3162000000{n}", "", **PHOTO)
        world.execute(PROBE_NOW)
        assert world.app.worker.poll_once(8) == 1  # the photo
        assert world.rows(OF, address=f"+3162000000{n}")[0][0] == "done"
        assert rests(world)
        world.execute(DUE, address=LATE, wait=0)
        world.app.worker.poll_once(8)  # the probe goes at once after one that asked nothing, and fails
        assert world.rows(OF, address=LATE) == [("pending", 0, "dropped")]
    world.model.says = lambda _: "Je hebt 200 uur verlof. [1]"
    world.execute(PROBE_NOW)
    world.execute(DUE, address=LATE, wait=0)
    world.app.worker.poll_once(8)
    assert not rests(world)
    assert world.rows(OF, address=LATE)[0][0] == "done"


def test_an_answer_in_parts_ends_the_rest_with_its_first(world: World) -> None:
    world.add_handbook()
    world.model.says = lambda _: "Je hebt 200 uur verlof. [1] " * 120
    world.says(LATE, QUESTION)
    world.execute(REST, type="autoreply")
    world.app.worker.poll_once(1)
    assert world.rows(OF, address=LATE)[0][0] == "pending"  # its next part
    assert not rests(world)


def test_an_answer_that_needs_only_the_search_ends_no_rest(world: World) -> None:
    world.model.says = down
    world.says(LATE, QUESTION)  # there are no documents
    world.execute(REST, type="autoreply")
    world.app.worker.poll_once(1)
    assert world.rows(OF, address=LATE)[0][0] == "done"
    assert rests(world)


def test_a_draft_that_is_sent_again_ends_no_rest(world: World) -> None:
    world.add_handbook()

    def refuses(_: object) -> None:
        raise ConnectionRefusedError("nobody there")

    world.line.before = refuses
    world.says(LATE, QUESTION)
    world.app.worker.poll_once(1)
    assert world.rows(OF, address=LATE)[0][0] == "pending"
    world.line.before = lambda _: None
    world.model.says = down
    world.execute(REST, type="autoreply")
    world.execute(DUE, address=LATE, wait=0)
    world.app.worker.poll_once(1)
    assert world.rows(OF, address=LATE)[0][0] == "done"
    assert rests(world)


def test_a_record_that_is_gone_or_unchanged_ends_no_rest(world: World) -> None:
    world.execute(
        "INSERT INTO ai_jobs (payload) VALUES (jsonb_build_object("
        "'type', 'embed_record', 'record', 'document', 'id', gen_random_uuid()))"
    )
    world.execute(REST, type="embed_record")
    world.app.worker.poll_once(1)
    assert world.value("SELECT status FROM ai_jobs") == "done"
    assert rests(world, "embed_record")


def test_a_paused_type_that_rests_keeps_what_waits_however_old(world: World) -> None:
    world.says(LATE, QUESTION)
    world.execute(AGED)
    world.execute("UPDATE job_types SET paused = true WHERE type = 'autoreply'")
    world.execute(REST, type="autoreply")
    world.app.worker.poll_once(8)
    assert world.rows(OF, address=LATE) == [("pending", 0, None)]


def test_what_waited_through_a_pause_is_not_too_old_to_wait_when_it_is_resumed(
    database: Database, world: World
) -> None:
    world.execute('INSERT INTO ai_jobs (payload) VALUES (\'{"type": "suggest"}\')')
    world.execute(AGED)
    with database.connection() as connection:
        types.pause(connection, "suggest", who="An")
        types.resume(connection, "suggest", who="An")
        resting = REST.replace("now()", "now() + interval '1 hour'")
        connection.execute(resting.encode(), {"type": "suggest"})
        assert store.claim_overaged(connection, "suggest", 900, 5) == []
        connection.execute(b"UPDATE job_types SET resting_until = NULL, resting_reason = NULL, failures_in_row = 0")
    kind = JobType("suggest", lambda job, lease: Snooze(2.0, "throttled"), Policy(age_limit=900))
    Worker(database, {"suggest": kind}, lambda _: None, Limits(lease_seconds=5)).poll_once(1)
    assert world.rows("SELECT status, attempts FROM ai_jobs") == [("pending", 0)]
    world.execute("UPDATE job_types SET age_from = now() - interval '899 seconds' WHERE type = 'suggest'")
    world.execute("UPDATE ai_jobs SET next_run_at = now()")
    Worker(database, {"suggest": kind}, lambda _: None, Limits(lease_seconds=5)).poll_once(1)
    assert world.rows("SELECT status, error_class FROM ai_jobs") == [("failed", "expired")]


def test_after_a_pause_an_age_is_counted_from_the_resumption_also_for_what_crashed(
    database: Database, world: World
) -> None:
    world.execute('INSERT INTO ai_jobs (payload) VALUES (\'{"type": "suggest"}\')')
    world.force(
        "UPDATE ai_jobs SET status = 'processing', attempts = 3, claims = 3, lease_token = gen_random_uuid(),"
        " lease_until = now() - interval '1 s', run_started_at = now() - interval '1 hour'"
    )
    world.execute("UPDATE job_types SET age_from = now() - interval '10 seconds'")
    with database.connection() as connection:
        (poisoned,) = store.poisoned(connection, ["suggest"])
    assert 10 <= poisoned.age_seconds < 100  # of an hour


def test_what_a_fault_of_the_database_has_hit_comes_back_spread(database: Database) -> None:
    bench = QueueBench(database)

    def away(job: Job, lease: Lease) -> Complete:
        raise DatabaseAway("not there")

    waits: list[float] = []
    for draw in (0.0, 0.5, 0.999):
        kind = JobType(TYPE, away, Policy(draw=partial(float, draw)))
        bench.add()
        Worker(database, {TYPE: kind}, waits.append, Limits(lease_seconds=5)).poll_once(1)
    shares = [round(wait / DATABASE_FAULT_SECONDS, 2) for wait in waits]
    assert shares == [0.5, 0.75, 1.0]
