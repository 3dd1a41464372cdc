"""Restarting one and many, and the audit log that tells of it."""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from shared import audit
from shared.db.pool import Database
from shared.queue import replay, store
from shared.queue.job import Job
from tests.fakes.crowd import roomy_pool
from tests.fakes.desk import (
    ADDRESS,
    ANSWER,
    NOTICE,
    OTHER,
    WHO,
    dies,
    fresh,
    lines,
    open_messages,
)
from tests.fakes.eventually import eventually
from tests.fakes.world import World, run_all

BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


def restart_all(world: World) -> Counter[str]:
    """Restart every dead letter, the oldest first; what became of how many."""
    dead = [job for (job,) in world.rows("SELECT id FROM dead_letters ORDER BY seq")]
    with world.database.connection() as connection:
        return Counter(replay.restart(connection, dead, who=WHO).values())


# Restarting


def test_a_restart_is_written_down_with_what_it_did(world: World) -> None:
    first, second = dies(world, "vraag een?", "vraag twee?")
    with world.database.connection() as connection:
        replay.restart(connection, [first, second, uuid4()], who=WHO)
    assert [(line.who, line.what, line.target_id, line.details) for line in lines(world)] == [
        (WHO, "restart_job", str(second), {"became": "joined"}),
        (WHO, "restart_job", str(first), {"became": "restarted"}),
    ]


def test_the_oldest_of_each_conversation_runs_and_the_others_join_it(world: World) -> None:
    first, second, third = dies(world, "vraag een?", "vraag twee?", "vraag drie?")
    (other,) = dies(world, "vraag vier?", address=OTHER)
    assert restart_all(world) == {"restarted": 2, "joined": 2}
    assert world.rows("SELECT id, status, closed_reason FROM ai_jobs WHERE type = 'autoreply' ORDER BY seq") == [
        (first, "pending", None),
        (second, "failed", "joined"),
        (third, "failed", "joined"),
        (other, "pending", None),
    ]
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert world.sent_to(OTHER) == [NOTICE + ANSWER]
    assert any("vraag een?\nvraag twee?\nvraag drie?" in asked[-1]["content"] for asked in world.model.asked)
    assert [line.target_id for line in reversed(lines(world))] == [
        str(found) for found in (first, second, third, other)
    ]


def test_two_people_restart_the_same_ones_at_once(world: World) -> None:
    for n in range(6):
        dies(world, "vraag een?", "vraag twee?", address=f"+3160000010{n:02}")
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: restart_all(world), range(3)))
    assert sum(result["restarted"] for result in results) == 6
    assert sum(result["joined"] for result in results) == 6
    run_all(world)
    assert len(world.line.accepted) == 6


def finishing_with_a_follow_up(world: World) -> tuple[UUID, Job]:
    """A dead letter, and beside it an active job that a message has joined."""
    (dead,) = dies(world, "vraag een?")
    world.says(ADDRESS, "vraag twee?")
    with world.database.connection() as connection:
        (active,) = store.claim(connection, 1, ["autoreply"], 30)
    world.execute("UPDATE messages SET answered_by = id WHERE answered_by IS NULL AND NOT from_self")
    world.says(ADDRESS, "vraag drie?")
    return dead, active


def test_a_restart_that_waited_for_the_active_job_joins_its_follow_up(world: World) -> None:
    dead, active = finishing_with_a_follow_up(world)

    def restart() -> object:
        with world.database.connection() as connection:
            return replay.restart(connection, [dead], who=WHO)

    with ThreadPoolExecutor(1) as pool:
        with world.database.transaction() as connection:
            store.mark_done(connection, active)
            waiting = pool.submit(restart)
            eventually(lambda: world.value(BLOCKED) == 1)
        assert waiting.result() == {dead: "joined"}
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert "vraag een?\nvraag drie?" in world.model.asked[-1][-1]["content"]


@pytest.fixture
def crowd(database_url: str) -> Iterator[World]:
    """A world with room for all that come at once."""
    with roomy_pool(database_url, 24) as database:
        yield fresh(database)


def test_restarting_races_with_messages_and_workers(crowd: World) -> None:
    """At the end each message is covered by one job that is done, and nothing is left over."""
    world = crowd
    addresses = [f"+3160000010{n}" for n in range(6)]
    for address in addresses:
        dies(world, "eerste vraag?", "tweede vraag?", address=address)
    done = threading.Event()

    def write(address: str) -> None:
        for n in range(10):
            world.says(address, f"vraag {n}?")

    def work(_: int) -> None:
        while not done.is_set():
            world.app.worker.poll_once(3)

    with ThreadPoolExecutor(8) as pool:
        workers = [pool.submit(work, n) for n in range(2)]
        busy: list[Future[Any]] = [pool.submit(write, address) for address in addresses[:3]]
        busy += [pool.submit(restart_all, world) for _ in range(2)]
        for running in busy:
            running.result()
        done.set()
        for worker in workers:
            worker.result()
    run_all(world)
    assert open_messages(world) == []
    assert world.rows("SELECT last_error FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL") == []
    assert world.rows("SELECT DISTINCT status FROM messages WHERE source = 'ai'") == [("sent",)]
    unanswered = world.value(
        "SELECT count(*) FROM messages m WHERE NOT m.from_self AND NOT EXISTS ("
        "SELECT FROM messages r WHERE r.reply_id = m.answered_by AND r.status = 'sent')"
    )
    assert unanswered == 0


# The audit log


def test_the_audit_log_is_read_page_by_page_and_by_filter(world: World) -> None:
    someone = uuid4()
    with world.database.connection() as connection:
        for n in range(5):
            audit.record(
                connection, who="anna" if n % 2 else "bart", what="x", target_type="job", target_id=str(n), n=n
            )
        audit.record(connection, who="carla\0", what="y", target_type="document", target_id=someone, empty=None,
                     at=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), ids=[someone], text="a\0\ud800")  # fmt: skip
        newest = audit.list_entries(connection, limit=2)
        assert [(line.who, line.target_id) for line in newest] == [("carla\ufffd", str(someone)), ("bart", "4")]
        assert newest[0].details == {
            "at": "2026-01-02T00:00:00+00:00", "ids": [str(someone)], "text": "a\ufffd\ufffd",
        }  # fmt: skip
        older = audit.list_entries(connection, limit=2, before_id=newest[-1].id)
        assert [line.target_id for line in older] == ["3", "2"]
        assert [line.target_id for line in audit.list_entries(connection, limit=9, who="anna")] == ["3", "1"]
        assert [line.details["n"] for line in audit.list_entries(connection, limit=9, target="3")] == [3]
        assert len(audit.list_entries(connection, limit=9, target="job")) == 5


def test_what_is_rolled_back_was_not_done_and_is_not_written_down(world: World) -> None:
    def fail() -> None:
        with world.database.transaction() as connection:
            audit.record(connection, who=WHO, what="x", target_type="job")
            connection.execute("SELECT 1 / 0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        fail()
    assert lines(world) == []
