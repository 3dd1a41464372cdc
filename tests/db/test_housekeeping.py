"""Work that comes round, and forgetting what is done."""

from __future__ import annotations

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg
import pytest

from shared.db.pool import Database
from shared.errors import DatabaseAway
from shared.queue.housekeeping import Chore, Housekeeping, on_connection
from shared.queue.retention import BATCH, Retention
from tests.fakes.eventually import eventually
from tests.fakes.queue_bench import QueueBench
from tests.fakes.world import World

INVOCATION: contextvars.ContextVar[str] = contextvars.ContextVar("invocation")
TABLES = ("ai_jobs", "job_attempts", "job_types", "messages")


@pytest.fixture
def bench(database: Database) -> QueueBench:
    found = QueueBench(database)
    found.execute("TRUNCATE chores")
    return found


def make_due(bench: QueueBench) -> None:
    bench.execute("UPDATE chores SET ran_at = ran_at - interval '61 s'")


def test_a_chore_is_done_once_a_period_over_all_instances(bench: QueueBench) -> None:
    lock, ran = threading.Lock(), 0
    together = threading.Barrier(6, timeout=30)

    def work(_: Database) -> None:
        nonlocal ran
        with lock:
            ran += 1

    def instance(_: int) -> None:
        keeping = Housekeeping(bench.database, [Chore("counted", 60, work)])
        together.wait()
        keeping.run_if_due()
        keeping.run_if_due()

    for expected in (1, 2, 3):
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(instance, range(6)))
        assert ran == expected
        make_due(bench)


def test_chores_are_done_in_the_context_of_the_timer(bench: QueueBench) -> None:
    """Beside a drain they run in a thread, whose log lines the platform keeps only if it knows the invocation."""
    INVOCATION.set("this one")
    seen: list[str] = []
    keeping = Housekeeping(bench.database, [Chore("seen", 60, lambda _: seen.append(INVOCATION.get("none")))])
    with keeping.going_on():
        make_due(bench)
        eventually(lambda: len(seen) == 2)
    assert seen == ["this one"] * 2


def test_each_chore_has_its_own_period(bench: QueueBench) -> None:
    ran: list[str] = []
    keeping = Housekeeping(
        bench.database,
        [Chore("often", 60, lambda _: ran.append("often")), Chore("daily", 86_400, lambda _: ran.append("daily"))],
    )
    keeping.run_if_due()
    make_due(bench)
    keeping.run_if_due()
    assert ran == ["often", "daily", "often"]


