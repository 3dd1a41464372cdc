"""NCRONTAB, the schedules of timer triggers: {second} {minute} {hour} {day} {month} {weekday}."""

from __future__ import annotations

import datetime as dt

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: tuple[tuple[int, int, list[str]], ...] = (
    (0, 59, []), (0, 59, []), (0, 23, []), (1, 31, []), (1, 12, _MONTHS), (0, 6, _WEEKDAYS),
)  # fmt: skip
_YEARS_TO_LOOK = 40  # the 29th of February on a given weekday is at most that far away (across 2100)


class Ncrontab:
    """One schedule of six fields, or five (then at second 0).

    A moment is due when every field matches; so day and weekday both have to, where cron is content with one of them.
    """

    def __init__(self, text: str) -> None:
        """Raises ValueError for what is no schedule."""
        parts = text.split()
        if len(parts) == 5:
            parts.insert(0, "0")
        if len(parts) != 6:
            raise ValueError(f"the schedule {text!r} must have five or six fields")
        values = [_values(part, *limits) for part, limits in zip(parts, _FIELDS, strict=True)]
        self._second, self._minute, self._hour, self._day, self._month, self._weekday = values

    def after(self, moment: dt.datetime) -> dt.datetime:
        """The first due moment that is later. Raises ValueError when there is none (30 February)."""
        at = moment.replace(microsecond=0) + dt.timedelta(seconds=1)
        last_year = at.year + _YEARS_TO_LOOK
        while at.year <= last_year:
            if not self._is_day(at):
                at = at.replace(hour=0, minute=0, second=0) + dt.timedelta(days=1)
            elif at.hour not in self._hour:
                at = at.replace(minute=0, second=0) + dt.timedelta(hours=1)
            elif at.minute not in self._minute:
                at = at.replace(second=0) + dt.timedelta(minutes=1)
            elif at.second not in self._second:
                at += dt.timedelta(seconds=1)
            else:
                return at
        raise ValueError("the schedule never comes due")

    def _is_day(self, at: dt.datetime) -> bool:
        return at.month in self._month and at.day in self._day and at.isoweekday() % 7 in self._weekday


def _values(text: str, low: int, high: int, names: list[str]) -> frozenset[int]:
    """What a field stands for: lists of `*`, numbers, names, ranges, each with an optional step."""
    values: set[int] = set()
    for item in text.split(","):
        span, has_step, step = item.partition("/")
        start, is_range, end = span.partition("-")
        if span == "*":
            first, last = low, high
        else:
            first = _number(start, low, high, names)
            last = _number(end, low, high, names) if is_range else high if has_step else first
        width = int(step) if has_step else 1
        if last < first or width < 1:
            raise ValueError(f"{item!r} is not a range of a schedule")
        values.update(range(first, last + 1, width))
    return frozenset(values)


def _number(word: str, low: int, high: int, names: list[str]) -> int:
    if word[:3].lower() in names:
        return names.index(word[:3].lower()) + low
    if not word.isdecimal() or not low <= int(word) <= high:
        raise ValueError(f"{word!r} is not between {low} and {high}")
    return int(word)
