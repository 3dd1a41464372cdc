"""A message that may have left, and what happens meanwhile: a crash, a restart, a callback, other lines of the conversation."""

from __future__ import annotations

import pytest

from shared.clients.deadline import TooLate
from shared.db.pool import Database
from shared.queue import replay
from tests.fakes.desk import ADDRESS, ANSWER, flagged, fresh, open_suggestions, raising, send_own, take_over
from tests.fakes.doubts import (
    QUESTION,
    REPLY,
    a_sid_of_somebody_else,
    callback,
    doubted,
    hiding,
    job,
    reply,
    run_all_once,
    sent,
    settled_before,
)
from tests.fakes.world import World, run_all


@pytest.fixture
def world(database: Database) -> World:
    """An employee who has had an answer before: Twilio's list can be held against that."""
    found = fresh(database)
    settled_before(found)
    return found


def test_a_job_in_doubt_outlives_its_age_limit_and_its_attempts(world: World) -> None:
    doubted(world, accepted=False)
    world.force("UPDATE ai_jobs SET run_started_at = now() - interval '2 hours', attempts = 2 WHERE status = 'pending'")
    for _ in range(3):
        world.pass_time(30)
        world.run()
        assert job(world)[0] == "pending"
    world.pass_time(40)
    world.run()
    assert sent(world) == 1
    assert job(world) == ("done", None)


@pytest.mark.parametrize("accepted", [True, False], ids=["accepted", "not-accepted"])
def test_a_worker_that_dies_while_it_sends_leaves_a_look_up_not_a_burial(world: World, accepted: bool) -> None:
    def dies(_: object) -> None:
        world.line.before = world.line.after = lambda _: None
        raise KeyboardInterrupt  # as a kill: nothing is recorded after it

    if accepted:
        world.line.after = dies
    else:
        world.line.before = dies
    world.says(ADDRESS, QUESTION)
    with pytest.raises(KeyboardInterrupt):
        world.app.worker.poll_once(1)
    world.force(
        "UPDATE ai_jobs SET attempts = 3, lease_until = now() - interval '1 second' WHERE status = 'processing'"
    )
    world.rescue()
    assert job(world)[0] == "pending"
    world.settle_doubts()
    assert job(world) == ("done", None)
    assert sent(world) == 1


def test_a_worker_that_dies_at_each_look_is_given_up_after_half_an_hour(world: World) -> None:
    doubted(world, accepted=True)
    for _ in range(30):
        world.pass_time(90)
        world.rows("SELECT claim_ai_jobs(1)")
        world.force(
            "UPDATE ai_jobs SET attempts = 3, lease_until = now() - interval '1 second' WHERE status = 'processing'"
        )
        world.rescue()
        if job(world)[0] == "failed":
            break
    assert job(world) == ("failed", "poison")
    assert reply(world)[0] == "held"
    assert flagged(world) == "held"
    assert sent(world) == 1  # and no apology


def test_a_resting_type_buries_nothing_that_is_in_doubt(world: World) -> None:
    doubted(world, accepted=True)
    world.execute("UPDATE ai_jobs SET run_started_at = now() - interval '20 minutes' WHERE status = 'pending'")
    world.execute(
        "UPDATE job_types SET resting_until = now() + interval '1 h', resting_reason = 'x' WHERE type = 'autoreply'"
    )
    world.rescue()
    assert job(world)[0] == "pending"
    assert world.value("SELECT min(attempts) FROM ai_jobs") >= 0
    world.execute("UPDATE job_types SET resting_until = NULL, resting_reason = NULL")
    world.pass_time(10)
    world.run()
    assert reply(world)[0] == "sent"


def test_hold_never_sends_again(database: Database) -> None:
    world = fresh(database, AMBIGUOUS_SEND="hold")
    settled_before(world)
    doubted(world, accepted=False)
    world.settle_doubts()
    assert sent(world) == 0
    assert reply(world)[0] == "held"
    assert job(world) == ("failed", "held")
    restart(world)
    world.settle_doubts()
    assert sent(world) == 0
    assert reply(world)[0] == "held"


def test_hold_still_confirms_what_is_there(database: Database) -> None:
    world = fresh(database, AMBIGUOUS_SEND="hold")
    settled_before(world)
    doubted(world, accepted=True)
    world.settle_doubts()
    assert reply(world)[3] == "list"


def test_the_machine_sends_again_twice_at_most(world: World) -> None:
    world.line.before = raising(ConnectionResetError("reset"))
    world.says(ADDRESS, QUESTION)
    world.settle_doubts(rounds=20)
    assert reply(world)[0] == "held"
    assert reply(world)[4] == 3
    assert sent(world) == 0


def restart(world: World) -> None:
    dead = world.value("SELECT id FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL")
    with world.database.connection() as connection:
        assert replay.restart(connection, [dead], who="test") == {dead: "restarted"}


@pytest.mark.parametrize("accepted", [True, False], ids=["accepted", "not-accepted"])
def test_a_restart_of_what_is_held_looks_first(world: World, accepted: bool) -> None:
    doubted(world, accepted=accepted)
    world.line.foreign.append(a_sid_of_somebody_else("Uw pakket is onderweg."))
    world.settle_doubts()
    assert reply(world)[0] == "held"
    world.line.foreign.clear()
    looks = len(world.line.looked)
    restart(world)
    run_all_once(world)
    assert sent(world) == int(accepted)
    assert len(world.line.looked) > looks
    world.settle_doubts()
    assert sent(world) == 1
    assert reply(world)[0] == "sent"
    assert job(world) == ("done", None)