def test_one_chore_that_fails_keeps_the_others_from_nothing(
    bench: QueueBench, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    def fails(_: Database) -> None:
        raise KeyError("a bug")

    keeping = Housekeeping(
        bench.database, [Chore("broken", 60, fails), Chore("sound", 60, lambda _: ran.append("sound"))]
    )
    keeping.run_if_due()
    assert ran == ["sound"]
    assert [line for line in caplog.messages if "chore_failed" in line and "broken" in line]


def test_the_database_s_faults_are_logged_and_not_raised(bench: QueueBench, caplog: pytest.LogCaptureFixture) -> None:
    def away(_: Database) -> None:
        raise DatabaseAway("away")

    Housekeeping(bench.database, [Chore("away", 60, away)]).run_if_due()
    nowhere = Database("postgresql://nobody@127.0.0.1:1/none", 1)
    try:
        Housekeeping(nowhere, [Chore("x", 60, away)]).run_if_due()
    finally:
        nowhere.close()
    assert len([line for line in caplog.messages if "housekeeping_failed" in line]) == 2


def test_chores_go_on_beside_a_long_drain_and_end_with_it(bench: QueueBench) -> None:
    ran: list[int] = []
    keeping = Housekeeping(
        bench.database, [Chore("quick", 0.5, on_connection(lambda connection: ran.append(connection.info.backend_pid)))]
    )
    with keeping.going_on():
        assert ran, "at once, not a second later"
        eventually(lambda: len(ran) >= 2)
    assert "housekeeping" not in [thread.name for thread in threading.enumerate()]


def finished(bench: QueueBench, count: int, days: int, status: str = "done") -> list[UUID]:
    rows = bench.rows(
        "INSERT INTO ai_jobs (payload, status, attempts, claims, created_at, updated_at)"
        " SELECT jsonb_build_object('type', 'embed_record'), %(status)s, 1, 1, now() - make_interval(days => %(days)s),"
        " now() - make_interval(days => %(days)s) FROM generate_series(1, %(count)s) RETURNING id",
        status=status,
        days=days,
        count=count,
    )
    jobs = [row[0] for row in rows]
    bench.execute("INSERT INTO job_attempts (job_id, run, claim, started, outcome)"
                  " SELECT id, 1, 1, now(), 'done' FROM unnest(%(jobs)s::uuid[]) AS made (id)", jobs=jobs)  # fmt: skip
    return jobs


def left(bench: QueueBench) -> set[UUID]:
    return {row[0] for row in bench.rows("SELECT id FROM ai_jobs")}


def test_only_what_is_done_and_old_is_forgotten_with_its_attempts(bench: QueueBench) -> None:
    dead, waiting = finished(bench, 3, 400, "failed"), finished(bench, 2, 400, "pending")
    finished(bench, 10, 31)
    young = finished(bench, 4, 29)
    late = finished(bench, 1, 31)
    bench.execute("UPDATE ai_jobs SET status = 'processing', claims = 2, lease_token = gen_random_uuid(), lease_until = now()"
                  " WHERE id = %(id)s", id=waiting[0])  # fmt: skip
    assert Retention(30).forget_finished(bench.database) == 11
    assert left(bench) == {*dead, *waiting, *young}
    assert not left(bench) & set(late)
    assert bench.rows("SELECT count(*) FROM job_attempts") == [(9,)]


def test_it_goes_on_where_it_stopped_and_comes_round_again(bench: QueueBench) -> None:
    finished(bench, 3 * BATCH, 400, "failed")
    finished(bench, 9 * BATCH, 31)
    retention = Retention(30)
    assert [retention.forget_finished(bench.database) for _ in range(3)] == [7 * BATCH, 2 * BATCH, 0]
    assert retention.after == 0
    more = finished(bench, 5, 31)
    assert retention.forget_finished(bench.database) == len(more)
    assert len(left(bench)) == 3 * BATCH


def test_what_is_locked_is_waited_for_by_nobody_and_forgotten_the_next_time(bench: QueueBench) -> None:
    old = finished(bench, 5, 31)
    with bench.database.transaction() as other:
        other.execute("SELECT FROM ai_jobs WHERE id = %s FOR SHARE", [old[0]])
        assert Retention(30).forget_finished(bench.database) == 4
    assert left(bench) == {old[0]}
    assert Retention(30).forget_finished(bench.database) == 1


def test_claims_and_completions_go_on_while_it_forgets(bench: QueueBench) -> None:
    finished(bench, 6 * BATCH, 31)
    bench.add(200)
    with ThreadPoolExecutor(1) as pool:
        forgetting = pool.submit(Retention(30).forget_finished, bench.database)
        assert bench.worker.drain(8, 90) == 200
        assert forgetting.result() == 6 * BATCH
    assert bench.states() == {"done": 200}


def test_a_suggestion_outlives_its_job(bench: QueueBench) -> None:
    (job,) = finished(bench, 1, 31)
    bench.execute(
        "INSERT INTO suggestions (conversation_id, asked_by, job_id, text, language, answers)"
        " VALUES (%(conversation)s, 'anna', %(job)s, 'x', 'nl', '{}')",
        conversation=bench.conversation("+31600000001"),
        job=job,
    )
    assert Retention(30).forget_finished(bench.database) == 1
    assert bench.rows("SELECT job_id FROM suggestions") == [(job,)]


def test_the_timer_does_the_chores_of_the_application(bench: QueueBench) -> None:
    finished(bench, 3, 400)
    World(bench.database).app.on_timer()
    assert left(bench) == set()
    assert {"forget_finished", "flag_overdue", "unknown_types"} <= {
        row[0] for row in bench.rows("SELECT name FROM chores")
    }


def test_vacuum_comes_by_number_of_rows(database: Database) -> None:
    with psycopg.connect(database._url) as connection:
        rows = connection.execute(
            "SELECT relname, reloptions FROM pg_class WHERE relname = ANY (%s)", [list(TABLES)]
        ).fetchall()
    options = {str(table): list(found) for table, found in rows}
    for table in TABLES:
        assert any(option.startswith("autovacuum_vacuum_scale_factor=0") for option in options[table]), table
    assert "fillfactor=70" in options["ai_jobs"]
