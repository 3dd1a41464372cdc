"""A message that may have left: what evidence settles it, what is sent again, and what is held for a person."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.clients.twilio import Listed
from shared.conversation import status
from shared.db.pool import Database
from shared.queue import replay
from tests.fakes.desk import ADDRESS, ANSWER, NOTICE, flagged, fresh, raising, send_own
from tests.fakes.world import World, run_all

QUESTION = "hoeveel verlof heb ik?"
FAULTS = [TimeoutError("silence"), ConnectionResetError("reset"), RuntimeError("who knows")]
REPLY = "SELECT {} FROM messages WHERE source = 'ai' ORDER BY seq DESC LIMIT 1"


@pytest.fixture
def world(database: Database) -> World:
    """An employee who has had an answer before: Twilio's list can be held against that."""
    found = fresh(database)
    settled_before(found)
    return found


def settled_before(world: World) -> None:
    world.says(ADDRESS, "hoi, hoeveel verlof is er?")
    world.run()
    world.pass_time(3600)
    world.line.accepted[0]["body"] = "x"
    world.model.asked.clear()


def reply(world: World) -> tuple[Any, ...]:
    """Of the newest answer: its state, why it is held, whether Twilio has it, what showed that, and the tries."""
    return world.rows(
        "SELECT status, held_reason, provider_sid, evidence, send_attempt FROM messages WHERE source = 'ai'"
        " ORDER BY seq DESC LIMIT 1"
    )[0]


def story(world: World) -> list[str]:
    """What happened to the newest answer."""
    return [what for (what,) in world.rows(
        "SELECT what FROM message_events WHERE message_id = (SELECT id FROM messages WHERE source = 'ai' ORDER BY seq DESC"
        " LIMIT 1) ORDER BY id")]  # fmt: skip


def job(world: World) -> tuple[Any, ...]:
    return world.rows("SELECT status, error_class FROM ai_jobs WHERE type = 'autoreply' ORDER BY seq DESC LIMIT 1")[0]


def doubted(world: World, error: Exception | None = None, *, accepted: bool, text: str = QUESTION) -> None:
    """A question whose answer breaks off while it is sent, once."""
    fault = raising(error or ConnectionResetError("reset"), times=1)
    if accepted:
        world.line.after = fault
    else:
        world.line.before = fault
    world.says(ADDRESS, text)
    world.run()
    assert reply(world)[0] == "sending"
    assert job(world)[0] == "pending"


def sent(world: World) -> int:
    """How often the answer was accepted, beside the one before."""
    return len(world.line.accepted) - 1


def a_sid_of_somebody_else(body: str, age: float = 0.0) -> tuple[str, Listed]:
    return ADDRESS, Listed(f"SM{uuid4().hex}", body, datetime.now(UTC) - timedelta(seconds=age), "sent")


@pytest.mark.parametrize("error", FAULTS, ids=["timeout", "dropped", "unexpected"])
def test_what_twilio_lists_is_confirmed_and_not_sent_again(world: World, error: Exception) -> None:
    doubted(world, error, accepted=True)
    world.pass_time(10)
    world.run()
    assert reply(world) == ("sent", None, world.line.accepted[-1]["sid"], "list", 1)
    assert job(world) == ("done", None)
    assert sent(world) == 1
    assert story(world) == ["intent", "ambiguous", "lookup_found"]
    assert len(world.model.asked) == 1


@pytest.mark.parametrize("error", FAULTS, ids=["timeout", "dropped", "unexpected"])
def test_what_is_not_there_twice_and_after_the_window_is_sent_again(world: World, error: Exception) -> None:
    doubted(world, error, accepted=False)
    for _ in range(3):  # at 10, 40 and 70 s
        world.pass_time(30)
        world.run()
        assert sent(world) == 0
        assert reply(world)[0] == "sending"
    world.pass_time(40)
    world.run()
    assert sent(world) == 1
    assert reply(world)[0] == "sent"
    assert reply(world)[3:] == ("answer", 2)
    assert job(world) == ("done", None)
    assert story(world) == ["intent", "ambiguous", *["lookup_empty"] * 4, "resend", "intent", "accepted"]
    assert len(world.model.asked) == 1
    assert flagged(world) is None


