"""Retry arithmetic: pure functions; where chance plays a part, the draw is passed in."""

from __future__ import annotations

from collections.abc import Sequence

AI_BASE_SECONDS = 5.0
AI_CAP_SECONDS = 300.0
# The deliveries' waits after each failure but the last: 5 s, 25 s, 2 m, 10 m, 1 h, 6 h, 24 h.
DELIVERY_SECONDS = (5.0, 25.0, 120.0, 600.0, 3600.0, 21_600.0, 86_400.0)
DECORRELATED_BASE_SECONDS = 5.0
DECORRELATED_CAP_SECONDS = 86_400.0


def exponential(attempts: int, *, base: float = AI_BASE_SECONDS, cap: float = AI_CAP_SECONDS) -> float:
    """Seconds to wait after the `attempts`-th failure: base × 2^attempts, at most `cap`.

    With the defaults 10 s, 20 s, 40 s, … 300 s: the rule of the AI jobs, without jitter.
    """
    _check(attempts)
    return min(base * 2.0 ** min(attempts, 64), cap)


def scheduled(attempts: int, draw: float, *, schedule: Sequence[float] = DELIVERY_SECONDS) -> float:
    """Seconds to wait after the `attempts`-th failure: between half of the schedule's wait and the whole of it.

    `draw` is uniform in [0, 1). Past the schedule's end its last wait goes on. It draws downwards too, so that what failed
    together neither comes back together nor later than the schedule says.
    """
    _check(attempts)
    longest = schedule[min(attempts, len(schedule)) - 1]
    return longest / 2 + draw * longest / 2


def decorrelated(
    last: float, draw: float, *, base: float = DECORRELATED_BASE_SECONDS, cap: float = DECORRELATED_CAP_SECONDS
) -> float:
    """Seconds to wait after a failure: drawn between `base` and three times the `last` wait, at most `cap`.

    `last` is `base` (or less) before the first wait; `draw` is uniform in [0, 1). Source: AWS Architecture Blog, "Exponential
    Backoff And Jitter" (2015): sleep = min(cap, random_between(base, sleep × 3)).
    """
    return min(base + draw * (3.0 * max(last, base) - base), cap)


def reconnect(failures: int, draw: float, *, base: float = 0.1, cap: float = 5.0) -> float:
    """Seconds before the worker tries the database again: "equal jitter", half fixed and half drawn.

    `draw` is uniform in [0, 1). Source: AWS Architecture Blog, "Exponential Backoff And Jitter" (2015).
    """
    longest = min(base * 2.0 ** min(failures, 32), cap)
    return longest / 2 + draw * longest / 2


def _check(attempts: int) -> None:
    if attempts < 1:
        raise ValueError("a wait follows a failure: attempts must be at least 1")
