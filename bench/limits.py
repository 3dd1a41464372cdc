"""What the model and WhatsApp let through, as they publish it: arithmetic, and a plan by which the model's stand-in obeys."""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.cost import Shape
from local.standins.faults import Fault, FaultPlan

TOKENS_OF_AN_ANSWER = Shape().tokens
REQUESTS_OF_A_THOUSAND = (
    1.0  # requests a minute that come with a thousand tokens a minute; Azure's older models have six
)
REQUEST_SHARE = 1 / 6  # of a minute: requests are judged over ten seconds, tokens over the whole of it
SENDER_A_SECOND = 80.0  # messages of one WhatsApp sender; Twilio queues what is more
PAIR_SECONDS = 6.0  # between two messages to one employee
MODEL_SECONDS, MODEL_SPREAD = 1.5, 0.3  # median, and the deviation of its logarithm
TOO_MANY = 429


class Counter:
    """A limit that is counted anew every so many seconds: what comes after it is full waits for the next count."""

    def __init__(self, at_most: float, seconds: float) -> None:
        self._at_most, self._seconds = at_most, seconds
        self._window, self._counted = -math.inf, 0.0

    def wait(self, amount: float, now: float) -> float:
        """0 when there is room for `amount` (in an empty window always), or the seconds until there may be."""
        window = math.floor(now / self._seconds)
        if window != self._window:
            self._window, self._counted = window, 0.0
        if self._counted and self._counted + amount > self._at_most:
            return (window + 1) * self._seconds - now
        return 0.0

    def count(self, amount: float) -> None:
        """Count what `wait` has let through."""
        self._counted += amount


class ModelLimits(FaultPlan):
    """The stand-in thinks for a while, and refuses with 429 and `Retry-After` what is over its limits.

    `tokens_a_minute` None: no limits. `minute` may be shorter than 60 s, with as much less in it. `refused` counts, and may be
    set back.
    """

    def __init__(
        self,
        tokens_a_minute: float | None,
        *,
        minute: float = 60.0,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._limits: list[tuple[Counter, float]] = []
        if tokens_a_minute is not None:
            share = minute / 60
            requests = max(tokens_a_minute / 1000 * REQUESTS_OF_A_THOUSAND * share * REQUEST_SHARE, 1.0)
            self._limits = [
                (Counter(tokens_a_minute * share, minute), TOKENS_OF_AN_ANSWER),
                (Counter(requests, minute * REQUEST_SHARE), 1.0),
            ]
        self._draw = random.Random(seed)
        self._taking = threading.Lock()
        self.refused = 0

    def take(self, where: str) -> Fault | None:
        """How this call of the model ends; the other calls are left alone."""
        if where != "chat":
            return super().take(where)
        with self._taking:
            now = self._clock()
            wait = max((limit.wait(amount, now) for limit, amount in self._limits), default=0.0)
            if not wait:
                for limit, amount in self._limits:
                    limit.count(amount)
                return Fault("chat", "slow", seconds=self._draw.lognormvariate(math.log(MODEL_SECONDS), MODEL_SPREAD))
            self.refused += 1
        headers = {"retry-after": str(math.ceil(wait)), "retry-after-ms": str(math.ceil(wait * 1000))}
        return Fault("chat", "status", status=TOO_MANY, code=str(TOO_MANY), headers=headers)


@dataclass(frozen=True, slots=True)
class WhatsApp:
    """One sender's throughput (messages a second) and the least time between two messages to one employee (seconds)."""

    a_second: float = SENDER_A_SECOND
    pair_seconds: float = PAIR_SECONDS

    def leaves(self, accepted: Iterable[tuple[float, str]]) -> list[float]:
        """When each message leaves for WhatsApp, from when it was accepted and for whom; in the order of acceptance.

        What waits for its pair does not hold up the others.
        """
        pairs: dict[str, float] = {}
        slots: list[float] = []  # the moments that are taken, in order
        left = []
        for moment, to in accepted:
            wanted = max(moment, pairs.get(to, -math.inf))
            left.append(self._slot(slots, wanted))
            pairs[to] = left[-1] + self.pair_seconds
        return left

    def _slot(self, slots: list[float], wanted: float) -> float:
        """The first free moment from `wanted` on; it is taken then."""
        gap = 1 / self.a_second
        index = next((at for at in range(len(slots), 0, -1) if slots[at - 1] + gap <= wanted), 0)
        moment = wanted
        for at in itertools.count(index):
            if at == len(slots) or moment + gap <= slots[at]:
                slots.insert(at, moment)
                return moment
            moment = max(moment, slots[at] + gap)
        raise AssertionError("there is always a moment after the last")