def test_two_looks_in_one_moment_are_one(world: World) -> None:
    doubted(world, accepted=False)
    world.pass_time(200)
    world.run()
    run_all_once(world)
    assert sent(world) == 0
    assert world.value(REPLY.format("lookups_empty")) == 1
    world.pass_time(10)
    world.run()
    assert sent(world) == 1


def run_all_once(world: World) -> None:
    """Look again at once, as a restart does."""
    for _ in range(3):
        world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
        world.run()


def test_a_look_that_failed_breaks_the_row(world: World) -> None:
    doubted(world, accepted=False)
    world.pass_time(130)
    world.run()
    assert world.value(REPLY.format("lookups_empty")) == 1
    world.line.listing = raising_once(world, TimeoutError("silence"))
    world.pass_time(30)
    world.run()
    assert world.value(REPLY.format("lookups_empty")) == 0
    world.pass_time(30)
    world.run()
    assert sent(world) == 0
    world.pass_time(30)
    world.run()
    assert sent(world) == 1


def raising_once(world: World, error: Exception) -> Callable[[], None]:
    def listing() -> None:
        world.line.listing = lambda: None
        raise error

    return listing


def test_a_message_that_appears_late_is_found(world: World) -> None:
    world.line.after = hiding(world, ConnectionResetError("reset"))
    world.says(ADDRESS, QUESTION)
    world.run()
    for _ in range(3):
        world.pass_time(30)
        world.run()
    assert world.value(REPLY.format("lookups_empty")) == 3
    world.line.hidden.clear()
    world.pass_time(60)
    world.run()
    assert reply(world)[3:] == ("list", 1)
    assert sent(world) == 1


def hiding(world: World, error: Exception) -> Callable[[dict[str, Any]], None]:
    """Accepted, broken off, and not in the list yet."""

    def after(message: dict[str, Any]) -> None:
        world.line.after = lambda _: None
        world.line.hidden.add(message["sid"])
        raise error

    return after


def test_a_list_that_lags_or_is_cut_or_has_another_clock_proves_nothing(world: World) -> None:
    doubted(world, accepted=False)
    world.line.hidden.add(world.line.accepted[0]["sid"])
    world.pass_time(130)
    world.run()
    world.line.hidden.clear()
    world.line.is_cut = True
    world.pass_time(30)
    world.run()
    world.line.is_cut = False
    world.line.clock = timedelta(seconds=90)
    world.pass_time(30)
    world.run()
    assert world.rows("SELECT detail FROM message_events WHERE what = 'lookup_failed' ORDER BY id") == [
        ("not_up_to_date",), ("too_many",), ("clock",),
    ]  # fmt: skip
    assert world.value(REPLY.format("lookups_empty")) == 0
    assert sent(world) == 0


@pytest.mark.parametrize("seconds", [-20, 20])
def test_a_clock_that_is_a_little_off_is_taken_into_account(world: World, seconds: int) -> None:
    for message in world.line.accepted:
        message["created"] += timedelta(seconds=seconds)
    world.line.clock = timedelta(seconds=seconds)
    doubted(world, accepted=True)
    world.pass_time(10)
    world.run()
    assert reply(world)[0] == "sent"


def test_redacted_bodies_cannot_pass_for_absence(world: World) -> None:
    doubted(world, accepted=True)
    world.line.is_redacted = True
    world.pass_time(10)
    world.run()
    status_, reason, *_ = reply(world)
    assert status_ == "held"
    assert "may have been sent" in reason
    assert job(world) == ("failed", "held")
    assert flagged(world) == "held"
    assert story(world)[-2:] == ["lookup_foreign", "held"]


def test_a_foreign_message_to_the_same_address_is_for_a_person(world: World) -> None:
    doubted(world, accepted=False)
    world.line.foreign.append(a_sid_of_somebody_else("Uw pakket is onderweg."))
    world.pass_time(10)
    world.run()
    assert reply(world)[0] == "held"
    assert sent(world) == 0


def test_two_unaccounted_messages_with_our_text_are_for_a_person(world: World) -> None:
    doubted(world, accepted=True)
    world.line.foreign.append(a_sid_of_somebody_else(NOTICE.strip() + " " + ANSWER))
    world.line.foreign.append(a_sid_of_somebody_else(world.line.accepted[-1]["body"]))
    world.pass_time(10)
    world.run()
    assert reply(world)[0] == "held"


