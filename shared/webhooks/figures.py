"""The four figures of the deliveries, over any period and per endpoint, from SQL.

First-attempt success: of the deliveries whose first try ended in the period, the share that this try delivered. An interrupted
    try (its process died) is one that did not.
Retry depth: how many tries what was delivered in the period took, over all its runs; and what waits now for another try.
Dead letters a minute: deliveries that died in the period, over its minutes. One that died twice counts at its last death.
Latency: from the receipt of an event to the endpoint's 2xx, of the deliveries that were delivered in the period by themselves:
    what a person released or had sent again measures the person, and is left out. An event of our own is received when it
    is recorded. Percentiles are values that occurred (the nearest rank).

They reach as far back as deliveries are kept (JOB_RETENTION_DAYS).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from shared.db.pool import Conn, Row, one

MINUTE = 60.0
BUCKETS_AT_MOST = 60
# Lengths of a plot's steps in seconds: each divides a day, or is whole days.
STEPS = (60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400)

LAST = "SELECT now() - make_interval(secs => %(seconds)s), now()"
# From a whole step on, counted from a midnight in the Netherlands, so that plots begin at round times.
ROUND = """
    SELECT date_bin(%(step)s, now() - make_interval(secs => %(seconds)s), '2000-01-03 00:00+01') + %(step)s::interval, now()
"""
TRIES = """
    SELECT endpoint_id, try, count(*)::int, count(*) FILTER (WHERE outcome = 'delivered')::int
    FROM webhook_attempts
    WHERE ended >= %(since)s AND ended < %(until)s AND (%(endpoint)s::uuid IS NULL OR endpoint_id = %(endpoint)s)
    GROUP BY endpoint_id, try
"""
# Materialized, or many rows are fetched in the order of another index to save a sort.
LATENCY = """
    WITH delivered AS MATERIALIZED (
        SELECT endpoint_id, latency_seconds FROM webhook_deliveries
        WHERE delivered_at >= %(since)s AND delivered_at < %(until)s AND latency_seconds IS NOT NULL
            AND (%(endpoint)s::uuid IS NULL OR endpoint_id = %(endpoint)s)
    )
    SELECT endpoint_id, percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY latency_seconds)
    FROM delivered GROUP BY ROLLUP (endpoint_id)
"""
DIED = """
    SELECT endpoint_id, count(*)::int FROM webhook_deliveries
    WHERE died_at >= %(since)s AND died_at < %(until)s AND (%(endpoint)s::uuid IS NULL OR endpoint_id = %(endpoint)s)
    GROUP BY endpoint_id
"""
WAITING = """
    SELECT endpoint_id, tries, count(*)::int FROM webhook_deliveries
    WHERE state = 'waiting' AND (%(endpoint)s::uuid IS NULL OR endpoint_id = %(endpoint)s)
    GROUP BY endpoint_id, tries
"""
ENDPOINTS = "SELECT id, name FROM webhook_endpoints ORDER BY name"
BUCKETS = """
    SELECT date_bin(%(step)s, ended, %(since)s) AS start, count(*)::int AS first_tries,
        count(*) FILTER (WHERE outcome = 'delivered')::int AS first_delivered, NULL::int AS died, NULL::float8[] AS latency
    FROM webhook_attempts
    WHERE try = 1 AND ended >= %(since)s AND ended < %(until)s
        AND (%(endpoint)s::uuid IS NULL OR endpoint_id = %(endpoint)s)
    GROUP BY 1
    UNION ALL
    SELECT date_bin(%(step)s, died_at, %(since)s), NULL, NULL, count(*)::int, NULL
    FROM webhook_deliveries
    WHERE died_at >= %(since)s AND died_at < %(until)s AND (%(endpoint)s::uuid IS NULL OR endpoint_id = %(endpoint)s)
    GROUP BY 1
    UNION ALL
    SELECT date_bin(%(step)s, delivered_at, %(since)s), NULL, NULL, NULL,
        percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY latency_seconds)
    FROM webhook_deliveries
    WHERE delivered_at >= %(since)s AND delivered_at < %(until)s AND latency_seconds IS NOT NULL
        AND (%(endpoint)s::uuid IS NULL OR endpoint_id = %(endpoint)s)
    GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class Period:
    """From `since` up to, but not including, `until`."""

    since: datetime
    until: datetime

    @property
    def seconds(self) -> float:
        """Its length, over zero."""
        return max((self.until - self.since).total_seconds(), 1e-6)

    @property
    def step(self) -> int:
        """The seconds of a plot's step: the shortest of STEPS that gives BUCKETS_AT_MOST, or whole weeks."""
        return _step(self.seconds)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds that half, 95 and 99 of 100 deliveries took at most."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The four figures, of all endpoints or of one. `tries` and `waiting`: number of tries → deliveries."""

    period: Period
    first_tries: int = 0
    first_delivered: int = 0
    tries: Mapping[int, int] = field(default_factory=dict)
    waiting: Mapping[int, int] = field(default_factory=dict)
    died: int = 0
    latency: Latency | None = None

    @property
    def first_attempt_success(self) -> float | None:
        """Between 0 and 1; None when no first try ended."""
        return self.first_delivered / self.first_tries if self.first_tries else None

    @property
    def delivered(self) -> int:
        """How many were delivered."""
        return sum(self.tries.values())

    @property
    def mean_tries(self) -> float | None:
        """The tries that a delivered one took, on average."""
        return sum(n * count for n, count in self.tries.items()) / self.delivered if self.delivered else None

    @property
    def most_tries(self) -> int | None:
        """The tries of the delivered one that took most."""
        return max(self.tries, default=None)

    @property
    def waiting_now(self) -> int:
        """How many wait now, for their first try or another."""
        return sum(self.waiting.values())

    @property
    def waiting_again(self) -> int:
        """How many wait now for another try."""
        return sum(count for n, count in self.waiting.items() if n > 0)

    @property
    def died_a_minute(self) -> float:
        """Dead letters a minute."""
        return self.died / (self.period.seconds / MINUTE)


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of all endpoints together, and of each that has any."""

    total: Figures
    endpoints: Mapping[UUID, Figures]

    def of(self, endpoint: UUID) -> Figures:
        """One endpoint's, also if there was nothing."""
        return self.endpoints.get(endpoint) or Figures(self.total.period)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One step of a plot."""

    start: datetime
    first_tries: int = 0
    first_delivered: int = 0
    died: int = 0
    latency: Latency | None = None

    @property
    def first_attempt_success(self) -> float | None:
        """Between 0 and 1; None when no first try ended."""
        return self.first_delivered / self.first_tries if self.first_tries else None


def last(connection: Conn, seconds: float) -> Period:
    """The last so many seconds, by the database's clock."""
    row = one(connection, LAST, {"seconds": seconds})
    assert row is not None
    return Period(row[0], row[1])