def test_a_message_that_turns_up_after_it_was_released_is_not_sent_again(world: World) -> None:
    """The callback comes between the last empty look and the new request."""
    world.line.after = hiding(world, ConnectionResetError("reset"))
    world.says(ADDRESS, QUESTION)
    world.run()
    first = world.line.accepted[-1]
    world.force(
        "UPDATE messages SET status = 'draft', in_doubt_since = send_started_at, send_started_at = NULL WHERE status = 'sending'"
    )
    assert callback(world, first, "delivered")
    world.pass_time(200)
    world.run()
    assert sent(world) == 1
    assert reply(world)[:1] == ("delivered",)
    assert job(world) == ("done", None)


def test_evidence_of_the_first_try_counts_for_the_second(world: World) -> None:
    """It was sent again, broke off again, and now the list shows the first one: nothing more goes out."""
    world.line.after = hiding(world, ConnectionResetError("reset"))
    world.says(ADDRESS, QUESTION)
    world.run()
    world.line.before = raising(ConnectionResetError("reset"), times=1)
    for _ in range(5):
        world.pass_time(40)
        world.run()
    assert reply(world)[4] == 2
    world.line.hidden.clear()
    world.pass_time(40)
    world.run()
    assert reply(world)[:4] == ("sent", None, world.line.accepted[-1]["sid"], "list")
    assert sent(world) == 1


@pytest.mark.parametrize("said", ["queued", "sent", "delivered", "read"])
def test_a_callback_settles_a_doubt_before_any_look(world: World, said: str) -> None:
    doubted(world, accepted=True)
    assert callback(world, world.line.accepted[-1], said)
    world.pass_time(10)
    world.run()
    assert reply(world)[0] == {"queued": "sent"}.get(said, said)
    assert reply(world)[3] == "callback"
    assert job(world) == ("done", None)
    assert world.line.looked == []


def test_a_callback_settles_what_is_held_with_its_job_and_its_flag(world: World) -> None:
    doubted(world, accepted=True)
    world.line.is_redacted = True
    world.settle_doubts()
    assert flagged(world) == "held"
    assert callback(world, world.line.accepted[-1], "delivered")
    assert reply(world)[:2] == ("delivered", None)
    assert job(world)[0] == "done"
    assert flagged(world) is None


def test_a_callback_in_the_middle_of_a_look_wins(world: World) -> None:
    doubted(world, accepted=False)
    world.pass_time(130)
    world.run()

    def listing() -> None:
        message = {"sid": "SMlate", "callback": f"?message={world.value(REPLY.format('id'))}&try=1"}
        callback(world, message, "sent")

    world.line.listing = listing
    world.pass_time(30)
    world.run()
    assert sent(world) == 0
    assert reply(world)[2:4] == ("SMlate", "callback")
    assert job(world) == ("done", None)


def test_a_later_line_waits_until_the_doubt_is_settled(world: World) -> None:
    doubted(world, accepted=True)
    send_own(world, "Ik lees mee.", seen_seq=0)
    world.run()
    assert sent(world) == 1
    world.settle_doubts()
    assert [message["body"] for message in world.line.accepted[1:]] == [ANSWER, "Ik lees mee."]


def test_a_line_goes_out_after_one_that_is_held(world: World) -> None:
    doubted(world, accepted=False)
    world.line.foreign.append(a_sid_of_somebody_else("Uw pakket is onderweg."))
    send_own(world, "Ik lees mee.", seen_seq=0)
    world.settle_doubts()
    assert [message["body"] for message in world.line.accepted[1:]] == ["Ik lees mee."]


def test_a_small_line_is_looked_up_too(world: World) -> None:
    world.line.after = raising(ConnectionResetError("reset"), times=1)
    world.says(ADDRESS, "stop")
    world.settle_doubts()
    assert world.rows("SELECT status, evidence FROM messages WHERE purpose = 'consent'") == [("sent", "list")]
    assert sent(world) == 1


def test_whoever_opts_out_while_it_is_looked_up_gets_nothing_more(world: World) -> None:
    doubted(world, accepted=False)
    world.says(ADDRESS, "stop")
    world.settle_doubts()
    assert all("200 uur" not in message["body"] for message in world.line.accepted[1:])
    assert reply(world)[0] == "failed"


def test_taking_over_while_it_is_looked_up_keeps_the_answer_as_a_suggestion(world: World) -> None:
    doubted(world, accepted=False)
    take_over(world)
    world.settle_doubts()
    assert sent(world) == 0
    assert reply(world)[:2] == ("failed", "taken_over")
    assert len(open_suggestions(world)) == 1


def test_a_frozen_worker_takes_nothing_back_from_another(world: World) -> None:
    """It wakes up late, finds that its moment has passed, and would put back to draft what the other one has settled."""

    def before(_: object) -> None:
        world.line.before = lambda _: None
        world.force("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'processing'")
        other = world.twin()
        other.rescue()
        other.settle_doubts()
        raise TooLate("frozen")

    world.line.before = before
    world.says(ADDRESS, QUESTION)
    world.run()
    assert reply(world)[0] == "sent"
    assert reply(world)[4] == 2
    assert sent(world) == 1
    run_all(world)
    assert sent(world) == 1
