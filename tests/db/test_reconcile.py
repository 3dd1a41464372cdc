"""A message that may have left: what the list of Twilio proves, and what is for a person."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from shared.clients.twilio import Listed
from shared.db.pool import Database
from tests.fakes.desk import ADDRESS, ANSWER, NOTICE, flagged, fresh, raising
from tests.fakes.doubts import (
    QUESTION,
    REPLY,
    a_sid_of_somebody_else,
    doubted,
    hiding,
    job,
    reply,
    run_all_once,
    sent,
    settled_before,
    story,
)
from tests.fakes.world import World

FAULTS = [TimeoutError("silence"), ConnectionResetError("reset"), RuntimeError("who knows")]


@pytest.fixture
def world(database: Database) -> World:
    """An employee who has had an answer before: Twilio's list can be held against that."""
    found = fresh(database)
    settled_before(found)
    return found


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
