"""What Twilio tells about a message that we sent: in any order, twice, too early, about nobody; and what follows from it."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest

from shared.conversation import status, webhook
from shared.conversation.undelivered import WAITS
from shared.db.pool import Database
from shared.request import Request
from shared.signature import parse_form, sign_twilio
from tests.fakes.desk import ANSWER, flagged, fresh, take_over
from tests.fakes.replies import ADDRESS, NOTICE, QUESTION, callback, job_row, raising, reply_row
from tests.fakes.world import World, run_all


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


def answered(world: World) -> dict[str, Any]:
    """A question and its answer, as Twilio has it."""
    world.says(ADDRESS, QUESTION)
    world.run()
    return world.line.accepted[-1]


def state(world: World) -> tuple[Any, ...]:
    return world.rows(
        "SELECT status, provider_sid, error_code, second_sid FROM messages WHERE source = 'ai' ORDER BY seq LIMIT 1"
    )[0]


@pytest.mark.parametrize("order", list(itertools.permutations(["sent", "delivered", "read"])), ids="-".join)
def test_any_order_ends_at_the_last_state(world: World, order: tuple[str, ...]) -> None:
    message = answered(world)
    for said in order:
        callback(world, message, said)
        assert callback(world, message, said) is False  # doubled
    assert state(world) == ("read", message["sid"], None, None)
    assert flagged(world) is None


def test_a_callback_that_overtakes_our_own_commit_is_not_lost(world: World) -> None:
    world.line.after = lambda message: callback(world, message, "delivered")
    message = answered(world)
    assert state(world)[:2] == ("delivered", message["sid"])
    assert job_row(world) == ("done", None)


def test_a_callback_that_comes_before_the_line_breaks_settles_the_send(world: World) -> None:
    def after(message: dict[str, Any]) -> None:
        callback(world, message, "delivered")
        raise ConnectionResetError("reset")

    world.line.after = after
    world.says(ADDRESS, QUESTION)
    run_all(world)
    assert reply_row(world)[0] == "delivered"
    assert job_row(world) == ("done", None)
    assert flagged(world) is None
    assert world.line.looked == []


def test_a_failure_that_overtakes_our_own_commit_stays_one(world: World) -> None:
    world.line.after = lambda message: callback(world, message, "failed", ErrorCode="63024")
    message = answered(world)
    assert state(world)[:3] == ("failed", message["sid"], "63024")
    assert job_row(world) == ("done", None)
    assert flagged(world) == "undelivered"


def test_a_message_of_nobody_changes_nothing(world: World) -> None:
    answered(world)
    assert status.record(world.database, {"MessageSid": "SMnobody", "MessageStatus": "failed"}, None) is False
    assert status.record(world.database, {"MessageSid": "SMnobody", "MessageStatus": "failed"}, UUID(int=0)) is False
    assert flagged(world) is None


def test_a_draft_that_nobody_has_tried_to_send_is_not_sent(world: World) -> None:
    world.says(ADDRESS, "hoi")
    take_over(world)
    from tests.fakes.desk import send_own

    message = send_own(world)
    assert status.record(world.database, {"MessageSid": "SMx", "MessageStatus": "sent"}, message) is False
    run_all(world)
    assert world.sent_to(ADDRESS) == ["Dag, met HR."]


def test_what_we_took_for_unsent_and_twilio_has_is_not_sent_again(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError())
    world.says(ADDRESS, QUESTION)
    world.run()
    assert reply_row(world)[0] == "draft"
    key = world.value("SELECT id FROM messages WHERE source = 'ai'")
    assert status.record(world.database, {"MessageSid": "SMx", "MessageStatus": "sent"}, key) is True
    run_all(world)
    assert world.line.accepted == []
    assert state(world)[:2] == ("sent", "SMx")
    assert job_row(world) == ("done", None)


def test_a_dead_letter_whose_message_turns_up_is_done(world: World) -> None:
    world.line.before = raising(ConnectionRefusedError(), times=3)
    world.says(ADDRESS, QUESTION)
    run_all(world)
    assert job_row(world) == ("failed", "connect")
    key = world.value("SELECT id FROM messages WHERE source = 'ai'")
    assert status.record(world.database, {"MessageSid": "SMx", "MessageStatus": "delivered"}, key) is True
    assert state(world)[:2] == ("delivered", "SMx")
    assert job_row(world)[0] == "done"


def test_the_sid_of_another_message_is_refused_quietly(world: World) -> None:
    for number in range(2):
        world.says(f"+3160000000{number}", QUESTION)
    world.run()
    first, second = world.line.accepted
    assert callback(world, second | {"sid": first["sid"]}, "read") is False
    rows = world.rows("SELECT count(*) FROM messages WHERE from_self AND (status <> 'sent' OR second_sid IS NOT NULL)")
    assert rows == [(0,)]


def test_a_second_sid_is_recorded_once_and_somebody_is_asked(world: World) -> None:
    message = answered(world)
    callback(world, message, "delivered")
    other = message | {"sid": "SMsecond"}
    assert callback(world, other, "failed", ErrorCode="63024") is True
    assert callback(world, other, "sent") is False
    assert state(world) == ("delivered", message["sid"], None, "SMsecond")
    assert flagged(world) == "sent_twice"
    assert world.rows("SELECT detail FROM message_events WHERE what = 'second_sid'") == [("SMsecond",)]


def test_our_own_answer_can_be_the_second_sid(world: World) -> None:
    """The callback of a first try, which broke off and was sent again, comes in while the second one is accepted."""
    world.line.after = lambda message: callback(world, message | {"sid": "SMfirst"}, "sent")
    message = answered(world)
    assert state(world)[1] == "SMfirst"
    assert state(world)[3] == message["sid"]
    assert flagged(world) == "sent_twice"
    assert job_row(world) == ("done", None)


def test_an_undelivered_reply_counts_and_is_flagged(world: World) -> None:
    message = answered(world)
    assert callback(world, message, "undelivered", ErrorCode="63024")
    assert callback(world, message, "failed", ErrorCode="30008") is False
    assert state(world)[:3] == ("failed", message["sid"], "63024")
    assert flagged(world) == "undelivered"
    assert world.value("SELECT count(*) FROM ai_jobs") == 1
    assert world.value("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == 0


def retries(world: World) -> list[tuple[Any, ...]]:
    return world.rows("SELECT status, send_attempt FROM messages WHERE retry_of IS NOT NULL ORDER BY seq")


def test_what_passes_is_tried_again_as_a_message_of_its_own_twice_at_most(world: World) -> None:
    message = answered(world)
    for number, wait in enumerate(WAITS, start=1):
        callback(world, message, "failed", ErrorCode="63018")
        assert len(retries(world)) == number
        due = world.value(
            "SELECT extract(epoch FROM next_run_at - created_at) FROM ai_jobs WHERE type = 'send_message' AND status = 'pending'"
        )
        assert due == wait
        run_all(world)
        assert len(world.line.accepted) == number + 1
        message = world.line.accepted[-1]
        assert message["body"] == NOTICE + ANSWER
    callback(world, message, "failed", ErrorCode="63018")
    run_all(world)
    assert len(world.line.accepted) == 3
    assert retries(world) == [("failed", 1), ("failed", 1)]
    assert len(world.model.asked) == 1
    assert flagged(world) == "undelivered"


def test_a_callback_for_the_first_try_is_not_taken_for_the_second(world: World) -> None:
    message = answered(world)
    callback(world, message, "failed", ErrorCode="63018")
    run_all(world)
    callback(world, message, "failed", ErrorCode="63018")
    assert retries(world) == [("sent", 1)]
    callback(world, world.line.accepted[-1], "delivered")
    assert retries(world) == [("delivered", 1)]


def test_a_new_try_does_not_keep_others_waiting(world: World) -> None:
    callback(world, answered(world), "failed", ErrorCode="63018")
    world.says(ADDRESS, "en ouderschapsverlof?")
    world.run()
    assert len(world.line.accepted) == 2
    assert retries(world) == [("draft", 0)]


def test_a_new_try_of_the_machine_s_answer_ends_when_a_person_takes_over(world: World) -> None:
    callback(world, answered(world), "failed", ErrorCode="63018")
    take_over(world)
    run_all(world)
    assert len(world.line.accepted) == 1
    assert retries(world) == [("failed", 0)]


def test_the_story_of_a_message_can_be_read(world: World) -> None:
    message = answered(world)
    callback(world, message, "delivered")
    rows = world.rows("SELECT what, attempt, detail FROM message_events ORDER BY id")
    assert rows == [("intent", 1, None), ("accepted", 1, message["sid"]), ("callback", 1, "delivered")]


@pytest.mark.parametrize("form", [
    {"MessageSid": "SM1\0", "MessageStatus": "sent"},
    {"MessageSid": "SM1\ud800", "MessageStatus": "sent"},
    {"MessageSid": "SM1", "MessageStatus": "sent\0"},
    {"MessageSid": "SM1", "MessageStatus": "failed", "ErrorCode": "\0"},
    {"MessageStatus": "delivered"},
    {},
], ids=["sid-nul", "sid-surrogate", "status", "code", "no-sid", "empty"])  # fmt: skip
@pytest.mark.parametrize("is_known", [True, False])
def test_a_signed_form_that_postgres_cannot_hold_is_taken(world: World, form: dict[str, str], is_known: bool) -> None:
    answered(world)
    message = world.value("SELECT id FROM messages WHERE source = 'ai'") if is_known else UUID(int=0)
    fields = {name.encode(): value.encode("utf-8", "surrogatepass") for name, value in form.items()}
    body = urlencode(fields).encode()
    url = f"{world.settings.public_base_url}/api/twilio/status?message={message}"
    signed = sign_twilio(url, parse_form(body), world.settings.twilio_auth_token)
    request = Request(url, {"content-type": webhook.FORM, "x-twilio-signature": signed}, body)
    assert webhook.receive_status(request, world.settings, world.database).status == 204
