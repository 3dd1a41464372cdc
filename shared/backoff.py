"""Retry arithmetic: pure functions; where chance plays a part, the draw is passed in."""

from __future__ import annotations

AI_BASE_SECONDS = 5.0
AI_CAP_SECONDS = 300.0


def exponential(attempts: int, *, base: float = AI_BASE_SECONDS, cap: float = AI_CAP_SECONDS) -> float:
    """Seconds to wait after the `attempts`-th failure: base × 2^attempts, at most `cap`.

    With the defaults 10 s, 20 s, 40 s, … 300 s: the rule of the AI jobs, without jitter.
    """
    if attempts < 1:
        raise ValueError("a wait follows a failure: attempts must be at least 1")
    return min(base * 2.0 ** min(attempts, 64), cap)


def reconnect(failures: int, draw: float, *, base: float = 0.1, cap: float = 5.0) -> float:
    """Seconds before the worker tries the database again: "equal jitter", half fixed and half drawn.

    `draw` is uniform in [0, 1). Source: AWS Architecture Blog, "Exponential Backoff And Jitter" (2015).
    """
    longest = min(base * 2.0 ** min(failures, 32), cap)
    return longest / 2 + draw * longest / 2