def test_somebody_else_s_message_to_another_address_means_nothing(world: World) -> None:
    doubted(world, accepted=True)
    world.line.foreign.append(("+31600000009", Listed("SMother", "x", datetime.now(UTC), "sent")))
    world.pass_time(10)
    world.run()
    assert reply(world)[0] == "sent"


def test_two_identical_answers_on_one_day_never_settle_each_other(world: World) -> None:
    """The same text went out a moment before, and is on a row of ours: it proves nothing about this one."""
    world.says(ADDRESS, QUESTION)
    world.run()
    assert world.line.accepted[-1]["body"] == ANSWER
    doubted(world, accepted=False, text="en hoeveel verlof heb ik ook alweer?")
    assert world.value(REPLY.format("body")) == ANSWER
    world.pass_time(10)
    world.run()
    assert reply(world)[0] == "sending"
    world.settle_doubts()
    assert [message["body"] for message in world.line.accepted[1:]] == [ANSWER, ANSWER]
    assert world.value("SELECT count(DISTINCT provider_sid) FROM messages WHERE from_self") == 3


def test_what_was_sent_twice_for_another_message_is_taken_too(world: World) -> None:
    doubted(world, accepted=False)
    twice = a_sid_of_somebody_else(ANSWER)
    world.line.foreign.append(twice)
    world.execute("UPDATE messages SET second_sid = %(sid)s WHERE status = 'sent'", sid=twice[1].sid)
    world.pass_time(10)
    world.run()
    assert reply(world)[0] == "sending"
    assert story(world)[-1] == "lookup_empty"


def test_a_held_message_with_the_same_text_is_not_taken_for_this_one(world: World) -> None:
    """One of the two may be in the list; nobody knows which."""
    doubted(world, accepted=True)
    world.force("UPDATE messages SET status = 'held', held_reason = 'x' WHERE status = 'sending'")
    world.force("UPDATE ai_jobs SET status = 'failed', error_class = 'held' WHERE status = 'pending'")
    doubted(world, accepted=False, text="en hoeveel verlof heb ik ook alweer?")
    world.force("UPDATE messages SET body = (SELECT body FROM messages WHERE status = 'held') WHERE status = 'sending'")
    world.pass_time(10)
    world.run()
    assert reply(world)[0] == "held"


def test_the_first_message_to_an_address_is_held_against_the_last_one_from_our_number(world: World) -> None:
    other = "+31600000002"
    world.line.before = raising(ConnectionResetError("reset"), times=1)
    world.says(other, QUESTION)
    world.run()
    world.pass_time(130)
    world.run()
    assert world.line.looked == [other, None]
    world.settle_doubts()
    assert len(world.sent_to(other)) == 1


def test_without_anything_to_hold_it_against_nothing_counts_as_absent(database: Database) -> None:
    world = fresh(database)
    world.line.before = raising(ConnectionResetError("reset"), times=1)
    world.says(ADDRESS, QUESTION)
    world.run()
    world.settle_doubts(rounds=30)
    assert world.line.accepted == []
    assert reply(world)[0] == "held"
    assert job(world) == ("failed", "held")


def test_looking_that_fails_for_half_an_hour_ends_with_a_person(world: World) -> None:
    doubted(world, accepted=True)
    world.line.listing = always(TimeoutError("silence"))
    for _ in range(20):
        world.pass_time(90)
        world.run()
    assert job(world)[0] == "pending"
    assert reply(world)[0] == "sending"
    world.pass_time(90)
    world.run()
    assert job(world) == ("failed", "held")
    assert reply(world)[0] == "held"
    assert flagged(world) == "held"


def always(error: Exception) -> Callable[[], None]:
    def listing() -> None:
        raise error

    return listing


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


def callback(world: World, message: dict[str, Any], said: str, **more: str) -> bool:
    """Twilio tells what became of a message."""
    key = UUID(message["callback"].split("message=")[1].split("&")[0])
    return status.record(world.database, {"MessageSid": message["sid"], "MessageStatus": said} | more, key)


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
    from tests.fakes.desk import open_suggestions, take_over

    doubted(world, accepted=False)
    take_over(world)
    world.settle_doubts()
    assert sent(world) == 0
    assert reply(world)[:2] == ("failed", "taken_over")
    assert len(open_suggestions(world)) == 1


def test_a_frozen_worker_takes_nothing_back_from_another(world: World) -> None:
    """It wakes up late, finds that its moment has passed, and would put back to draft what the other one has settled."""
    from shared.clients.deadline import TooLate

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
