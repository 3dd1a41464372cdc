"""NCRONTAB schedules, against an oracle that looks at every day, and at every second of the days that match."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local.functions.ncrontab import Ncrontab

DAYS_OF_ORACLE = 3 * 366
RANGES = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]
Field = tuple[str, set[int]]


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> Field:
    """The text of a field, and the numbers that it stands for."""
    text, numbers = [], set[int]()
    for _ in range(draw(st.integers(1, 2))):
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        step = draw(st.integers(1, high))
        form, meant = draw(
            st.sampled_from(
                [
                    ("*", range(low, high + 1)),
                    (f"{first}", range(first, first + 1)),
                    (f"{first}-{last}", range(first, last + 1)),
                    (f"*/{step}", range(low, high + 1, step)),
                    (f"{first}/{step}", range(first, high + 1, step)),
                    (f"{first}-{last}/{step}", range(first, last + 1, step)),
                ]
            )
        )
        text.append(form)
        numbers.update(meant)
    return ",".join(text), numbers


schedules = st.tuples(*(fields(low, high) for low, high in RANGES))
FIRST, LAST = dt.datetime(2020, 1, 1), dt.datetime(2030, 1, 1)  # noqa: DTZ001 - the strategy adds the zone
moments = st.datetimes(FIRST, LAST, timezones=st.just(dt.UTC))


def expected(parts: tuple[Field, ...], moment: dt.datetime) -> dt.datetime | None:
    second, minute, hour, day, month, weekday = (numbers for _text, numbers in parts)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    for days in range(DAYS_OF_ORACLE):
        date = midnight + dt.timedelta(days=days)
        if date.month in month and date.day in day and (date.weekday() + 1) % 7 in weekday:
            for h, m, s in itertools.product(sorted(hour), sorted(minute), sorted(second)):
                at = date + dt.timedelta(hours=h, minutes=m, seconds=s)
                if at > moment:
                    return at
    return None


@settings(max_examples=150, deadline=None)
@given(schedules, moments)
def test_schedule_finds_the_first_moment_that_matches(parts: tuple[Field, ...], moment: dt.datetime) -> None:
    due = expected(parts, moment)
    try:
        found = Ncrontab(" ".join(text for text, _numbers in parts)).after(moment)
    except ValueError:
        found = None
    if due is None:  # beyond the oracle's horizon, or never
        assert found is None or found > moment + dt.timedelta(days=DAYS_OF_ORACLE - 1)
    else:
        assert found == due


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        ("*/5 * * * * *", "2026-01-01T12:00:05"),
        ("30 4 * * *", "2026-01-02T04:30:00"),  # five fields: at second 0
        ("0 0 12 * jan,JUL Sunday", "2026-01-04T12:00:00"),
        ("0 0 0 13 * fri", "2026-02-13T00:00:00"),  # both the day and the weekday
        ("0 0 0 29 2 *", "2028-02-29T00:00:00"),
        ("0 0 0 29 2 mon", "2044-02-29T00:00:00"),
    ],
)
def test_schedule_by_example(schedule: str, due: str) -> None:
    start = dt.datetime(2026, 1, 1, 12, 0, 1, 500, dt.UTC)
    assert Ncrontab(schedule).after(start) == dt.datetime.fromisoformat(due + "+00:00")


@pytest.mark.parametrize(
    "text", ["* * *", "60 * * * * *", "*/0 * * * * *", "5-1 * * * * *", "a * * * * *", "0 0 0 30 2 *"]
)
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(ValueError, match=r"schedule|between"):
        Ncrontab(text).after(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
