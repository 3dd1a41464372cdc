"""What a look at Twilio's list may conclude, whatever is in it: absence only from proof, presence only from our own text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clients.twilio import Listed, Listing
from shared.conversation.evidence import (
    CLOCK_SECONDS_AT_MOST,
    EARLIER_SECONDS,
    EMPTY_BEFORE_RESEND,
    LOOK_EVERY_SECONDS,
    RESENDS_AT_MOST,
    Absent,
    Doubt,
    Empty,
    Found,
    Held,
    Judgement,
    Rule,
    Unclear,
    candidates,
    judge,
    wait_for_callback,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BODY = "Je hebt 200 uur verlof. [1]\n\nBron: [1] Handboek"

ages = st.floats(-30, 400)
bodies = st.sampled_from([BODY, BODY.replace("\n\n", "  "), BODY.replace("200", "120"), "", "   ", "iets anders"])
listed = st.builds(
    lambda sid, body, age: Listed(sid, body, NOW - timedelta(seconds=age), "sent"),
    st.sampled_from(["SM1", "SM2", "SM3", "SM4"]), bodies, ages,
)  # fmt: skip
listings = st.builds(
    lambda messages, reaches: Listing(tuple(messages), NOW, reaches),
    st.lists(listed, max_size=4, unique_by=lambda message: message.sid), st.booleans(),
)  # fmt: skip
doubts = st.builds(
    lambda waited, first, empties, since_look, resends, has_rival: Doubt(
        BODY, NOW - timedelta(seconds=waited + first), waited, empties, since_look, resends, has_rival
    ),
    st.floats(0, 300), st.sampled_from([0.0, 0.0, 200.0]), st.integers(0, 3), st.none() | st.floats(0, 60), st.integers(0, 3),
    st.booleans(),
)  # fmt: skip
rules = st.builds(Rule, st.floats(1, 200), st.booleans(), st.booleans())
offsets = st.floats(-90, 90).map(lambda seconds: timedelta(seconds=seconds))


@given(doubts, rules, listings, offsets, st.sets(st.sampled_from(["SM1", "SM2", "SM3"])), st.booleans())
def test_every_conclusion_has_its_proof(
    doubt: Doubt, rule: Rule, listing: Listing, offset: timedelta, ours: set[str], up_to_date: bool
) -> None:
    judgement = judge(doubt, rule, listing, offset=offset, ours=ours, is_up_to_date=up_to_date)
    unaccounted = [message for message in candidates(listing, doubt.since, offset) if message.sid not in ours]
    is_readable = abs(offset.total_seconds()) <= CLOCK_SECONDS_AT_MOST and listing.reaches
    match judgement:
        case Found(message):
            assert is_readable
            assert unaccounted == [message]
            assert message.body.split() == BODY.split()
            assert not doubt.has_rival
        case Absent():
            assert is_readable
            assert up_to_date
            assert unaccounted == []
            assert doubt.waited >= rule.window_seconds
            assert doubt.empties + 1 >= EMPTY_BEFORE_RESEND
            assert doubt.since_look is None or doubt.since_look >= LOOK_EVERY_SECONDS
            assert rule.may_resend
            assert rule.is_ordered or doubt.resends < RESENDS_AT_MOST
        case Empty(seconds, counts):
            assert is_readable
            assert up_to_date
            assert unaccounted == []
            assert seconds >= LOOK_EVERY_SECONDS
            assert counts == (doubt.since_look is None or doubt.since_look >= LOOK_EVERY_SECONDS)
        case Held("foreign", _):
            assert is_readable
            assert unaccounted
        case Held("not_found", _):
            assert up_to_date
            assert unaccounted == []
            assert not rule.may_resend or doubt.resends >= RESENDS_AT_MOST
        case Unclear():
            assert not is_readable or not up_to_date
        case _:
            raise AssertionError(judgement)


def look(
    *messages: Listed, empties: int = 0, waited: float = 150.0, ours: tuple[str, ...] = (), offset: float = 0.0
) -> Judgement:
    doubt = Doubt(BODY, NOW - timedelta(seconds=waited), waited, empties, 30.0 if empties else None, 0, has_rival=False)
    listing = Listing(messages, NOW, reaches=True)
    return judge(
        doubt, Rule(120.0, may_resend=True), listing, offset=timedelta(seconds=offset), ours=ours, is_up_to_date=True
    )


def there(sid: str, age: float, body: str = BODY) -> Listed:
    return Listed(sid, body, NOW - timedelta(seconds=age), "sent")


def test_the_first_empty_look_never_sends_again() -> None:
    assert look() == Empty(LOOK_EVERY_SECONDS, counts=True)
    assert look(empties=1) == Absent()
    assert look(empties=1, waited=119.0) == Empty(LOOK_EVERY_SECONDS, counts=True)


def test_a_message_of_before_the_attempt_is_another_one() -> None:
    assert isinstance(look(there("SM1", 150 + EARLIER_SECONDS - 1)), Found)
    assert look(there("SM1", 150 + EARLIER_SECONDS + 1), empties=1) == Absent()


@pytest.mark.parametrize("offset", [-20.0, 20.0])
def test_a_clock_that_is_a_little_off_is_shifted(offset: float) -> None:
    assert isinstance(look(there("SM1", 150 + EARLIER_SECONDS - 1 - offset), offset=offset), Found)
    assert look(there("SM1", 150 + EARLIER_SECONDS + 1 - offset), offset=offset, empties=1) == Absent()


@pytest.mark.parametrize("offset", [-90.0, 90.0])
def test_a_clock_that_is_far_off_tells_nothing(offset: float) -> None:
    assert isinstance(look(there("SM1", 100), offset=offset), Unclear)


def test_two_like_it_or_one_unlike_it_are_for_a_person() -> None:
    assert isinstance(look(there("SM1", 149), there("SM2", 100)), Held)
    assert isinstance(look(there("SM1", 149, "")), Held)  # redacted: it may be ours
    assert isinstance(look(there("SM1", 149), there("SM2", 100), ours=("SM2",)), Found)


def test_a_template_waits_for_its_callback_and_is_never_sent_again() -> None:
    rule = Rule(120.0, may_resend=True, is_ordered=True)
    early = Doubt(BODY, NOW, 20.0, 0, None, 0, has_rival=False)
    late = Doubt(BODY, NOW, 120.0, 5, 60.0, 0, has_rival=False)
    assert wait_for_callback(early, rule) == Empty(30.0, counts=False)
    assert isinstance(wait_for_callback(late, rule), Held)
