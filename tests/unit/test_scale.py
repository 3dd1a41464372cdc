"""The pure parts of the scale simulation: limits, arrivals, and that its setups make sense."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.limits import TOKENS_OF_AN_ANSWER, Counter, ModelLimits, WhatsApp
from bench.scale import LONG, QUICK, Setup, arrivals, limited
from local.standins.faults import Fault


def test_a_counter_lets_through_what_fits_and_says_when_it_is_counted_anew() -> None:
    counter = Counter(10.0, 60.0)
    for _ in range(2):
        assert counter.wait(5.0, 61.0) == 0.0
        counter.count(5.0)
    assert counter.wait(5.0, 75.0) == pytest.approx(45.0)
    assert counter.wait(5.0, 120.0) == 0.0


def test_what_is_more_than_the_whole_limit_passes_when_nothing_else_was_counted() -> None:
    counter = Counter(10.0, 60.0)
    assert counter.wait(25.0, 0.0) == 0.0
    counter.count(25.0)
    assert counter.wait(0.1, 59.0) == pytest.approx(1.0)


def test_a_model_refuses_what_is_over_its_tokens_and_says_when_to_come_back() -> None:
    clock = [0.0]
    limits = ModelLimits(10 * TOKENS_OF_AN_ANSWER, clock=lambda: clock[0])

    def ask(moment: float) -> Fault:
        clock[0] = moment
        fault = limits.take("chat")
        assert fault is not None
        return fault

    # Not all in ten seconds: requests have a limit of their own.
    asked = [ask(moment) for moment in (120.0, 130.0, 140.0, 150.0) for _ in range(5)]
    assert [fault.do for fault in asked] == ["slow"] * 10 + ["status"] * 10
    assert limits.refused == 10
    refused = ask(150.25)
    assert refused.status == 429
    assert refused.headers == {"retry-after": "30", "retry-after-ms": "29750"}
    assert 0.2 < ask(180.0).seconds < 10


def test_a_model_refuses_too_many_requests_in_ten_seconds() -> None:
    limits = ModelLimits(60_000.0, clock=lambda: 100.0)  # ten requests, with tokens for eighteen
    ended = [limits.take("chat") for _ in range(11)]
    assert [fault.do for fault in ended if fault] == ["slow"] * 10 + ["status"]
    assert ended[-1] is not None
    assert ended[-1].headers["retry-after-ms"] == "10000"


def test_a_model_without_limits_refuses_nothing_and_other_calls_are_left_alone() -> None:
    limits = ModelLimits(None)
    assert {fault.do for _ in range(100) if (fault := limits.take("chat"))} == {"slow"}
    assert limits.take("embeddings") is None
    assert limits.refused == 0


def test_a_sender_sends_so_many_a_second_and_the_rest_waits_in_line() -> None:
    leaves = WhatsApp(a_second=4.0).leaves([(0.0, f"+{number}") for number in range(5)])
    assert leaves == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_one_employee_gets_a_message_every_six_seconds_and_holds_up_nobody() -> None:
    accepted = [(0.0, "+1"), (0.1, "+1"), (0.2, "+2"), (0.3, "+1")]
    assert WhatsApp().leaves(accepted) == [0.0, 6.0, 0.2, 12.0]


@given(st.lists(st.tuples(st.floats(0, 30), st.sampled_from("abcd")), max_size=40), st.sampled_from([0.5, 4.0, 80.0]))
def test_no_limit_of_whatsapp_is_ever_broken(moments: list[tuple[float, str]], a_second: float) -> None:
    accepted = sorted(moments)
    leaves = WhatsApp(a_second=a_second).leaves(accepted)
    assert all(left >= moment for left, (moment, _) in zip(leaves, accepted, strict=True))
    in_order = sorted(leaves)
    assert all(later - before >= 1 / a_second - 1e-6 for before, later in itertools.pairwise(in_order))
    for to in "abcd":
        own = [left for left, (_, other) in zip(leaves, accepted, strict=True) if other == to]
        assert all(later - before >= 6.0 - 1e-6 for before, later in itertools.pairwise(own))


def test_arrivals_are_random_in_order_and_as_many_as_asked_on_average() -> None:
    draw = random.Random(1)
    found = [arrivals(5.0, 20.0, draw) for _ in range(200)]
    assert all(moments == sorted(moments) and moments[0] >= 0 and moments[-1] <= 20.0 for moments in found)
    assert sum(map(len, found)) / len(found) == pytest.approx(100.0, rel=0.05)
    assert len(arrivals(0.001, 1.0, random.Random(2))) == 1


def test_a_setup_knows_what_the_model_has_room_for() -> None:
    setup = limited(2.5 * TOKENS_OF_AN_ANSWER, (0.5, 1.0), 60.0)
    assert setup.room == pytest.approx(2 / 60)  # the half of an answer is none
    assert list(setup.rates) == pytest.approx([1 / 60, 2 / 60])


@pytest.mark.parametrize("setups", [LONG, QUICK], ids=["long", "quick"])
def test_the_forms_try_load_with_room_and_load_beyond_it(setups: tuple[Setup, ...]) -> None:
    bounded = [setup for setup in setups if setup.room]
    assert bounded
    assert all(max(setup.rates) > setup.room for setup in bounded if setup.room)
    assert any(setup.tokens_a_minute is None for setup in setups)


def test_the_quick_form_is_short() -> None:
    assert sum(setup.seconds * len(setup.rates) for setup in QUICK) <= 6
