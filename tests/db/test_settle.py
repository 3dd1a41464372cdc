"""What a person does about a message that is held or never went out: look again, send again (which looks first), or close."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from shared.clients.twilio import Listed
from shared.conversation import actions, settle
from shared.db.pool import Conn, Database
from shared.errors import UserError
from tests.fakes.desk import WHO, audited, conversation, flagged, fresh, refused
from tests.fakes.replies import ADDRESS, QUESTION, Refused, callback, held_answer, job_row, raising
from tests.fakes.world import World, run_all


@pytest.fixture(params=["resend", "hold"])
def world(database: Database, request: pytest.FixtureRequest) -> World:
    """A person's word counts the same whatever AMBIGUOUS_SEND says."""
    found = fresh(database, AMBIGUOUS_SEND=request.param)
    found.says("+31600000009", QUESTION)  # somebody has had an answer: Twilio's list can be held against that
    found.run()
    found.pass_time(3600)
    found.line.accepted[0]["created"] = datetime.now(UTC)
    return found


def held(world: World, *, accepted: bool) -> UUID:
    """An answer that may have arrived, and for which a person is asked."""
    message = held_answer(world, accepted=accepted)
    assert flagged_for(world) == "held"
    return message


def flagged_for(world: World) -> str | None:
    reason: str | None = world.value(
        "SELECT needs_person_reason FROM conversations WHERE address = %(address)s", address=ADDRESS
    )
    return reason


def act(world: World, action: Callable[..., None], message: UUID) -> None:
    with world.database.connection() as connection:
        action(connection, message, who=WHO)


def state(world: World, message: UUID) -> tuple[Any, ...]:
    return world.rows("SELECT status, held_reason FROM messages WHERE id = %(id)s", id=message)[0]


def dead(world: World) -> list[tuple[Any, ...]]:
    return world.rows("SELECT error_class FROM dead_letters")


def story(world: World, message: UUID) -> list[str]:
    rows = world.rows("SELECT what FROM message_events WHERE message_id = %(id)s ORDER BY id", id=message)
    return [what for (what,) in rows]


def test_looking_again_confirms_what_is_there(world: World) -> None:
    message = held(world, accepted=True)
    act(world, settle.look_again, message)
    world.settle_doubts()
    assert state(world, message) == ("sent", None)
    assert dead(world) == []
    assert flagged_for(world) is None
    assert len(world.sent_to(ADDRESS)) == 1
    assert audited(world)[-1][1] == "look_again"


def test_looking_again_never_sends(world: World) -> None:
    message = held(world, accepted=False)
    act(world, settle.look_again, message)
    world.settle_doubts()
    assert state(world, message)[0] == "held"
    assert world.sent_to(ADDRESS) == []
    assert dead(world) == [("held",)]
    assert flagged_for(world) == "held"


@pytest.mark.parametrize("accepted", [True, False], ids=["accepted", "not-accepted"])
def test_sending_again_looks_first(world: World, accepted: bool) -> None:
    message = held(world, accepted=accepted)
    looks = len(world.line.looked)
    act(world, settle.send_again, message)
    world.run()
    assert len(world.sent_to(ADDRESS)) == int(accepted)
    assert len(world.line.looked) > looks
    world.settle_doubts()
    assert state(world, message) == ("sent", None)
    assert len(world.sent_to(ADDRESS)) == 1
    assert dead(world) == []
    assert story(world, message).count("released") == 1


def test_the_order_to_send_again_holds_for_one_try(world: World) -> None:
    message = held(world, accepted=False)
    act(world, settle.send_again, message)
    world.line.before = raising(ConnectionResetError())
    for _ in range(3):
        world.run()
        world.pass_time(20)
    assert world.value("SELECT when_absent FROM messages WHERE id = %(id)s", id=message) is None


def test_sending_again_in_spite_of_a_foreign_message_is_held_again(world: World) -> None:
    message = held(world, accepted=False)
    world.line.foreign.append((ADDRESS, Listed("SMforeign", "Uw pakket.", datetime.now(UTC), "sent")))
    act(world, settle.send_again, message)
    world.settle_doubts()
    assert state(world, message)[0] == "held"
    assert world.sent_to(ADDRESS) == []


def test_closing_ends_it_and_a_late_callback_is_still_recorded(world: World) -> None:
    message = held(world, accepted=True)
    act(world, settle.close_without_sending, message)
    assert state(world, message) == ("failed", "closed")
    assert dead(world) == []
    assert flagged_for(world) is None
    assert story(world, message)[-1] == "closed"
    assert audited(world)[-1][1:] == ("close_without_sending", str(conversation_of(world)))
    assert refused(lambda: act(world, settle.send_again, message)) == "not_to_send"
    callback(world, world.line.accepted[-1], "delivered")
    assert state(world, message) == ("delivered", None)
    assert world.value("SELECT closed_reason FROM ai_jobs WHERE closed_at IS NOT NULL") == "closed_without_sending"


def conversation_of(world: World) -> UUID:
    found: UUID = world.value("SELECT id FROM conversations WHERE address = %(address)s", address=ADDRESS)
    return found


def test_what_was_refused_can_be_sent_again(world: World) -> None:
    world.line.before = raising(Refused("invalid To"))
    world.says(ADDRESS, QUESTION)
    run_all(world)
    message = world.value("SELECT id FROM messages WHERE held_reason = 'refused'")
    assert refused(lambda: act(world, settle.look_again, message)) == "not_held"
    act(world, settle.send_again, message)
    run_all(world)
    assert state(world, message) == ("sent", None)


