"""New tries of what Twilio took and did not deliver: when there are none, what they say, and that a person's answer ends them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from shared.conversation import actions, settle, suggestions
from shared.db.pool import Database
from shared.queue import replay
from tests.fakes.desk import (
    WHO,
    conversation,
    flagged,
    fresh,
    hand_back,
    newest,
    open_messages,
    refused,
    replay_all,
    send_own,
    take_over,
)
from tests.fakes.replies import ADDRESS, ANSWER, NOTICE, QUESTION, Refused, callback, held_answer, raising
from tests.fakes.world import World, run_all

TEMPLATE = "HX" + "1" * 32
A_DAY_LATER = "UPDATE conversations SET last_inbound_at = now() - interval '24 hours 1 second'"
OWN = "Dag, met HR."
PASSES = "63018"


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


@pytest.fixture
def templated(database: Database) -> World:
    """What the model says takes two parts."""
    world = fresh(database, TWILIO_TEMPLATE_SID=TEMPLATE)
    world.model.says = lambda _: "Dit is een zin over verlof en wat daarbij hoort [1]. " * 32
    return world


def undelivered(world: World, code: str = PASSES) -> UUID:
    """An answer that did not arrive."""
    world.says(ADDRESS, QUESTION)
    world.run()
    callback(world, world.line.accepted[-1], "undelivered", ErrorCode=code)
    message: UUID = world.value("SELECT id FROM messages WHERE source = 'ai' AND retry_of IS NULL")
    return message


def act(world: World, action: Callable[..., None], message: UUID) -> None:
    with world.database.connection() as connection:
        action(connection, message, who=WHO)


def tries(world: World) -> list[tuple[Any, ...]]:
    return world.rows("SELECT status, held_reason FROM messages WHERE retry_of IS NOT NULL ORDER BY seq")


def texts(world: World) -> list[str]:
    return [m["template"].variables["1"] if m["template"] else m["body"] for m in world.line.accepted]


def test_a_confirmation_is_not_tried_again(world: World) -> None:
    """It passes the opt-out: "welcome back" must not come after another STOP."""
    for word in ("STOP", "START"):
        world.says(ADDRESS, word)
        run_all(world)
    welcome = world.line.accepted[-1]
    world.says(ADDRESS, "STOP")
    run_all(world)
    callback(world, welcome, "undelivered", ErrorCode=PASSES)
    run_all(world)
    assert len(world.line.accepted) == 3
    assert tries(world) == []
    assert flagged(world) == "undelivered"


@pytest.mark.parametrize("told", [(), ("sent",)], ids=["at once", "after it was sent"])
def test_what_a_person_has_closed_is_not_tried_again(world: World, told: tuple[str, ...]) -> None:
    message = held_answer(world, accepted=True)
    act(world, settle.close_without_sending, message)
    for said in told:
        callback(world, world.line.accepted[-1], said)
    callback(world, world.line.accepted[-1], "undelivered", ErrorCode=PASSES)
    run_all(world)
    assert len(world.line.accepted) == 1
    assert tries(world) == []
    assert flagged(world) == "undelivered"
    act(world, settle.send_again, message)  # a person may still say so
    run_all(world)
    assert len(world.line.accepted) == 2


def test_what_twilio_has_twice_is_not_tried_again(world: World) -> None:
    world.says(ADDRESS, QUESTION)
    world.run()
    (message,) = world.line.accepted
    callback(world, message | {"sid": "SMsecond"}, "delivered")
    callback(world, message, "undelivered", ErrorCode=PASSES)
    run_all(world)
    assert len(world.line.accepted) == 1
    assert flagged(world) == "undelivered"


def test_a_person_s_answer_ends_the_new_try(world: World) -> None:
    undelivered(world)
    own = send_own(world)
    assert tries(world) == [("failed", "taken_over")]
    assert world.value("SELECT answered_by FROM messages WHERE NOT from_self") == own
    run_all(world)
    assert texts(world) == [NOTICE + ANSWER, OWN]
    assert world.rows("SELECT DISTINCT status FROM ai_jobs WHERE closed_at IS NULL") == [("done",)]


def test_it_stays_ended_when_the_conversation_is_handed_back(world: World) -> None:
    undelivered(world)
    take_over(world)
    send_own(world)
    world.run()
    hand_back(world)
    run_all(world)
    assert texts(world) == [NOTICE + ANSWER, OWN]


def test_the_answer_to_what_the_person_has_not_seen_is_tried_again(world: World) -> None:
    world.says(ADDRESS, "hoi")
    run_all(world)
    seen = newest(world)
    undelivered(world)
    send_own(world, seen_seq=seen)
    run_all(world)
    assert sorted(texts(world)[-2:]) == sorted([OWN, texts(world)[1]])
    assert tries(world) == [("sent", None)]


def test_an_approved_suggestion_ends_the_new_try(world: World) -> None:
    undelivered(world)
    with world.database.connection() as connection:
        suggestions.ask(connection, conversation(world), who=WHO)
    world.run()
    suggestion = world.value("SELECT id FROM suggestions WHERE state = 'open'")
    with world.database.connection() as connection:
        message = suggestions.approve(connection, suggestion, who=WHO)
    run_all(world)
    assert tries(world) == [("failed", "taken_over")]
    assert world.value("SELECT answered_by FROM messages WHERE NOT from_self") == message
    assert texts(world) == [NOTICE + ANSWER, ANSWER]


def test_a_new_try_that_is_in_doubt_is_not_sent_after_a_person_has_answered(world: World) -> None:
    undelivered(world)
    world.line.before = raising(ConnectionResetError())
    world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
    world.run()
    assert tries(world) == [("sending", None)]
    send_own(world)
    world.settle_doubts()
    assert OWN in texts(world)
    assert len(texts(world)) == 2


def test_what_is_held_is_not_sent_after_a_person_has_answered(world: World) -> None:
    world.says("+31600000009", QUESTION)  # Twilio's list can be held against this one
    world.run()
    world.pass_time(3600)
    world.line.accepted[0]["created"] = datetime.now(UTC)
    held_answer(world, accepted=False)
    dead = world.value("SELECT id FROM dead_letters")
    own_conversation = world.value("SELECT id FROM conversations WHERE address = %(address)s", address=ADDRESS)
    with world.database.connection() as connection:
        actions.send_own(connection, own_conversation, OWN, who=WHO, seen_seq=newest(world))
    world.run()
    with world.database.connection() as connection:
        assert replay.restart(connection, [dead], who=WHO) == {dead: "restarted"}
    world.settle_doubts()
    assert world.sent_to(ADDRESS) == [OWN]
    assert world.rows("SELECT status, held_reason FROM messages WHERE source = 'ai' ORDER BY seq DESC LIMIT 1") == [
        ("failed", "taken_over")
    ]


def test_sending_again_after_a_person_has_answered_is_refused(world: World) -> None:
    message = undelivered(world, "63003")
    send_own(world)
    run_all(world)
    assert refused(lambda: act(world, settle.send_again, message)) == "answered_meanwhile"
    run_all(world)
    assert texts(world) == [NOTICE + ANSWER, OWN]


def test_sending_again_closes_the_tries_that_died(world: World) -> None:
    message = undelivered(world)
    world.line.before = raising(Refused())
    run_all(world)
    assert tries(world) == [("failed", "refused")]
    act(world, settle.send_again, message)
    run_all(world)
    callback(world, world.line.accepted[-1], "delivered")
    assert world.rows("SELECT FROM dead_letters") == []
    assert replay_all(world).restarted == 0
    run_all(world)
    assert len(world.line.accepted) == 2
    assert open_messages(world) == []


def test_a_new_try_of_a_template_carries_the_whole_answer(templated: World) -> None:
    templated.line.before = raising(ConnectionRefusedError())
    templated.says(ADDRESS, QUESTION)
    templated.run()
    templated.execute(A_DAY_LATER)
    run_all(templated)
    for _ in range(2):
        callback(templated, templated.line.accepted[-1], "undelivered", ErrorCode=PASSES)
        run_all(templated)
    first, *others = texts(templated)
    assert first.endswith(" … Bron: [1] Personeelshandboek › Verlof")
    assert others == [first, first]
    assert tries(templated) == [("failed", None), ("failed", "in_template"), ("sent", None), ("failed", "in_template")]
    assert (
        templated.rows("SELECT part, parts FROM messages WHERE retry_of IS NOT NULL ORDER BY seq")
        == [(1, 2), (2, 2)] * 2
    )


def test_once_the_employee_writes_it_goes_out_as_texts_and_each_part_is_tried_for_itself(templated: World) -> None:
    templated.line.before = raising(ConnectionRefusedError())
    templated.says(ADDRESS, QUESTION)
    templated.run()
    templated.execute(A_DAY_LATER)
    run_all(templated)
    callback(templated, templated.line.accepted[-1], "undelivered", ErrorCode=PASSES)
    templated.execute("UPDATE conversations SET last_inbound_at = now()")
    run_all(templated)
    bodies = [body for (body,) in templated.rows("SELECT body FROM messages WHERE source = 'ai' ORDER BY seq LIMIT 2")]
    assert texts(templated)[1:] == bodies
    callback(templated, templated.line.accepted[-1], "undelivered", ErrorCode=PASSES)
    run_all(templated)
    assert texts(templated)[1:] == [*bodies, bodies[1]]
    callback(templated, templated.line.accepted[1], "undelivered", ErrorCode=PASSES)
    run_all(templated)
    assert texts(templated)[1:] == [*bodies, bodies[1], bodies[0]]


def test_new_tries_of_several_parts_keep_their_order(templated: World) -> None:
    templated.says(ADDRESS, QUESTION)
    run_all(templated)
    first, second = templated.line.accepted
    templated.execute(A_DAY_LATER)
    callback(templated, second, "failed", ErrorCode="63016")
    templated.run()
    assert len(templated.line.accepted) == 2, "the part before it may have failed as well"
    callback(templated, first, "failed", ErrorCode="63016")
    templated.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
    templated.execute(
        "UPDATE ai_jobs j SET next_run_at = now() + interval '1 hour' FROM messages m"
        " WHERE j.status = 'pending' AND m.id::text = j.payload ->> 'message_id' AND m.retry_of IN"
        " (SELECT id FROM messages WHERE part = 1 AND parts = 2)"
    )
    templated.run()
    assert len(templated.line.accepted) == 2, "it waits for that one's new try"
    run_all(templated)
    order = templated.rows(
        "SELECT o.part FROM messages r JOIN messages o ON o.id = r.retry_of JOIN message_events e ON e.message_id = r.id"
        " WHERE e.what = 'accepted' ORDER BY e.id"
    )
    assert order == [(1,), (2,)]