def last_steps(connection: Conn, seconds: float) -> Period:
    """The same without what precedes its first whole step."""
    row = one(connection, ROUND, {"seconds": seconds, "step": timedelta(seconds=_step(seconds))})
    assert row is not None
    return Period(row[0], row[1])


def endpoint_names(connection: Conn) -> dict[UUID, str]:
    """All endpoints' names, by id, in their order."""
    return {of: str(name) for of, name in connection.execute(ENDPOINTS)}


def read(connection: Conn, period: Period, *, endpoint: UUID | None = None) -> Report:
    """The figures of a period; with `endpoint` of that one alone."""
    wanted = _wanted(period, endpoint)
    counted = _Counted(
        connection.execute(TRIES, wanted).fetchall(),
        connection.execute(WAITING, wanted).fetchall(),
        {of: int(count) for of, count in connection.execute(DIED, wanted)},
        {of: Latency(*found) for of, found in connection.execute(LATENCY, wanted) if found},
    )
    endpoints = {row[0] for row in (*counted.tries, *counted.waiting)} | counted.died.keys()
    return Report(counted.figures(period, None), {of: counted.figures(period, of) for of in endpoints})


@dataclass(frozen=True, slots=True)
class _Counted:
    """Rows of TRIES and WAITING, and by endpoint what died and the latency; that of None is of all."""

    tries: list[Row]
    waiting: list[Row]
    died: dict[UUID, int]
    latency: dict[UUID | None, Latency]

    def figures(self, period: Period, of: UUID | None) -> Figures:
        first = [
            (ended, delivered) for which, number, ended, delivered in self.tries if number == 1 and of in (None, which)
        ]
        tries: Counter[int] = Counter()
        for which, number, _, delivered in self.tries:
            if delivered and of in (None, which):
                tries[number] += delivered
        waiting: Counter[int] = Counter()
        for which, number, count in self.waiting:
            if of in (None, which):
                waiting[number] += count
        return Figures(
            period=period,
            first_tries=sum(ended for ended, _ in first),
            first_delivered=sum(delivered for _, delivered in first),
            tries=dict(sorted(tries.items())),
            waiting=dict(sorted(waiting.items())),
            died=sum(self.died.values()) if of is None else self.died.get(of, 0),
            latency=self.latency.get(of),
        )


def buckets(connection: Conn, period: Period, *, endpoint: UUID | None = None) -> list[Bucket]:
    """The steps of a period's plots, oldest first, also those in which nothing happened; the last may be cut short."""
    step = timedelta(seconds=period.step)
    found: dict[datetime, dict[str, Any]] = {}
    for start, tried, delivered, died, latency in connection.execute(
        BUCKETS, _wanted(period, endpoint) | {"step": step}
    ):
        bucket = found.setdefault(start, {})
        if tried is not None:
            bucket |= {"first_tries": tried, "first_delivered": delivered}
        elif died is not None:
            bucket["died"] = died
        else:
            bucket["latency"] = Latency(*latency)
    count = math.ceil(period.seconds / period.step)
    starts = [period.since + number * step for number in range(count)]
    return [Bucket(start, **found.get(start, {})) for start in starts]


def _step(seconds: float) -> int:
    found = next((step for step in STEPS if seconds <= step * BUCKETS_AT_MOST), None)
    return found or STEPS[-1] * math.ceil(seconds / (STEPS[-1] * BUCKETS_AT_MOST))


def _wanted(period: Period, endpoint: UUID | None) -> dict[str, Any]:
    return {"since": period.since, "until": period.until, "endpoint": endpoint}
