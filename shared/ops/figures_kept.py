"""The deliveries' figures as pages ask for them: kept for the longer, the longer they took, however many look."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from uuid import UUID

from shared.db.pool import Conn
from shared.webhooks import figures
from shared.webhooks.figures import Bucket, Period, Report

# A reading of 10 ms is kept for a second, one of a million deliveries for half a minute: at most a 30th of the time is spent.
KEPT_AT_LEAST_SECONDS, KEPT_TIMES_COST = 1.0, 30.0
KEPT_AT_MOST = 64
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A period's figures, and those of its steps."""

    report: Report
    buckets: list[Bucket]


@dataclass(slots=True)
class KeptFigures:
    """Readings by what was asked for, each with its end; shared by all who look. Two who ask at once may both read."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: dict[object, tuple[float, Reading]] = field(default_factory=dict)

    def lately(self, connection: Conn, seconds: float, *, endpoint: UUID | None = None) -> Reading:
        """Of the last so many seconds."""
        return self._get((seconds, endpoint), connection, None, seconds, endpoint)

    def of(self, connection: Conn, period: Period, *, endpoint: UUID | None = None) -> Reading:
        """Of any period."""
        return self._get((period, endpoint), connection, period, 0.0, endpoint)

    def _get(
        self, key: object, connection: Conn, period: Period | None, seconds: float, endpoint: UUID | None
    ) -> Reading:
        now = time.monotonic()
        with self._lock:
            kept = self._kept.get(key)
        if kept and now < kept[0]:
            return kept[1]
        wanted = period or figures.last_steps(connection, seconds)
        reading = Reading(
            figures.read(connection, wanted, endpoint=endpoint), figures.buckets(connection, wanted, endpoint=endpoint)
        )
        ended = time.monotonic()
        with self._lock:
            self._kept[key] = (ended + max((ended - now) * KEPT_TIMES_COST, KEPT_AT_LEAST_SECONDS), reading)
            while len(self._kept) > KEPT_AT_MOST:
                del self._kept[next(iter(self._kept))]
        return reading
