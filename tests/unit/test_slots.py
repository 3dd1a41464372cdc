"""The slots of a process."""

from __future__ import annotations

import contextlib
import time

import pytest

from shared.queue.slots import LENT_AT_MOST, Slots


def test_no_more_are_taken_than_are_free() -> None:
    slots = Slots(4)
    assert [slots.take(3), slots.take(3), slots.take(3)] == [3, 1, 0]
    slots.release(2)
    assert slots.take(9) == 2


def test_whoever_is_over_its_share_takes_none_and_makes_none() -> None:
    slots = Slots(4)
    assert slots.take(-3) == 0
    assert slots.take(0) == 0
    assert slots.take(9) == 4


def test_a_wait_lends_its_slot_when_it_lasts() -> None:
    slots = Slots(1, lends_after=0.02)
    assert slots.take(1) == 1
    with slots.waiting("drain"):
        assert slots.take(1, wait=600.0) == 1  # comes when it is lent: no test may last that long
        assert (slots.lent_by("drain"), slots.lent_by("another")) == (1, 0)
    # Back from its wait it goes on without a slot: none is free until both have ended.
    assert slots.lent_by("drain") == 0
    slots.release()
    assert slots.take(1) == 0
    slots.release()
    assert slots.take(1) == 1


def test_a_wait_that_is_soon_over_lends_nothing() -> None:
    slots = Slots(1, lends_after=60.0)
    assert slots.take(1) == 1
    with slots.waiting("drain"):
        assert (slots.take(1, wait=0.05), slots.lent_by("drain")) == (0, 0)
    slots.release()
    assert slots.take(2) == 1


def lent_together(lends_after: float) -> int | None:
    """How many are lent when the first of three is; None when this machine stood still, so that the others began too late."""
    slots = Slots(3, lends_after=lends_after)
    assert slots.take(3) == 3
    began = time.monotonic()
    with slots.waiting("drain"):
        time.sleep(lends_after / 4)  # the time itself is what is tested
        with slots.waiting("drain"), slots.waiting("drain"):
            others_began = time.monotonic()
            found = slots.take(3, wait=30.0)
    return found if others_began - began < lends_after / 2 else None


def test_those_that_have_waited_nearly_as_long_are_lent_together() -> None:
    found = (lent_together(lends_after) for lends_after in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4))
    assert next(count for count in found if count is not None) == 3


def test_no_more_than_32_are_lent() -> None:
    slots = Slots(40, lends_after=0.0)
    assert slots.take(40) == 40
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(slots.waiting("drain"))
        assert slots.take(99) == slots.lent_by("drain") == LENT_AT_MOST == 32
        assert slots.take(99) == 0
    for _ in range(72):
        slots.release()
    assert slots.take(99) == 40


def test_an_error_in_a_wait_gives_back_what_was_lent() -> None:
    slots = Slots(1, lends_after=0.0)
    assert slots.take(1) == 1

    def breaks() -> None:
        with slots.waiting("drain"):
            assert slots.lent_by("drain") == 1
            raise OSError("the network")

    with pytest.raises(OSError, match="network"):
        breaks()
    slots.release()
    assert slots.take(2) == 1
