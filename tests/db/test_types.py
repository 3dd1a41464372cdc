"""The types of jobs as operators see and set them: counts, pause, weight and limit, each audited; and what took long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shared.db.pool import Conn, Database
from shared.errors import UserError
from shared.queue import listing, store, types
from shared.queue.types import Limits, TypeRow
from tests.fakes.desk import WHO, fresh, lines
from tests.fakes.world import World

ADD = """
    INSERT INTO ai_jobs (payload, status, next_run_at, lease_token, lease_until)
    SELECT jsonb_build_object('type', %(type)s::text), %(status)s, now() + %(due)s,
        CASE %(status)s WHEN 'processing' THEN gen_random_uuid() END, CASE %(status)s WHEN 'processing' THEN now() END
    FROM generate_series(1, %(count)s)
"""


@pytest.fixture
def world(database: Database) -> World:
    found = fresh(database)
    found.execute("UPDATE job_types SET paused = false, max_running = NULL, weight = 1")
    return found


def add(
    world: World, count: int, *, job_type: str = "embed_record", status: str = "pending", due: str = "-1 s"
) -> None:
    world.force(ADD, type=job_type, status=status, due=due, count=count)


def found(world: World, job_type: str = "embed_record") -> TypeRow:
    with world.database.connection() as connection:
        row = types.find_type(connection, job_type)
    assert row
    return row


def act(world: World, action: Callable[[Conn], None]) -> None:
    with world.database.connection() as connection:
        action(connection)


def refused(world: World, action: Callable[[Conn], None]) -> str | None:
    with pytest.raises(UserError) as error:
        act(world, action)
    return error.value.name


def claimed(world: World) -> list[str]:
    with world.database.connection() as connection:
        return [job.type for job in store.claim(connection, 10, ["embed_record", "suggest"], 30)]


def test_what_waits_runs_and_died_is_counted_by_type(world: World) -> None:
    add(world, 3, due="-90 s")
    add(world, 2, due="1 hour")
    add(world, 1, status="processing")
    add(world, 4, status="failed")
    add(world, 5, status="done")
    add(world, 1, job_type="of a later version")
    row = found(world)
    assert (row.waiting, row.due, row.running, row.dead) == (5, 3, 1, 4)
    assert 89 < (row.oldest_due_seconds or 0) < 150
    assert not found(world, "of a later version").is_known
    with world.database.connection() as connection:
        assert {"autoreply", "of a later version"} <= {one.type for one in types.list_types(connection)}
        assert types.finished_lately(connection) == {"embed_record": 5}
        assert types.find_type(connection, "nothing\0") is None


def test_a_paused_type_gives_no_job_until_it_goes_on(world: World) -> None:
    add(world, 1)
    act(world, lambda on: types.pause(on, "embed_record", who=WHO, reason=" the model\n is repaired "))
    assert claimed(world) == []
    row = found(world)
    assert (row.paused, row.paused_by, row.paused_why) == (True, WHO, "the model is repaired")
    assert refused(world, lambda on: types.pause(on, "embed_record", who=WHO)) == "type_paused"
    act(world, lambda on: types.resume(on, "embed_record", who="bart"))
    assert claimed(world) == ["embed_record"]
    assert found(world).paused_by is None
    assert refused(world, lambda on: types.resume(on, "embed_record", who=WHO)) == "type_not_paused"
    assert [(line.who, line.what, line.target_id, line.details) for line in reversed(lines(world))] == [
        (WHO, "pause_type", "embed_record", {"reason": "the model is repaired"}),
        ("bart", "resume_type", "embed_record", {}),
    ]


def test_a_limit_counts_from_the_next_claim_on(world: World) -> None:
    add(world, 5)
    act(world, lambda on: types.set_limits(on, "embed_record", Limits(7, 2), seen=Limits(1, None), who=WHO))
    assert claimed(world) == ["embed_record"] * 2
    assert claimed(world) == []
    act(world, lambda on: types.set_limits(on, "embed_record", Limits(7, None), seen=Limits(7, 2), who=WHO))
    assert len(claimed(world)) == 3
    assert [line.details for line in reversed(lines(world))] == [
        {"weight": "1 → 7", "max_running": "∞ → 2"},
        {"max_running": "2 → ∞"},
    ]


def test_what_somebody_else_has_changed_meanwhile_is_not_overwritten(world: World) -> None:
    act(world, lambda on: types.set_limits(on, "suggest", Limits(3, 4), seen=Limits(1, None), who=WHO))
    for seen in (Limits(1, None), Limits(3, None), Limits(1, 4)):

        def overwrite(on: Conn, seen: Limits = seen) -> None:
            types.set_limits(on, "suggest", Limits(9, 9), seen=seen, who=WHO)

        assert refused(world, overwrite) == "type_changed"
    assert found(world, "suggest").limits == Limits(3, 4)
    act(world, lambda on: types.set_limits(on, "suggest", Limits(3, 4), seen=Limits(3, 4), who=WHO))
    assert len(lines(world)) == 1, "what changes nothing is no news"


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (Limits(0, None), "type_weight"),
        (Limits(1001, None), "type_weight"),
        (Limits(1, 0), "type_limit"),
        (Limits(1, 1001), "type_limit"),
    ],
    ids=["no-weight", "too-heavy", "none-at-once", "too-many"],
)
def test_values_that_cannot_be_are_refused(world: World, wanted: Limits, name: str) -> None:
    assert refused(world, lambda on: types.set_limits(on, "suggest", wanted, seen=Limits(1, None), who=WHO)) == name
    assert lines(world) == []


def test_a_type_that_is_none_is_refused(world: World) -> None:
    assert refused(world, lambda on: types.pause(on, "x", who=WHO)) == "no_type"
    assert refused(world, lambda on: types.resume(on, "x", who=WHO)) == "no_type"
    assert refused(world, lambda on: types.set_limits(on, "x", Limits(1, 1), seen=Limits(1, 1), who=WHO)) == "no_type"
    assert refused(world, lambda on: types.pause(on, "suggest", who=WHO, reason="x" * 501)) == "reason_too_long"


def test_the_longest_jobs_of_the_last_day_are_named(world: World) -> None:
    add(world, 4, status="done")
    world.execute(
        "INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome)"
        " SELECT id, 1, 1, now() - make_interval(secs => 20 * n), now(), 'done'"
        " FROM (SELECT id, row_number() OVER (ORDER BY seq) AS n FROM ai_jobs) AS numbered"
    )
    with world.database.connection() as connection:
        assert [round(one.seconds) for one in listing.slow_jobs(connection, 30, limit=2)] == [80, 60]
        assert [round(one.seconds) for one in listing.slow_jobs(connection, 0.5)] == [80, 60, 40, 20]
        assert listing.slow_jobs(connection, 1, job_type="suggest") == []
        connection.execute(
            "UPDATE job_attempts SET ended = ended - interval '25 hours', started = started - interval '25 hours'"
        )
        assert listing.slow_jobs(connection, 1) == []


def test_looking_for_slow_jobs_reads_none_of_the_quick_ones(world: World) -> None:
    add(world, 5_000, status="done")
    world.execute(
        "INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome)"
        " SELECT id, 1, 1, now() - interval '10 ms', now(), 'done' FROM ai_jobs"
    )
    world.execute("ANALYZE job_attempts")
    with world.database.connection() as connection:
        explained = connection.execute(
            f"EXPLAIN {listing.SLOW}".encode(), {"threshold": 8.0, "type": None, "limit": 10}
        ).fetchall()
    assert "job_attempts_long" in "\n".join(str(line[0]) for line in explained)
