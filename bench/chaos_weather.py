"""The faults of a chaos run: each request to a service may meet one, and the conditions beside them change all the time."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from local.standins.faults import Fault, FaultPlan
from local.standins.twilio_conditions import Conditions

OUTAGE = 0.004  # the share of requests with which an outage begins: so many requests on end meet the same fault
OUTAGE_REQUESTS = (4, 9)
RETRY_AFTER = {"Retry-After": "1"}


@dataclass(frozen=True, slots=True)
class Gust:
    """A fault that may strike at a place, and how often beside the others there; `seconds` are drawn between the two."""

    weight: int
    do: str
    status: int = 500
    code: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    seconds: tuple[float, float] = (0.0, 0.0)


# Of the requests to a place the share that meets a fault, and which.
GUSTS: dict[str, tuple[float, Sequence[Gust]]] = {
    "create": (0.2, (
        Gust(10, "slow", seconds=(0.3, 2.5)),
        Gust(1, "slow", seconds=(10.5, 11.5)),  # longer than anybody waits for it
        Gust(12, "drop_before"),
        Gust(3, "drop_before", seconds=(0.5, 2.0)),
        Gust(16, "drop_after"),
        Gust(4, "drop_after", seconds=(0.5, 2.0)),
        Gust(8, "status", 429, headers=RETRY_AFTER),
        Gust(6, "status", 429),
        Gust(8, "status", 500),
        Gust(8, "status", 503),
        Gust(8, "status_after", 502),
        Gust(6, "broken_body"),
        Gust(3, "drip", seconds=(0.001, 0.003)),
        Gust(1, "status", 400, 21211),  # refused for good
    )),
    "list": (0.2, (
        Gust(3, "slow", seconds=(0.5, 3.0)),
        Gust(4, "drop_before"),
        Gust(3, "status", 500),
        Gust(3, "status", 429, headers=RETRY_AFTER),
        Gust(3, "broken_body"),
    )),
    "chat": (0.07, (
        Gust(6, "slow", seconds=(0.3, 2.0)),
        Gust(4, "drop_before"),
        Gust(4, "drop_after"),
        Gust(6, "status", 429, headers=RETRY_AFTER),
        Gust(4, "status", 503),
        Gust(3, "status", 500),
        Gust(2, "broken_body"),
        Gust(1, "content_filter"),
    )),
    "embeddings": (0.02, (Gust(3, "drop_before"), Gust(3, "status", 503), Gust(3, "status", 429, headers=RETRY_AFTER))),
    "typing": (0.1, (Gust(1, "status", 500), Gust(1, "drop_before"))),
}  # fmt: skip
CALLBACKS = ("normal", "late", "twice", "reversed", "early", "lost", "lost", "lost", "lost")


class Weather(FaultPlan):
    """A fault plan that draws; `calm` ends it. `struck` counts what has struck, by place and fault.

    `harshness` multiplies the shares of the requests that meet a fault.
    """

    def __init__(self, seed: int, harshness: float = 1.0) -> None:
        super().__init__()
        self._harshness = harshness
        self.calm = False
        self.struck: Counter[str] = Counter()
        self._draw, self._drawing = random.Random(seed), threading.Lock()
        self._outages: dict[str, tuple[Gust, int]] = {}

    def take(self, where: str) -> Fault | None:
        """A fault for this request, or none; what is put in force by rule comes first."""
        ruled = super().take(where)
        if ruled is not None or self.calm or where not in GUSTS:
            return ruled
        with self._drawing:
            gust = self._gust(where)
            if gust is None:
                return None
            self.struck[f"{where}: {gust.do} {gust.status if gust.do.startswith('status') else ''}".rstrip()] += 1
            return Fault(where, gust.do, gust.status, gust.code, gust.headers, self._draw.uniform(*gust.seconds))

    def _gust(self, where: str) -> Gust | None:
        share, gusts = GUSTS[where]
        gust, left = self._outages.get(where, (None, 0))
        if left:
            assert gust is not None
            self._outages[where] = gust, left - 1
            return gust
        if self._draw.random() >= share * self._harshness:
            return None
        (gust,) = self._draw.choices(gusts, [gust.weight for gust in gusts])
        if self._draw.random() < OUTAGE / share and gust.code is None and gust.seconds[1] < 1:
            self._outages[where] = gust, self._draw.randint(*OUTAGE_REQUESTS)
        return gust


def change(conditions: Conditions, draw: random.Random) -> None:
    """Other conditions from now on; nothing that breaks what is assumed of Twilio: its list lags less than the window."""
    conditions.callbacks = draw.choice(CALLBACKS)
    conditions.callback_delay = draw.uniform(0.5, 3.0)
    conditions.list_lag = draw.choice((0.0, 2.0, 10.0, 30.0, 30.0, 30.0))
    conditions.clock_offset = draw.choice((*(0.0,) * 8, 20.0, -20.0, 90.0))
    conditions.redacted = draw.random() < 0.04


def clear_up(conditions: Conditions) -> None:
    """Nothing out of the ordinary any more; webhooks stay in the hands of the script."""
    conditions.reset()
    conditions.webhook = "lost"
