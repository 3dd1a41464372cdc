"""Beside the fault matrix: what people send, identical answers, and lists and clocks that are wrong in rarer ways."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from tests.e2e.matrix import OUTCOMES, Cell, End
from tests.e2e.matrix_cells import ANSWER, HOUR, QUESTION, Play, Stage, begin, play_cell

OWN = "Dat zoek ik voor je uit, morgen hoor je meer."
LOST, TAKEN = "connection lost, not accepted yet", "connection lost, accepted"


def end(outcome: str, **changes: object) -> End:
    return replace(OUTCOMES[outcome].end, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("request_row", "lookup", "outcome"),
    [
        (LOST, "shows it", "found"),
        (LOST, "empty", "again"),
        (LOST, "foreign", "held 0"),
        (LOST, "fails", "held 0"),
        (LOST, "empty, hold", "held 0"),
        (TAKEN, "shows it", "found"),
        (TAKEN, "after 30 s", "found"),
        (TAKEN, "redacted", "held 1"),
        (TAKEN, "fails", "held 1"),
        ("500, not accepted yet", "empty", "again"),
        ("201 with a broken body, accepted", "shows it", "found"),
        ("connection refused", "shows it", "retried"),
        ("429 too many, Retry-After: 7", "shows it", "retried"),
        ("401 key refused", "shows it", "rests"),
        ("400 refused", "shows it", "refused"),
    ],
)
def test_what_an_administrator_sends_goes_the_same_way(
    stage: Stage, request_row: str, lookup: str, outcome: str
) -> None:
    got = play_cell(
        stage, Cell(request_row, lookup, outcome), start=partial(Play.answer, text=OWN), kind="send_message", text=OWN
    )
    assert got == end(outcome, drafts=0, apologies=0)


def identical(stage: Stage) -> Play:
    """Somebody who has just been given the very answer that the next question gets, too."""
    play = begin(stage)
    play.ask()
    play.run()
    assert play.state().message == "sent"
    play.pass_time(60)
    return play


@pytest.mark.parametrize(("request_row", "outcome"), [(LOST, "again"), (TAKEN, "found")])
def test_an_identical_answer_is_no_evidence_for_the_next(stage: Stage, request_row: str, outcome: str) -> None:
    play = identical(stage)
    got = play_cell(stage, Cell(request_row, "", outcome), play=play)
    assert got == end(outcome)
    bodies = [body for body in stage.inside.sent_to(play.address) if ANSWER in body]
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]
    sids = stage.world.rows(
        "SELECT provider_sid FROM messages WHERE conversation_id = %(id)s AND from_self", id=play.conversation_id
    )
    assert len(set(sids)) == 3, "each has a sid of its own"


def test_two_of_the_same_text_cannot_be_told_apart(stage: Stage) -> None:
    play = begin(stage)
    stage.twilio.faults.add("create", "drop_after", times=1)
    play.ask()
    play.run()
    stage.twilio.place(play.address, stage.twilio.sent[-1].body)  # from the account's own console, say
    play.run_to_the_end()
    state = play.state()
    assert (state.message, state.job, state.asked) == ("held", "failed", "held")
    assert play.accepted(ANSWER) == 1


@pytest.mark.parametrize(
    ("row", "lag", "outcome"), [(LOST, 10 * HOUR, "held 0"), (TAKEN, 10 * HOUR, "held 1"), (LOST, 0.0, "again")]
)
def test_a_list_that_does_not_show_what_is_known_to_be_there_proves_nothing(
    stage: Stage, row: str, lag: float, outcome: str
) -> None:
    stage.twilio.conditions.list_lag = lag
    assert play_cell(stage, Cell(row, "", outcome)) == end(outcome)


@pytest.mark.parametrize(
    ("row", "offset", "outcome"),
    [
        (TAKEN, -20.0, "found"),
        (LOST, -20.0, "again"),
        (TAKEN, -90.0, "held 1"),
        (LOST, -90.0, "held 0"),
        (TAKEN, 29.0, "found"),
        (TAKEN, 36.0, "held 1"),  # the Date is cut to whole seconds, and a look may take some
    ],
)
def test_a_clock_that_is_behind_or_just_too_far_off(stage: Stage, row: str, offset: float, outcome: str) -> None:
    stage.twilio.conditions.clock_offset = offset
    assert play_cell(stage, Cell(row, "", outcome)) == end(outcome)


def test_what_went_out_before_is_not_taken_for_later_by_a_clock_that_is_ahead(stage: Stage) -> None:
    play = begin(stage)
    stage.twilio.place(play.address)  # somebody else's, well before the request
    play.pass_time(80)
    stage.twilio.conditions.clock_offset = 29.0
    assert play_cell(stage, Cell(LOST, "", "again"), play=play) == end("again")


def test_who_has_never_been_written_to_is_judged_by_the_last_message_to_anybody(stage: Stage) -> None:
    begin(stage)  # somebody else, to whom it is known that a message went
    play = begin(stage)
    stage.world.force("DELETE FROM message_events WHERE message_id IN (SELECT id FROM messages WHERE conversation_id = %(id)s)",
                      id=play.conversation_id)  # fmt: skip
    stage.world.force("DELETE FROM messages WHERE conversation_id = %(id)s", id=play.conversation_id)
    for message in [message for message in stage.twilio.sent if message.to.endswith(play.address)]:
        stage.twilio.messages.delete(message.sid)
    assert play_cell(stage, Cell(LOST, "", "again"), play=play) == end("again")


@pytest.mark.parametrize("fault", ["drop_before", "drop_after"])
def test_a_second_request_that_breaks_off_too_is_looked_up_as_well(stage: Stage, fault: str) -> None:
    """The first is not found and sent again; the second breaks off as well, and is found or sent a third time."""
    play = begin(stage)
    stage.twilio.faults.add("create", "drop_before", times=1)
    stage.twilio.faults.add("create", fault, times=1)  # type: ignore[arg-type]
    play.ask(QUESTION)
    play.run()
    play.run_to_the_end()
    state = play.state()
    assert (state.message, state.job) == ("sent", "done")
    assert (state.evidence, state.attempts) == (("answer", 3) if fault == "drop_before" else ("list", 2))
    assert play.accepted(ANSWER) == 1


def test_one_empty_look_after_the_window_is_not_enough(stage: Stage) -> None:
    """The host was away for the whole window, and comes back while the list still lags."""
    play = begin(stage)
    stage.twilio.conditions.list_lag = HOUR / 2
    stage.twilio.faults.add("create", "drop_after", times=1)
    play.ask()
    play.run()
    play.pass_time(150)
    play.run()
    assert play.state().message == "sending"
    stage.twilio.conditions.list_lag = 0.0
    play.run_to_the_end()
    assert (play.state().message, play.state().evidence) == ("sent", "list")
    assert play.accepted(ANSWER) == 1


def test_two_empty_looks_within_the_window_are_not_enough(stage: Stage) -> None:
    play = begin(stage)
    stage.twilio.conditions.list_lag = HOUR / 2
    stage.twilio.faults.add("create", "drop_after", times=1)
    play.ask()
    play.run()
    for _ in range(5):
        play.pass_time(20)
        play.run()
        assert play.state().message == "sending"
    stage.twilio.conditions.list_lag = 0.0
    play.run_to_the_end()
    assert play.accepted(ANSWER) == 1


def test_a_failed_look_between_two_empty_ones_begins_anew(stage: Stage) -> None:
    play = begin(stage)
    stage.twilio.conditions.list_lag = HOUR / 2
    stage.twilio.faults.add("create", "drop_after", times=1)
    play.ask()
    play.run()
    play.pass_time(150)
    play.run()
    stage.twilio.faults.add("list", "status", status=500, times=1)
    for _ in range(2):
        play.pass_time(30)
        play.run()
        assert play.state().message == "sending"
    stage.twilio.conditions.list_lag = 0.0
    play.run_to_the_end()
    assert play.accepted(ANSWER) == 1
