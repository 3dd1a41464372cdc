"""The slots of a process."""

from __future__ import annotations

from shared.queue.slots import Slots


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
