"""How a type of job is retried: how often, after what waits, and for how long at most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shared import backoff
from shared.errors import Failure

MINUTE = 60.0
HOUR = 60 * MINUTE


@dataclass(frozen=True, slots=True)
class Policy:
    """`wait` gives the seconds after the n-th failure; `age_limit` (seconds from the start of the run) ends all snoozing."""

    wait: Callable[[int], float] = backoff.exponential
    age_limit: float = 24 * HOUR

    def delay(self, attempts: int, failure: Failure) -> float:
        """Seconds until the next try: the policy's wait, or longer if the other side asked for it."""
        return max(self.wait(max(attempts, 1)), failure.retry_after or 0.0)


ANSWERS = Policy(age_limit=15 * MINUTE)
LINES = Policy(age_limit=HOUR)
RECORDS = Policy(age_limit=24 * HOUR)
