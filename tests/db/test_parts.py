"""A long reply goes out in parts, one after another: each is sent at most once, and none overtakes the one before it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from shared.clients.twilio import Listed
from shared.conversation import settle
from shared.conversation.text import MESSAGE_UNITS, utf16_units
from shared.db.pool import Database
from shared.queue import replay
from tests.fakes.desk import flagged, fresh, open_messages, open_suggestions, replay_all, send_own, take_over
from tests.fakes.replies import ADDRESS, NOTICE, QUESTION, Refused, callback, raising
from tests.fakes.world import World, run_all

SENTENCE = "Dit is een zin met een 😀 erin, die over verlof gaat [1]. "
LONG = SENTENCE * 80


@pytest.fixture
def world(database: Database) -> World:
    found = fresh(database)
    found.model.says = lambda _: LONG
    return found


def states(world: World) -> list[tuple[Any, ...]]:
    """The parts of the answer, in order: status and reason."""
    return world.rows("SELECT status, held_reason FROM messages WHERE source = 'ai' ORDER BY part")


def job(world: World) -> tuple[Any, ...]:
    return world.rows("SELECT status, error_class FROM ai_jobs WHERE type = 'autoreply' ORDER BY seq LIMIT 1")[0]


def at_part(world: World, number: int, error: Exception, *, times: int = 1, after: bool = False) -> None:
    """The n-th request that is made breaks off."""
    count = [0]
    fails = raising(error, times)

    def plan(message: Any) -> None:
        count[0] += 1
        if count[0] >= number:
            fails(message)

    if after:
        world.line.after = plan
    else:
        world.line.before = plan


def restart(world: World) -> str:
    dead = world.value("SELECT id FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL AND type = 'autoreply'")
    with world.database.connection() as connection:
        return replay.restart(connection, [dead], who="test")[dead]


def test_a_long_answer_goes_out_whole_in_order_with_its_sources_in_the_last_part(world: World) -> None:
    world.says(ADDRESS, QUESTION)
    world.run()
    bodies = world.sent_to(ADDRESS)
    assert len(bodies) == 4
    assert all(utf16_units(body) <= MESSAGE_UNITS for body in bodies)
    whole = "".join(bodies)
    assert whole.startswith(NOTICE + "Dit is")
    assert whole.count("😀") == 80
    assert whole.endswith("\n\nBron: [1] Personeelshandboek › Verlof")
    assert bodies[-1].endswith("Bron: [1] Personeelshandboek › Verlof")
    assert world.rows(
        "SELECT part, parts, status, provider_sid IS NOT NULL, send_attempt, jsonb_array_length(citations) FROM messages"
        " WHERE source = 'ai' ORDER BY part"
    ) == [(number, 4, "sent", True, 1, 1) for number in range(1, 5)]
    assert world.value("SELECT count(DISTINCT reply_id) FROM messages WHERE source = 'ai'") == 1
    assert job(world) == ("done", None)
    assert len(world.model.asked) == 1
    assert world.value("SELECT attempts FROM ai_jobs") == 1


def test_a_part_waits_for_the_one_before_it(world: World) -> None:
    at_part(world, 2, ConnectionRefusedError())
    world.says(ADDRESS, QUESTION)
    world.run()
    assert [status for status, _ in states(world)] == ["sent", "draft", "draft", "draft"]
    assert len(world.line.accepted) == 1
    run_all(world)
    assert len(world.line.accepted) == 4
    assert len(world.model.asked) == 1


@pytest.mark.parametrize("accepted", [True, False], ids=["accepted", "not-accepted"])
def test_a_part_in_doubt_is_looked_up_and_the_rest_follows(world: World, accepted: bool) -> None:
    at_part(world, 2, ConnectionResetError(), after=accepted)
    world.says(ADDRESS, QUESTION)
    world.run()
    assert [status for status, _ in states(world)] == ["sent", "sending", "draft", "draft"]
    world.settle_doubts()
    assert [status for status, _ in states(world)] == ["sent"] * 4
    assert len(world.line.accepted) == 4
    assert "".join(world.sent_to(ADDRESS)).count("😀") == 80


def test_what_is_behind_a_held_part_is_held_with_it(world: World) -> None:
    at_part(world, 2, ConnectionResetError())
    world.says(ADDRESS, QUESTION)
    world.run()
    foreign = Listed(f"SM{uuid4().hex}", "Uw pakket is onderweg.", datetime.now(UTC), "sent")
    world.line.foreign.append((ADDRESS, foreign))
    world.settle_doubts()
    assert [status for status, _ in states(world)] == ["sent", "held", "held", "held"]
    assert "may have been sent" in states(world)[1][1]
    assert [reason for _, reason in states(world)[2:]] == ["earlier_part", "earlier_part"]
    assert job(world) == ("failed", "held")
    assert flagged(world) == "held"
    assert len(world.line.accepted) == 1  # no apology after a part that arrived
    world.line.foreign.clear()
    assert restart(world) == "restarted"
    world.settle_doubts()
    assert [status for status, _ in states(world)] == ["sent"] * 4
    assert len(world.line.accepted) == 4


def test_a_callback_that_settles_the_held_part_leaves_the_rest_to_a_person(world: World) -> None:
    at_part(world, 2, ConnectionResetError(), after=True)
    world.says(ADDRESS, QUESTION)
    world.run()
    world.line.is_redacted = True
    world.settle_doubts()
    callback(world, world.line.accepted[1], "delivered")
    assert [status for status, _ in states(world)] == ["sent", "delivered", "held", "held"]
    assert job(world)[0] == "failed"
    assert restart(world) == "restarted"
    run_all(world)
    assert [status for status, _ in states(world)] == ["sent", "delivered", "sent", "sent"]


def test_a_first_part_that_is_refused_takes_the_rest_along_and_a_restart_sends_all(world: World) -> None:
    at_part(world, 1, Refused("invalid To"))
    world.says(ADDRESS, QUESTION)
    run_all(world)
    assert states(world) == [("failed", "refused"), *[("held", "earlier_part")] * 3]
    assert job(world) == ("failed", "rejected")
    assert [body[:5] for body in world.sent_to(ADDRESS)] == ["Sorry"]
    assert restart(world) == "restarted"
    run_all(world)
    assert [status for status, _ in states(world)] == ["sent"] * 4
    assert len(world.model.asked) == 1


def test_bulk_replay_takes_what_surely_never_left(world: World) -> None:
    at_part(world, 1, ConnectionRefusedError(), times=100)
    world.says(ADDRESS, QUESTION)
    run_all(world)
    assert job(world) == ("failed", "connect")
    world.line.before = lambda _: None
    assert replay_all(world).left_out == 0
    run_all(world)
    assert [status for status, _ in states(world)] == ["sent"] * 4


def test_a_part_that_was_not_delivered_stops_the_rest(world: World) -> None:
    at_part(world, 2, ConnectionRefusedError())
    world.says(ADDRESS, QUESTION)
    world.run()
    callback(world, world.line.accepted[0], "undelivered", ErrorCode="63024")
    run_all(world)
    assert states(world) == [("failed", None), *[("held", "earlier_part")] * 3]
    assert job(world) == ("failed", "earlier_part")
    assert len(world.line.accepted) == 1
    assert restart(world) == "restarted"  # a person knows better
    run_all(world)
    assert [status for status, _ in states(world)] == ["failed", "sent", "sent", "sent"]


def test_opting_out_between_two_parts_stops_the_rest(world: World) -> None:
    at_part(world, 2, ConnectionRefusedError())
    world.says(ADDRESS, QUESTION)
    world.run()
    world.says(ADDRESS, "stop")
    run_all(world)
    assert states(world)[0] == ("sent", None)
    assert all(state == ("failed", "opted_out") for state in states(world)[1:])
    assert [body[:8] for body in world.sent_to(ADDRESS)[1:]] == ["Je ontva"]


def test_taking_over_between_two_parts_holds_the_rest_and_reopens_nothing(world: World) -> None:
    at_part(world, 2, ConnectionRefusedError())
    world.says(ADDRESS, QUESTION)
    world.run()
    take_over(world)
    run_all(world)
    assert states(world) == [("sent", None), *[("failed", "taken_over")] * 3]
    assert open_messages(world) == []
    assert open_suggestions(world) == []
    assert flagged(world) == "manual"


def test_taking_over_before_the_first_part_keeps_the_whole_as_one_suggestion(world: World) -> None:
    at_part(world, 1, ConnectionRefusedError())
    world.says(ADDRESS, QUESTION)
    world.run()
    take_over(world)
    (suggestion,) = open_suggestions(world)
    assert suggestion.count("😀") == 80
    assert not suggestion.startswith(NOTICE)
    assert suggestion.endswith("Bron: [1] Personeelshandboek › Verlof")
    assert len(open_messages(world)) == 1
    with world.database.connection() as connection:
        from shared.conversation import suggestions

        found = world.value("SELECT id FROM suggestions WHERE state = 'open'")
        suggestions.approve(connection, found, who="anna")
    run_all(world)
    assert "".join(world.sent_to(ADDRESS)) == suggestion
    assert (
        world.value("SELECT count(*) FROM messages WHERE source = 'admin' AND jsonb_array_length(citations) = 1") >= 1
    )


def test_a_person_s_long_answer_goes_out_in_parts_too(world: World) -> None:
    world.says(ADDRESS, "hoi")
    take_over(world)
    text = ("Een lange uitleg over verlof en alles wat daarbij hoort. " * 60).strip()
    at_part(world, 2, ConnectionResetError(), after=True)
    message = send_own(world, text)
    world.settle_doubts()
    assert "".join(world.sent_to(ADDRESS)) == text
    assert len(world.sent_to(ADDRESS)) > 1
    assert world.rows("SELECT id, reply_id FROM messages WHERE source = 'admin' AND part = 1") == [(message, message)]
    assert world.value("SELECT count(*) FROM ai_jobs WHERE type = 'send_message'") == 1


def test_a_message_that_comes_between_two_parts_gets_its_own_answer_after_them(world: World) -> None:
    def before(_: Any) -> None:
        if len(world.line.accepted) == 1:
            world.model.says = lambda _: "Ja. [1]"
            world.says(ADDRESS, "en ouderschapsverlof?")

    world.line.before = before
    world.says(ADDRESS, QUESTION)
    run_all(world)
    bodies = world.sent_to(ADDRESS)
    assert len(bodies) == 5
    assert bodies[-1].startswith("Ja. [1]")


def test_a_reply_of_several_parts_counts_as_one_answer_of_the_day(database: Database) -> None:
    world = fresh(database, SENDER_DAILY_LIMIT="2")
    world.model.says = lambda _: LONG
    for n in range(2):
        world.says(ADDRESS, f"vraag nummer {n} over verlof?")
        run_all(world)
    assert len(world.model.asked) == 2


@pytest.mark.parametrize("own_answer", [False, True], ids=["", "own-answer"])
@pytest.mark.parametrize("action", [settle.look_again, settle.send_again, settle.close_without_sending])
@pytest.mark.parametrize("accepted", [True, False], ids=["accepted", "not-accepted"])
@pytest.mark.parametrize("number", [1, 2])
def test_whatever_is_done_about_a_held_part_the_parts_go_out_in_their_order(
    world: World, number: int, accepted: bool, action: Callable[..., None], own_answer: bool
) -> None:
    """Each at most once and none before the one it follows; all of them, if the held one goes out and nobody else answers."""
    at_part(world, number, ConnectionResetError(), after=accepted)
    world.says(ADDRESS, QUESTION)
    world.run()
    world.line.foreign.append((ADDRESS, Listed(f"SM{uuid4().hex}", "Uw pakket.", datetime.now(UTC), "sent")))
    world.settle_doubts()
    world.line.foreign.clear()
    said = [body for (body,) in world.rows("SELECT body FROM messages WHERE source = 'ai' ORDER BY part")]
    held = world.value("SELECT id FROM messages WHERE source = 'ai' AND part = %(number)s", number=number)
    with world.database.connection() as connection:
        action(connection, held, who="anna")
    if own_answer:
        send_own(world)
    world.settle_doubts(rounds=30)  # of a first message that nobody has, Twilio's list alone proves nothing
    sent = [body for body in world.sent_to(ADDRESS) if body != "Dag, met HR."]
    assert sent == said[: len(sent)]
    if own_answer or action is settle.close_without_sending:
        assert len(sent) <= number
    elif accepted or (action is settle.send_again and number > 1):
        assert len(sent) == 4
    assert world.value("SELECT count(*) FROM messages WHERE status IN ('draft', 'sending')") == 0
