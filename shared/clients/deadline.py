"""The limits of one outbound call: the clock, the whole-call deadline, and the last moment at which it may start.

Light on purpose: who only needs the clock or `TooLate` imports this and no HTTP library.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from shared.errors import TransientError


class TooLate(TransientError):
    """The moment until which a request may leave has passed; not one byte of it was sent."""

    def __init__(self, text: str) -> None:
        super().__init__("too_late", text)


def _clock_id() -> int | None:
    """The clock that goes on while the machine sleeps or the process is frozen with it."""
    if sys.platform == "darwin":
        return time.CLOCK_MONOTONIC  # there time.monotonic() stands still in sleep, and this clock does not
    return getattr(time, "CLOCK_BOOTTIME", None)


_CLOCK = _clock_id()


def boot_clock() -> float:
    """Seconds of a clock that never goes back and counts suspension; only differences have a meaning."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


@dataclass(slots=True)
class Call:
    """The limits of a call, in readings of `boot_clock()`, and what became of it."""

    ends_at: float
    not_after: float | None = None
    started: bool = False  # a byte of a request was handed to the network: until then surely nothing was acted on
    at_first_write: bool = True  # the next write is a request's first

    def left(self, timeout: float | None = None) -> float:
        """Seconds that one operation may take: what is left of the call, at most `timeout`; may be negative."""
        left = self.ends_at - boot_clock()
        return left if timeout is None else min(left, timeout)


_current: ContextVar[Call | None] = ContextVar("outbound_call", default=None)


def current_call() -> Call | None:
    """The call whose limits hold here."""
    return _current.get()


@contextmanager
def limits(call: Call) -> Iterator[Call]:
    """Let the limits of `call` hold inside the block, in this thread."""
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)


@contextmanager
def deadline(seconds: float, *, not_after: float | None = None) -> Iterator[Call]:
    """Whatever goes out through DeadlineTransport inside the block ends within `seconds`, in all.

    `not_after` (a reading of `boot_clock()`) is the last moment at which a request may leave: later `TooLate` is
    raised, with the connection open and nothing sent. Inside another block the earlier limits win.
    """
    outer, ends_at = current_call(), boot_clock() + seconds
    if outer is not None:
        ends_at = min(ends_at, outer.ends_at)
        moments = [moment for moment in (not_after, outer.not_after) if moment is not None]
        not_after = min(moments, default=None)
    with limits(Call(ends_at, not_after)) as call:
        yield call
