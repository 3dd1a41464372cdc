"""What docs/day-two.md says of a restore and an upgrade: what is said twice, what a pause prevents, what old code survives.

A restored database is a copy that was made of the application's at a moment; Twilio's line is the same before and after.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import httpx2
import pytest

from local.postgres import EmbeddedPostgres
from shared.app import App
from shared.clients.twilio import Received
from shared.conversation.sweep import Sweep
from shared.db.pool import Database
from shared.queue import closing, health, types
from tests.conftest import TEMPLATE, WORKER
from tests.fakes.world import World, run_all

BEFORE, AFTER = "+31600000001", "+31600000002"
OPEN = "SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL"
PENDING = "SELECT id FROM ai_jobs WHERE status = 'pending' AND type = 'autoreply' ORDER BY seq"
PAUSED = ("autoreply", "send_message")


class Server:
    """The database of an application, which can be restored to a moment as a new one."""

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self._postgres = postgres
        self._names: list[str] = []
        self._closing = ExitStack()

    def open(self, *, template: str = TEMPLATE, like: World | None = None) -> World:
        """A new database with an application on it; `like` gives it the same line and model."""
        name = f"restore_{WORKER}_{os.getpid()}_{uuid4().hex[:8]}"
        self._names.append(name)
        pool = Database(self._postgres.create(name, template=template), 4)
        self._closing.callback(pool.close)
        world = World(pool, AI_NOTICE="off")
        if like is not None:
            world.line, world.model = like.line, like.model
            world.app = App(
                world.settings, database=pool, wake=world.wake, chat=world.model, embedder=world.model, line=world.line
            )
        return world

    def copy(self, world: World) -> str:
        """What a restore to this moment would bring; the application has to be opened anew."""
        source = self._names[-1]
        world.database.close()
        name = f"{source}_copy"
        self._postgres.create(name, template=source)
        return name

    def close(self) -> None:
        self._closing.close()


@pytest.fixture
def server(postgres: EmbeddedPostgres) -> Iterator[Server]:
    found = Server(postgres)
    yield found
    found.close()


def received(world: World, address: str, body: str) -> None:
    """A message comes in, and is in Twilio's list as well: some minutes old, so that a sweep looks at it."""
    sid = f"SM{uuid4().hex}"
    moment = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
    world.line.inbox.append(Received(sid, address, body, moment))
    world.says(address, body, sid=sid)


def sweep(world: World) -> int:
    ours = world.settings
    return Sweep(world.line, world.wake.wake, 24, ours.settle_seconds, ours.default_language).take_in(world.database)


def lived(server: Server) -> tuple[World, str]:
    """An application that was copied with one question open, and has answered it and another one since; and the copy."""
    first = server.open()
    first.execute("UPDATE schema_migrations SET applied_at = now() - interval '30 days'")
    first.add_handbook()
    received(first, BEFORE, "hoeveel verlof heb ik?")
    copy = server.copy(first)
    since = server.open(template=copy, like=first)
    run_all(since)
    received(since, AFTER, "hoeveel verlof heb ik?")
    run_all(since)
    assert [len(since.sent_to(address)) for address in (BEFORE, AFTER)] == [1, 1]
    return since, copy


def test_without_a_pause_everything_since_is_answered_a_second_time(server: Server) -> None:
    """What a restore costs. The page says so: the promise of one reply holds within one history of the database."""
    since, copy = lived(server)
    restored = server.open(template=copy, like=since)
    assert sweep(restored) == 1
    run_all(restored)
    assert [len(restored.sent_to(address)) for address in (BEFORE, AFTER)] == [2, 2]


def test_under_a_pause_nothing_is_sent_and_what_was_answered_can_be_taken_out(server: Server) -> None:
    since, copy = lived(server)
    restored = server.open(template=copy, like=since)
    with restored.database.connection() as connection:
        for job_type in PAUSED:
            types.pause(connection, job_type, who="somebody", reason="a restore")
    assert sweep(restored) == 1  # what came in since is there, and waits
    received(restored, "+31600000003", "en hoeveel vakantie?")  # so does what comes in now
    restored.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
    assert restored.run() == 0
    answered, swept, new = [UUID(str(row[0])) for row in restored.rows(PENDING)]
    with restored.database.connection() as connection:
        became = closing.cancel(connection, [answered, swept], who="somebody")
        assert set(became.values()) == {"cancelled"}
        for job_type in PAUSED:
            types.resume(connection, job_type, who="somebody")
    run_all(restored)
    assert [len(restored.sent_to(address)) for address in (BEFORE, AFTER)] == [1, 1]
    assert len(restored.sent_to("+31600000003")) == 1
    assert restored.value(OPEN) == 0
    assert restored.value("SELECT status FROM ai_jobs WHERE id = %(id)s", id=new) == "done"
    assert sweep(restored) == 0


def test_what_was_being_sent_at_the_moment_is_looked_up_and_not_sent_again(server: Server) -> None:
    first = server.open()
    first.add_handbook()

    def lost(_: dict[str, object]) -> None:
        raise httpx2.ReadTimeout("no answer")

    first.line.after = lost
    first.says(BEFORE, "hoeveel verlof heb ik?")
    first.run()
    assert first.value("SELECT status FROM messages WHERE from_self") == "sending"
    copy = server.copy(first)
    first.line.after = lambda _: None
    restored = server.open(template=copy, like=first)
    restored.pass_time(30)
    restored.settle_doubts()
    assert restored.value("SELECT status FROM messages WHERE from_self") == "sent"
    assert len(restored.sent_to(BEFORE)) == 1


def test_old_code_works_on_a_newer_database_and_is_well(server: Server) -> None:
    world = server.open()
    world.add_handbook()
    known = int(world.value("SELECT max(version) FROM schema_migrations"))
    world.execute(
        "INSERT INTO schema_migrations (version, name, checksum) VALUES (%(version)s, 'of a newer version', 'x')",
        version=known + 1,
    )
    world.execute("INSERT INTO job_types (type) VALUES ('of_a_newer_version')")
    world.execute('INSERT INTO ai_jobs (payload) VALUES (\'{"type": "of_a_newer_version"}\')')
    world.execute("ALTER TABLE messages ADD COLUMN of_a_newer_version text")
    world.says(BEFORE, "hoeveel verlof heb ik?")
    run_until_idle(world)
    assert len(world.sent_to(BEFORE)) == 1
    assert world.value("SELECT status FROM ai_jobs WHERE type = 'of_a_newer_version'") == "pending"
    status, shown = health.check(world.database)
    assert (status, shown["migration"]) == (200, known + 1)


def test_new_code_on_an_older_database_says_that_it_must_be_migrated(server: Server) -> None:
    world = server.open()
    world.execute("DELETE FROM schema_migrations WHERE version = (SELECT max(version) FROM schema_migrations)")
    status, shown = health.check(world.database)
    assert status == 503
    assert "run migrate" in shown["reason"]


def run_until_idle(world: World) -> None:
    """All that this version knows."""
    while world.run():
        pass
