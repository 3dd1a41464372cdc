"""How a message of ours was sent, told for people: the steps, what settled a doubt, why it is held, and what can be done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from shared.conversation.detail import Message
from shared.conversation.events import Event
from shared.ops.message_story import Actions, Told, tell

START = datetime(2026, 3, 3, 12, 0, tzinfo=UTC)
REPLY = UUID(int=1)
MESSAGE = Message(
    id=UUID(int=2), seq=1, from_self=True, source="ai", purpose="answer", body="x", media=[], status="held",
    held_reason="x", error_code=None, citations=[], created_at=START, is_open=False, needs_no_answer=False, job_id=REPLY,
    job_type="autoreply", job_error_class="held", job_next_run_at=None, job_attempts=1, job_state="failed",
    written_by=None, reply_id=REPLY, part=1, parts=1, evidence=None, template_sid=None, is_retry=False,
    is_accepted=False, is_in_doubt=True, has_dead_letter=True, is_retried=False,
)  # fmt: skip


def events(*happened: str) -> list[Event]:
    """Events by what they are, each with its detail behind a colon."""
    found = []
    for number, one in enumerate(happened):
        what, _, detail = one.partition(":")
        found.append(Event(MESSAGE.id, START + timedelta(seconds=number), 1, what, detail or None))
    return found


def told(message: Message, *happened: str, may_send: bool = True) -> Told:
    return tell([message], {message.id: events(*happened)}, may_send=may_send)[message.id]


def test_each_event_is_a_step_and_looks_in_a_row_are_one() -> None:
    steps = told(
        MESSAGE, "intent", "ambiguous:timeout", "lookup_empty", "lookup_empty", "lookup_failed:clock", "lookup_empty",
        "released:send_again", "resend", "intent:HX1", "refused:63016", "callback:undelivered 63024 SM1",
        "callback:delivered SM1", "not_sent:throttled",
    ).steps  # fmt: skip
    assert [(step.name, step.said, step.code, step.why, step.times, step.tone) for step in steps] == [
        ("intent", None, None, None, 1, "calm"),
        ("ambiguous", None, None, "timeout", 1, "wait"),
        ("lookup_empty", None, None, None, 2, "calm"),
        ("lookup_failed", None, None, "clock", 1, "wait"),
        ("lookup_empty", None, None, None, 1, "calm"),
        ("send_again", None, None, None, 1, "calm"),
        ("resend", None, None, None, 1, "calm"),
        ("intent_template", None, None, None, 1, "calm"),
        ("refused", None, "63016", None, 1, "bad"),
        ("callback", "undelivered", "63024", None, 1, "bad"),
        ("callback", "delivered", None, None, 1, "good"),
        ("not_sent", None, None, "throttled", 1, "wait"),
    ]


@pytest.mark.parametrize(
    ("happened", "doubt"),
    [
        (["intent"], "unknown"),
        (["intent", "ambiguous"], "unknown"),
        (["intent", "lookup_empty", "lookup_failed:timeout"], "failing"),
        (["intent", "lookup_failed:timeout", "lookup_empty"], "not_found"),
        (["intent", "lookup_foreign", "released:look_again", "lookup_empty"], "foreign"),
        (["intent", "lookup_foreign", "resend", "intent", "lookup_empty"], "not_found"),
    ],
    ids=["a-crash", "no-look", "failing", "not-there", "foreign", "of-the-last-try"],
)
def test_a_held_message_says_what_the_looks_have_shown(happened: list[str], doubt: str) -> None:
    assert told(MESSAGE, *happened).doubt == doubt
    assert told(replace(MESSAGE, is_in_doubt=False), *happened).doubt is None
    assert told(replace(MESSAGE, template_sid="HX1"), "intent").doubt == "template"


def test_what_settled_it_is_said_only_where_there_was_a_doubt() -> None:
    sent = replace(MESSAGE, status="sent", is_accepted=True, is_in_doubt=False, evidence="list")
    assert told(sent, "intent", "ambiguous", "lookup_found:sent SM1").settled == "list"
    assert told(sent, "intent", "lookup_found:sent SM1").settled == "list", "a killed process leaves no other trace"
    assert told(replace(sent, evidence="answer"), "intent", "accepted:SM1").settled is None
    assert told(MESSAGE, "intent", "ambiguous").settled is None


@pytest.mark.parametrize(
    ("changes", "may_send", "actions"),
    [
        ({}, True, Actions(looks=True, sends="after_look", closes=True)),
        ({}, False, Actions(looks=True, closes=True)),
        ({"is_in_doubt": False}, True, Actions(sends="unsent", closes=True)),
        ({"status": "failed", "is_in_doubt": False}, True, Actions(sends="unsent", closes=True)),
        ({"has_dead_letter": False}, True, Actions()),
        ({"status": "sending"}, True, Actions()),
        ({"status": "failed", "is_accepted": True, "has_dead_letter": False}, True, Actions(sends="anew")),
        ({"status": "failed", "is_accepted": True, "is_retried": True}, True, Actions()),
        ({"status": "failed", "is_accepted": True}, False, Actions()),
        ({"status": "delivered", "is_accepted": True}, True, Actions()),
    ],
)
def test_what_can_be_done_depends_on_where_it_is(changes: dict[str, object], may_send: bool, actions: Actions) -> None:
    assert told(replace(MESSAGE, **changes), may_send=may_send).actions == actions  # type: ignore[arg-type]


def test_of_a_reply_in_parts_the_first_that_is_stuck_has_the_buttons() -> None:
    first = replace(MESSAGE, status="sent", is_accepted=True, is_in_doubt=False)
    second, third = replace(MESSAGE, id=uuid4()), replace(MESSAGE, id=uuid4(), is_in_doubt=False)
    asked = replace(MESSAGE, id=uuid4(), from_self=False)
    found = tell([asked, first, second, third], {}, may_send=True)
    assert [bool(found[one.id].actions.closes) for one in (first, second, third)] == [False, True, False]
    assert asked.id not in found
