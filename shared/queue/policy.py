"""How a type of job is retried: how often, after what waits, and for how long at most."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from shared import backoff
from shared.errors import Failure

MINUTE = 60.0
HOUR = 60 * MINUTE

# Seconds to wait, from: the failures so far, the wait before (0 before the first), and a draw in [0, 1).
type Wait = Callable[[int, float, float], float]


def exponential(attempts: int, last: float, draw: float) -> float:
    """The AI jobs' waits, the same for everybody: 10 s, 20 s, 40 s, … 300 s."""
    del last, draw
    return backoff.exponential(attempts)


def scheduled(attempts: int, last: float, draw: float) -> float:
    """The deliveries' schedule, each wait drawn between its half and the whole."""
    del last
    return backoff.scheduled(attempts, draw)


def decorrelated(attempts: int, last: float, draw: float) -> float:
    """Decorrelated jitter, for those who choose it: it gives up within minutes (docs/decisions/0007)."""
    del attempts
    return backoff.decorrelated(last, draw)


@dataclass(frozen=True, slots=True)
class Policy:
    """`wait` gives the seconds after a failure; `age_limit` (seconds from the start of the run) ends all snoozing."""

    wait: Wait = exponential
    age_limit: float = 24 * HOUR
    draw: Callable[[], float] = random.random

    def delay(self, attempts: int, failure: Failure, last: float = 0.0) -> float:
        """Seconds until the next try: the policy's wait, or longer if the other side asked for it, or what the job decided.

        `last` is the wait before, in seconds: for the policies that go by it.
        """
        if failure.wait is not None:
            return failure.wait
        return max(self.wait(max(attempts, 1), last, self.draw()), failure.retry_after or 0.0)


ANSWERS = Policy(age_limit=15 * MINUTE)
LINES = Policy(age_limit=HOUR)
RECORDS = Policy(age_limit=24 * HOUR)
# Each delivery's wait is by its endpoint's schedule and comes with the failure (shared/webhooks/deliver.py).
DELIVERIES = Policy(wait=scheduled, age_limit=72 * HOUR)
