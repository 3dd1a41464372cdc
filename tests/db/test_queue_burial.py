"""Burials that must come about: of payloads that say nothing, of types whose own questions fail; and suspects that are over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from shared.db.pool import Conn, Database
from shared.errors import Failure, PermanentError
from shared.queue import replay, replays, replays_drive, store
from shared.queue.dead_letters import Filter
from shared.queue.job import Complete, Job, JobType, Lease, Write
from shared.queue.worker import Limits, Worker
from tests.fakes.queue_bench import LEASE_SECONDS, TYPE, QueueBench
from tests.fakes.world import World

# A dead letter after crashes; then the same in its new run, after two ordinary failures.
DIED_IN_CRASHES = """
    UPDATE ai_jobs SET status = 'failed', has_crashed = true, error_class = 'poison', last_error = 'x',
        updated_at = now() - interval '1 minute'
"""
FAILED_TWICE = "UPDATE ai_jobs SET attempts = 2, claims = 2, next_run_at = now()"
OTHER_SUSPECT = """
    UPDATE ai_jobs SET status = 'processing', attempts = 3, claims = 3, has_crashed = true, lease_token = gen_random_uuid(),
        lease_until = now() + make_interval(secs => %(left)s)
    WHERE id = %(id)s
"""
SUSPECT = "UPDATE ai_jobs SET attempts = 2, claims = 2, has_crashed = true WHERE id = %(id)s"


@pytest.fixture
def bench(database: Database) -> QueueBench:
    return QueueBench(database)


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "autoreply"},
        {"type": "autoreply", "conversation_id": 7},
        {"type": "send_message"},
        {"type": "send_message", "message_id": "x"},
        {"type": "suggest", "conversation_id": None},
        {"type": "embed_record"},
        {"type": "embed_record", "record": "document", "id": "x"},
        {"type": "embed_record", "record": "person"},
        {"type": "import_people"},
    ],
    ids=lambda payload: "-".join(str(value) for value in payload.values()),
)
def test_a_payload_that_cannot_be_read_is_a_dead_letter_at_once(database: Database, payload: dict[str, Any]) -> None:
    world = World(database)
    world.execute("TRUNCATE message_events, ai_jobs, job_attempts, conversations, messages CASCADE")
    world.execute("INSERT INTO ai_jobs (payload) VALUES (%(payload)s)", payload=Jsonb(payload))
    world.app.worker.poll_once(1)
    assert world.rows("SELECT status, attempts, error_class FROM ai_jobs") == [("failed", 1, "bad_payload")]


def buried(bench: QueueBench, **how: Any) -> tuple[Any, ...]:
    """A type that is buried in this way: the state of its job."""

    def fails(job: Job, lease: Lease) -> Complete:
        raise PermanentError("rejected", "no")

    kind = JobType(TYPE, fails, **how)
    bench.add()
    Worker(bench.database, {TYPE: kind}, lambda _: None, Limits(lease_seconds=LEASE_SECONDS)).poll_once(1)
    return bench.rows("SELECT status, error_class FROM ai_jobs")[0]


def cannot_tell(connection: Conn, job: Job) -> bool:
    raise KeyError("message_id")


def in_doubt(connection: Conn, job: Job) -> bool:
    return True


def cannot_bury(job: Job, failure: Failure) -> Sequence[Write]:
    raise KeyError("message_id")


def test_a_job_that_cannot_tell_whether_it_is_settled_dies(bench: QueueBench) -> None:
    assert buried(bench, is_unsettled=cannot_tell) == ("failed", "rejected")


def test_a_job_that_has_no_burial_dies(bench: QueueBench) -> None:
    assert buried(bench, is_unsettled=cannot_tell, on_bury=cannot_bury) == ("failed", "rejected")


def test_a_job_in_doubt_that_has_no_burial_still_finds_out(bench: QueueBench) -> None:
    assert buried(bench, is_unsettled=in_doubt, on_bury=cannot_bury) == ("pending", "rejected")


def claimable(bench: QueueBench) -> int:
    with bench.database.connection() as connection:
        return len(store.claim(connection, 8, [TYPE], LEASE_SECONDS))


def test_a_restart_forgets_crashes(bench: QueueBench, database: Database) -> None:
    jobs = bench.add(4)
    World(database).force(DIED_IN_CRASHES)
    with database.connection() as connection:
        replay.restart(connection, jobs, who="An")
    World(database).force(FAILED_TWICE)
    assert claimable(bench) == 4


def test_a_replay_forgets_crashes(bench: QueueBench, database: Database) -> None:
    bench.add(4)
    World(database).force(DIED_IN_CRASHES)
    with database.connection() as connection:
        plan = replays.start(connection, Filter(), who="An", reason="mended", rate=1000)
    assert replays_drive.advance(database, plan.id, seconds=5).restarted == 4
    World(database).force(FAILED_TWICE)
    assert claimable(bench) == 4


@pytest.mark.parametrize(("left", "claimed"), [(60, 0), (-60, 1)], ids=["its worker lives", "its worker is gone"])
def test_a_suspect_waits_for_another_only_while_that_one_has_a_worker(
    bench: QueueBench, database: Database, left: int, claimed: int
) -> None:
    [other] = bench.add(type="suggest")  # of a type that nobody here buries
    [waiting] = bench.add()
    World(database).force(OTHER_SUSPECT, id=other, left=left)
    World(database).force(SUSPECT, id=waiting)
    assert claimable(bench) == claimed
