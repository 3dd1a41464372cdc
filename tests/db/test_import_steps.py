"""An import that is stopped, killed, followed by another worker or run beside another: each row is written once, and whole."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from shared.clients.guard import Guard
from shared.db.pool import Database
from shared.errors import LeaseLost
from shared.jobs.import_people import run as run_import
from shared.jobs.services import Services
from shared.knowledge.people_batch import write_batch
from shared.knowledge.people_rows import rows_of
from shared.queue.job import Continue, Job, Lease
from shared.queue.replay import restart
from shared.queue.store import claim, continue_job
from shared.webhooks.deliver import Courier
from shared.webhooks.sending import Sender
from tests.fakes.people import FIRST, RECORD_JOBS, counts, found, imported, many, people, start, to_end
from tests.fakes.world import World


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    made = World(database)
    made.execute("TRUNCATE people, imports, import_rows, ai_jobs CASCADE")
    yield made
    made.execute("DROP TRIGGER IF EXISTS stop ON import_rows")


def test_what_dies_says_why_and_a_restart_goes_on_where_it_stopped(world: World) -> None:
    import_id = start(world, many(1200))
    stop_at(world, 900, "RAISE EXCEPTION 'broken' USING ERRCODE = '23514'")
    until_it_breaks(world)
    dead = found(world, import_id)
    assert (dead.state, dead.rows_done, counts(dead)) == ("failed", 500, {"added": 500})
    assert dead.reason is not None
    assert dead.reason.startswith("database_refused: ")
    world.execute("DROP TRIGGER stop ON import_rows")
    (job,) = world.rows("SELECT id FROM ai_jobs WHERE type = 'import_people'")[0]
    with world.database.connection() as connection:
        assert restart(connection, [job], who="test") == {job: "restarted"}
    world.execute(FIRST)
    world.app.worker.poll_once(1)
    ended = to_end(world, import_id)
    assert (ended.state, ended.reason, counts(ended)) == ("done", None, {"added": 1200})
    assert_each_once(world, 1200)


@pytest.mark.parametrize("line", [2, 501, 502, 1001, 1201])
def test_a_connection_that_breaks_inside_a_batch_leaves_no_half_row(world: World, line: int) -> None:
    import_id = start(world, many(1200))
    stop_at(world, line, "PERFORM pg_terminate_backend(pg_backend_pid())")
    until_it_breaks(world)
    done = found(world, import_id).rows_done
    assert done == (line - 2) // 500 * 500
    assert world.value("SELECT count(*) FROM people") == len(world.rows(RECORD_JOBS)) == done
    world.execute("DROP TRIGGER stop ON import_rows")
    assert counts(to_end(world, import_id)) == {"added": 1200}
    assert_each_once(world, 1200)
    assert world.rows("SELECT attempts FROM ai_jobs WHERE type = 'import_people'") == [(1,)]  # the database's fault


def test_a_planned_stop_ends_the_step_after_a_batch_and_uses_no_attempt(world: World) -> None:
    import_id = start(world, many(1200))
    for done in (500, 1000):
        job = claimed(world)
        verdict = run_import(services(world), job, Lease(world.database, job, 30, lambda: True))
        assert verdict == Continue()
        assert found(world, import_id).rows_done == done
        with world.database.transaction() as connection:
            continue_job(connection, job, ())
    world.run()
    assert counts(found(world, import_id)) == {"added": 1200}
    assert world.rows("SELECT attempts, claims FROM ai_jobs WHERE type = 'import_people'") == [(1, 3)]
    assert_each_once(world, 1200)


def test_a_worker_that_stops_between_two_batches_is_followed_and_writes_nothing_more(world: World) -> None:
    import_id = start(world, many(1200))
    job = claimed(world)
    steps: list[int] = []

    def other_worker_takes_over() -> bool:
        if not steps:
            world.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 s' WHERE type = 'import_people'")
            steps.append(to_end(world, import_id).rows_done)
        return False

    with pytest.raises(LeaseLost):
        run_import(services(world), job, Lease(world.database, job, 30, other_worker_takes_over))
    assert steps == [1200]
    assert counts(found(world, import_id)) == {"added": 1200}
    assert_each_once(world, 1200)


def test_a_batch_of_an_import_that_has_moved_on_is_not_written(world: World) -> None:
    table = many(3)
    import_id = start(world, table)
    with pytest.raises(LeaseLost), world.database.transaction() as connection:
        write_batch(connection, table, list(rows_of(table)), import_id=import_id, this_line=1, dry_run=False)
    assert people(world) == []


def test_two_imports_at_once_write_each_person_once(world: World) -> None:
    imports = [start(world, many(1500)), start(world, many(1500))]
    world.app.worker.poll_once(2)  # on a slow machine that is not all: a step goes on for five seconds
    rows = [to_end(world, import_id) for import_id in imports]
    assert [row.state for row in rows] == ["done", "done"]
    assert sum(row.added for row in rows) == sum(row.unchanged for row in rows) == 1500
    assert_each_once(world, 1500)


def test_records_fall_due_one_after_another_so_that_answers_need_not_wait_behind_everybody(world: World) -> None:
    began = time.monotonic()
    imported(world, many(1200))
    due = "SELECT extract(epoch FROM next_run_at - now()) FROM ai_jobs WHERE status = 'pending' ORDER BY next_run_at"
    waits = [float(wait) for (wait,) in world.rows(due)]
    assert len([wait for wait in waits if wait <= 0]) >= 100
    took = time.monotonic() - began  # each batch counts from its own moment
    assert (1200 - 100) / 20 - took < waits[-1] <= (1200 - 100) / 20
    assert max(later - earlier for earlier, later in itertools.pairwise(waits[500:])) < 0.1 + took


def services(world: World) -> Services:
    courier = Courier(world.database, Sender(Guard()), None, world.settings.public_base_url)
    return Services(world.database, world.model, world.model, world.line, world.settings, courier)


def claimed(world: World) -> Job:
    with world.database.connection() as connection:
        return claim(connection, 1, ["import_people"], 30)[0]


def until_it_breaks(world: World) -> None:
    """Run the import's steps as far as the database lets it: on a slow machine one of five seconds does not get there."""
    while world.value("SELECT error_class FROM ai_jobs WHERE type = 'import_people'") is None:
        world.execute(FIRST)
        assert world.app.worker.poll_once(1)


def stop_at(world: World, line: int, action: str) -> None:
    """Have the database break off when a line is reported."""
    world.execute(
        f"CREATE OR REPLACE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {action}; RETURN NEW; END $$;"
        f" CREATE TRIGGER stop BEFORE INSERT ON import_rows FOR EACH ROW WHEN (NEW.line = {line}) EXECUTE FUNCTION stop()"
    )


def assert_each_once(world: World, count: int) -> None:
    """Everybody of many() is there once and whole, with one job, and once in each import's report."""
    expected = [(f"Mens {n}", f"+316{n + 10000000}", f"W{n}", f"Afdeling {n % 7}") for n in range(count)]
    assert world.rows("SELECT name, phone, external_id, department FROM people ORDER BY phone") == expected
    whole = "SELECT count(*) FROM people WHERE attributes ->> 'verlof' = substr(external_id, 2) || ' uur'"
    assert world.value(whole) == count
    jobs = [job for job, _ in world.rows(RECORD_JOBS)]
    assert len(jobs) == len(set(jobs)) == count
    lines = world.rows("SELECT count(*), min(line), max(line) FROM import_rows GROUP BY import_id")
    assert set(lines) == {(count, 2, count + 1)}
