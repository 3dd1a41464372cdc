"""The database restarts in the middle of a job: no attempt is burnt for it, and nobody gets two replies."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from local.postgres import EmbeddedPostgres
from shared.db.migrate import migrate
from shared.db.pool import Database
from tests.fakes.world import World

ADDRESS = "+31600000001"


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedPostgres]:
    """A cluster of this file's own: the others keep theirs."""
    cluster = EmbeddedPostgres(Path(tempfile.mkdtemp(prefix="antwoord-restart-")) / "pg", disposable=True)
    with psycopg.connect(cluster.create("antwoord"), autocommit=True) as connection:
        migrate(connection)
    yield cluster
    cluster.close()


@pytest.fixture
def world(own: EmbeddedPostgres) -> Iterator[World]:
    database = Database(own.url("antwoord"), 4)
    found = World(database, JOB_LEASE_SECONDS="10")
    found.execute("TRUNCATE message_events, ai_jobs, job_attempts, messages, conversations, documents CASCADE")
    found.add_handbook()
    yield found
    database.close()


def drain(world: World) -> None:
    """Run until nothing is left, also what waits."""
    for _ in range(20):
        world.app.worker.drain(4, 5)
        world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
        if not world.value("SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing')"):
            return
    raise AssertionError("the queue does not come to an end")


def once(action: Any) -> Any:
    done = threading.Event()

    def act(_: Any) -> None:
        if not done.is_set():
            done.set()
            action()

    return act


def test_in_the_model_call(world: World, own: EmbeddedPostgres) -> None:
    restart = once(own.restart)

    def says(messages: Any) -> str:
        restart(messages)
        return "Je hebt 200 uur. [1]"

    world.model.says = says
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    drain(world)
    assert len(world.sent_to(ADDRESS)) == 1
    assert world.rows("SELECT status, attempts FROM ai_jobs") == [("done", 1)]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_around_the_acceptance_by_twilio(world: World, own: EmbeddedPostgres, moment: str) -> None:
    setattr(world.line, moment, once(own.restart))
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    drain(world)
    assert len(world.sent_to(ADDRESS)) == 1
    assert world.rows("SELECT status, provider_sid IS NOT NULL FROM messages WHERE from_self") == [("sent", True)]
    assert world.rows("SELECT status, attempts FROM ai_jobs") == [("done", 1)]
    assert len(world.model.asked) == 1


def test_while_a_drain_is_polling(world: World, own: EmbeddedPostgres) -> None:
    for n in range(30):
        world.says(f"+3160000{n:04d}", "hoeveel verlof heb ik?")
    restart = once(own.restart)
    world.line.before = restart
    drain(world)
    assert sorted(len(world.sent_to(f"+3160000{n:04d}")) for n in range(30)) == [1] * 30
    assert world.rows("SELECT DISTINCT status FROM ai_jobs") == [("done",)]


def test_a_message_that_comes_in_meanwhile_is_stored(world: World, own: EmbeddedPostgres) -> None:
    world.says(ADDRESS, "eerste")
    own.restart()
    assert world.says(ADDRESS, "tweede").is_new
    drain(world)
    assert "eerste\ntweede" in world.model.asked[0][-1]["content"]
