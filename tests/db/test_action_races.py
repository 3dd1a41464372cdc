"""What people do, against workers and messages that come at the same moment."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from shared.app import App
from shared.boundary import Boundary
from shared.conversation import actions
from shared.db.pool import Database
from shared.errors import UserError
from tests.fakes.crowd import roomy_pool
from tests.fakes.desk import (
    ADDRESS,
    ANSWER,
    NOTICE,
    WHO,
    conversation,
    flagged,
    fresh,
    open_messages,
    send_own,
    take_over,
)
from tests.fakes.world import World, run_all

STATUS_OF_ANSWER = "SELECT status FROM messages WHERE conversation_id = %(id)s AND source = 'ai'"
OUTCOME = """
    SELECT EXISTS (SELECT FROM messages m WHERE m.conversation_id = c.id AND NOT m.from_self AND m.answered_by IS NULL),
        (SELECT count(*) FROM suggestions s WHERE s.conversation_id = c.id AND s.state = 'open'),
        (SELECT count(*) FROM ai_jobs j WHERE j.conversation_id = c.id AND j.status IN ('pending', 'processing'))
    FROM conversations c WHERE c.id = %(id)s
"""


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


def test_taking_over_races_with_the_worker(world: World) -> None:
    """Whatever the moment: it was on its way before, or nothing goes out and the question is open, with a suggestion."""
    moments: Counter[str] = Counter()
    for round_ in range(60):
        address = f"+316000010{round_:02}"
        drafting, drafted, sending, taken = (threading.Event() for _ in range(4))

        def says(_: Any, drafting: threading.Event = drafting) -> str:
            drafting.set()
            return "Je hebt 200 uur verlof. [1]"

        def before(_: Any, sending: threading.Event = sending) -> None:
            sending.set()

        def between(
            boundary: Boundary, drafted: threading.Event = drafted, taken: threading.Event = taken, round_: int = round_
        ) -> None:
            if boundary is Boundary.DRAFTED and 35 <= round_ < 45:  # the narrowest of all: chance may not meet it
                drafted.set()
                assert taken.wait(30)

        world.model.says, world.line.before = says, before
        world.app = App(
            world.settings, database=world.database, wake=world.wake, chat=world.model, embedder=world.model,
            line=world.line, checkpoint=between,
        )  # fmt: skip
        world.says(address, "hoeveel verlof heb ik?")
        target = world.value("SELECT id FROM conversations WHERE address = %(address)s", address=address)

        began = drafting if round_ < 35 else drafted if round_ < 45 else sending

        def take(
            target: UUID = target,
            began: threading.Event = began,
            taken: threading.Event = taken,
            turns: int = round_ * 600,
        ) -> str:
            assert began.wait(30)
            for _ in range(turns):  # a little later each round
                pass
            with world.database.transaction() as connection:
                actions.take_over(connection, target, who=WHO)
                rows = connection.execute(STATUS_OF_ANSWER, {"id": target}).fetchall()
            taken.set()
            return str(rows[0][0]) if rows else "none"

        with ThreadPoolExecutor(2) as pool:
            working, taking = pool.submit(world.run), pool.submit(take)
            working.result()
            moment = taking.result()
        world.run()
        moments[moment] += 1
        is_open, suggested, active = world.rows(OUTCOME, id=target)[0]
        if moment in ("sending", "sent"):
            assert world.sent_to(address) == [NOTICE + ANSWER]
            assert not is_open
        else:
            assert world.sent_to(address) == []
            assert is_open
            assert suggested == 1
        assert active == 0
    assert moments["draft"] >= 10
    assert moments["sending"] + moments["sent"] >= 15


def test_own_answers_race_with_messages(world: World) -> None:
    """Each own answer covers what its page showed and nothing that came later; what is left stays open."""
    world.says(ADDRESS, "vraag 0")
    take_over(world)
    target = conversation(world)
    covers: list[tuple[UUID, int]] = []

    def write() -> None:
        for n in range(1, 61):
            world.says(ADDRESS, f"vraag {n}")

    def answer() -> None:
        with world.database.connection() as connection:
            for n in range(30):
                row = connection.execute(
                    "SELECT max(seq) FROM messages WHERE conversation_id = %s AND NOT from_self", [target]
                ).fetchone()
                assert row is not None
                message = actions.send_own(connection, target, f"antwoord {n}", who=WHO, seen_seq=row[0])
                covers.append((message, row[0]))

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(write), pool.submit(answer)]
        for future in running:
            future.result()
    before = 0
    for message, seen in covers:
        wrong = world.value(
            "SELECT count(*) FROM messages WHERE NOT from_self AND ((answered_by = %(message)s)"
            " <> (seq > %(before)s AND seq <= %(seen)s))",
            message=message, before=before, seen=seen,
        )  # fmt: skip
        assert wrong == world.value(
            "SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL AND seq > %(before)s"
            " AND seq <= %(seen)s",
            before=before, seen=seen,
        ) == 0  # fmt: skip
        before = seen
    assert world.value("SELECT count(*) FROM messages WHERE answered_by IS NULL AND NOT from_self AND seq <= %(s)s",
                       s=before) == 0  # fmt: skip


@pytest.fixture
def roomy(database_url: str) -> Iterator[Database]:
    """A pool with a connection for everybody."""
    with roomy_pool(database_url, 20) as pool:
        yield pool


def test_people_workers_and_messages_all_at_once(roomy: Database) -> None:
    """Nothing deadlocks, nobody is answered by two, and at the end nothing is open without a job or a flag."""
    world = fresh(roomy)
    addresses = [f"+3160000010{n}" for n in range(3)]
    for address in addresses:
        world.says(address, "hoi, hoeveel verlof heb ik?")
    ids = [row[0] for row in world.rows("SELECT id FROM conversations ORDER BY address")]
    done = [False]

    def write(n: int) -> None:
        for m in range(15):
            world.says(addresses[n], f"vraag {m}?")

    def work(_: int) -> None:
        while not done[0]:
            world.app.worker.poll_once(4)

    def act(n: int) -> None:
        def attempt(action: Callable[..., object], *arguments: Any, **named: Any) -> None:
            try:
                with world.database.connection() as connection:
                    action(connection, *arguments, who=WHO, **named)
            except UserError as wrong:
                assert wrong.name in ("already_manual", "already_auto", "nothing_to_resolve")  # noqa: PT017

        for m in range(12):
            attempt(actions.take_over, ids[n])
            seen = world.value("SELECT max(seq) FROM messages WHERE conversation_id = %(id)s", id=ids[n])
            attempt(actions.send_own, ids[n], f"antwoord {m}", seen_seq=seen)
            attempt(actions.hand_back, ids[n], answer_waiting=m % 2 == 0, seen_seq=seen)
            attempt(actions.resolve, ids[n])

    with ThreadPoolExecutor(8) as pool:
        workers = [pool.submit(work, n) for n in range(2)]
        busy = [pool.submit(job, n) for job in (write, act) for n in range(3)]
        for future in busy:
            future.result()
        done[0] = True
        for worker in workers:
            worker.result()
    run_all(world, rounds=60)  # one after another of what was written
    assert (
        world.rows("SELECT type, error_class, last_error FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL")
        == []
    )
    assert open_messages(world) == []
    doubled = world.rows(
        "SELECT body, count(*) FROM messages WHERE source = 'admin' AND status <> 'sent' GROUP BY body"
    )
    assert doubled == []
    assert world.value("SELECT count(*) FROM messages WHERE status IN ('draft', 'sending')") == 0
    assert len(world.line.accepted) == world.value(
        "SELECT count(*) FROM messages WHERE provider_sid IS NOT NULL AND from_self"
    )
    assert world.rows("SELECT error FROM job_attempts WHERE error_class = 'database'") == []
    unheld = world.value("SELECT count(*) FROM messages WHERE source = 'ai' AND status = 'failed'"
                         " AND held_reason IS DISTINCT FROM 'taken_over'")  # fmt: skip
    assert unheld == 0


@pytest.mark.parametrize("text", ["???", "start"])
@pytest.mark.parametrize("action", ["take_over", "send_own"])
def test_a_person_comes_before_a_line_that_is_being_made(world: World, action: str, text: str) -> None:
    came: list[Boundary] = []

    def between(boundary: Boundary) -> None:
        if boundary is Boundary.READ and not came:
            came.append(boundary)
            if action == "take_over":
                take_over(world)
            else:
                send_own(world)

    world.app = App(
        world.settings, database=world.database, wake=world.wake, chat=world.model, embedder=world.model,
        line=world.line, checkpoint=between,
    )  # fmt: skip
    world.says(ADDRESS, text)
    run_all(world)
    assert came
    assert world.value("SELECT count(*) FROM messages WHERE source = 'system'") == 0
    if action == "take_over":
        assert world.line.accepted == []
        assert open_messages(world) == [text]
        assert flagged(world) == "manual"
    else:
        assert world.sent_to(ADDRESS) == ["Dag, met HR."]
        assert open_messages(world) == []