def test_what_was_not_delivered_is_sent_as_a_new_message_once(world: World) -> None:
    world.says(ADDRESS, QUESTION)
    world.run()
    callback(world, world.line.accepted[-1], "undelivered", ErrorCode="63024")
    message = world.value("SELECT id FROM messages WHERE status = 'failed'")
    act(world, settle.send_again, message)
    assert refused(lambda: act(world, settle.send_again, message)) == "not_to_send"
    run_all(world)
    assert len(world.sent_to(ADDRESS)) == 2
    assert state(world, message)[0] == "failed"


@pytest.mark.parametrize("action", [settle.look_again, settle.send_again, settle.close_without_sending])
def test_what_went_out_or_is_nowhere_is_left_alone(world: World, action: Callable[..., None]) -> None:
    message = world.value("SELECT id FROM messages WHERE from_self")
    for wrong in (message, UUID(int=0), world.value("SELECT id FROM messages WHERE NOT from_self")):
        with pytest.raises(UserError):
            act(world, action, wrong)
    assert audited(world) == []


def test_while_another_answer_is_made_it_says_so_and_changes_nothing(world: World) -> None:
    message = held(world, accepted=False)
    world.says(ADDRESS, "en ouderschapsverlof?")
    assert refused(lambda: act(world, settle.send_again, message)) == "answer_under_way"
    assert world.value("SELECT when_absent FROM messages WHERE id = %(id)s", id=message) is None
    world.settle_doubts()
    act(world, settle.send_again, message)
    world.settle_doubts()
    assert state(world, message)[0] == "sent"


@pytest.mark.parametrize("arrives", [True, False], ids=["found", "absent"])
def test_taking_over_while_it_is_looked_up_waits_for_what_the_look_finds(world: World, arrives: bool) -> None:
    world.model.says = lambda _: "Dit is een zin over verlof en wat daarbij hoort [1]. " * 40
    message = held(world, accepted=arrives)
    assert parts(world) == [("held", False), ("held", True)]
    act(world, settle.look_again, message)
    took_over(world)
    world.settle_doubts()
    if arrives:
        assert parts(world) == [("sent", False), ("failed", False)]
        assert dead(world) == []
        assert flagged_for(world) == "manual"  # the rest is for that person to say
    else:
        assert parts(world) == [("held", False), ("held", True)]
        assert dead(world) == [("held",)]
        act(world, settle.close_without_sending, message)
        assert parts(world) == [("failed", False), ("failed", False)]
    assert len(world.sent_to(ADDRESS)) == int(arrives)


def parts(world: World) -> list[tuple[Any, ...]]:
    return world.rows(
        "SELECT m.status, coalesce(m.held_reason = 'earlier_part', false) FROM messages m"
        " JOIN conversations c ON c.id = m.conversation_id WHERE c.address = %(address)s AND m.source = 'ai' ORDER BY part",
        address=ADDRESS,
    )


def took_over(world: World) -> None:
    with world.database.connection() as connection:
        actions.take_over(connection, conversation_of(world), who=WHO)


def answered_by_hand(world: World) -> None:
    seen = world.value("SELECT max(seq) FROM messages WHERE NOT from_self")
    with world.database.connection() as connection:
        actions.send_own(connection, conversation_of(world), "Dag, met HR.", who=WHO, seen_seq=seen)


def undelivered(world: World) -> UUID:
    """An answer that Twilio has taken and could not deliver."""
    world.says(ADDRESS, QUESTION)
    world.run()
    callback(world, world.line.accepted[-1], "undelivered", ErrorCode="63003")
    message: UUID = world.value("SELECT id FROM messages WHERE status = 'failed'")
    return message


def unsent(world: World) -> UUID:
    """An answer that Twilio has refused."""
    world.line.before = raising(Refused("invalid To"))
    world.says(ADDRESS, QUESTION)
    run_all(world)
    message: UUID = world.value("SELECT id FROM messages WHERE held_reason = 'refused'")
    return message


def is_in_doubt(world: World) -> UUID:
    return held(world, accepted=False)


@pytest.mark.parametrize("kind", [undelivered, is_in_doubt, unsent])
def test_what_would_not_be_sent_where_a_person_answers_is_not_promised(
    world: World, kind: Callable[[World], UUID]
) -> None:
    message = kind(world)
    took_over(world)
    before = world.value("SELECT count(*) FROM messages")
    assert refused(lambda: act(world, settle.send_again, message)) == "taken_over"
    assert world.value("SELECT count(*) FROM messages") == before
    assert world.value("SELECT count(*) FROM ai_jobs WHERE status = 'pending'") == 0


@pytest.mark.parametrize("kind", [undelivered, is_in_doubt])
def test_nothing_is_sent_again_to_who_has_opted_out(world: World, kind: Callable[[World], UUID]) -> None:
    message = kind(world)
    world.says(ADDRESS, "STOP")
    run_all(world)
    assert refused(lambda: act(world, settle.send_again, message)) == "opted_out"


def test_nothing_is_sent_again_that_others_have_answered(world: World) -> None:
    message = undelivered(world)
    answered_by_hand(world)
    world.execute(
        "UPDATE messages SET answered_by = (SELECT id FROM messages WHERE source = 'admin') WHERE answered_by IS NOT NULL"
    )
    run_all(world)
    assert refused(lambda: act(world, settle.send_again, message)) == "answered_meanwhile"


@pytest.mark.parametrize("run", range(4))
def test_two_people_at_once_do_one_thing(world: World, run: int) -> None:
    del run
    message = held(world, accepted=False)

    def one(action: Callable[[Conn, UUID], None]) -> bool:
        try:
            act(world, action, message)
        except UserError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(one, (settle.send_again, settle.close_without_sending))) == [False, True]
    world.settle_doubts()
    assert state(world, message)[0] in ("sent", "failed")
    assert job_row(world)[0] in ("done", "failed")
    assert flagged(world) is None
    assert conversation(world)
