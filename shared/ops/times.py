"""Moments as administrators read them: on a clock in the Netherlands, and how long ago."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from markupsafe import Markup

from shared.ops.words import Words

ZONE_NAME = "Europe/Amsterdam"
MINUTE, HOUR, DAY = 60, 3600, 86_400


@cache
def zone() -> tzinfo:
    """The clock that the pages show; UTC on a machine without a time zone database, which the pages then say."""
    try:
        return ZoneInfo(ZONE_NAME)
    except ZoneInfoNotFoundError:
        return UTC


def local(moment: datetime) -> datetime:
    """A moment on the clock that the pages show; one at the end of the calendar, as somebody else may give it, as it is."""
    try:
        return moment.astimezone(zone())
    except OverflowError:
        return moment


def start_of(day: date) -> datetime:
    """Midnight at which a day begins."""
    return datetime.combine(day, time.min, zone())


class Times:
    """One page's moment `now`, and its words."""

    def __init__(self, words: Words, now: datetime) -> None:
        self._words = words
        self.now = now
        self.zone_name = ZONE_NAME if isinstance(zone(), ZoneInfo) else "UTC"

    def moment(self, moment: datetime | None) -> Markup | str:
        """Day and time: 3 mrt 14:05; with the year when it is another one."""
        return self._marked(moment, self._plain(moment)) if moment else "–"

    def ago(self, moment: datetime | None) -> Markup | str:
        """How long ago, or in how long; older than a day: the moment. Changes at most once a minute after the first."""
        if moment is None:
            return "–"
        seconds = (self.now - moment).total_seconds()
        if seconds >= DAY or seconds <= -DAY:
            return self.moment(moment)
        if -MINUTE < seconds < MINUTE:
            words = self._words("time.now" if seconds >= 0 else "time.soon")
        else:
            unit, size = ("minutes", MINUTE) if abs(seconds) < HOUR else ("hours", HOUR)
            words = self._words(f"time.{unit}_{'ago' if seconds > 0 else 'ahead'}", n=int(abs(seconds) // size))
        return self._marked(moment, words)

    def until(self, moment: datetime) -> Markup:
        """In how long, to the second where that is soon; for what is due: now."""
        seconds = (moment - self.now).total_seconds()
        if seconds >= 2 * MINUTE:
            return Markup(self.ago(moment))  # noqa: S704 - it is markup, or has nothing to escape
        words = self._words("time.seconds_ahead", n=math.ceil(seconds)) if seconds > 0 else self._words("time.due")
        return self._marked(moment, words)

    def lasting(self, seconds: float) -> Markup:
        """A length of time: 1,4 s; 12 s; 3 min; 2 u."""
        if seconds < 1:
            return self._words("time.under_second")
        if seconds < 10:
            shown = f"{seconds:.1f}"
            return self._words("time.seconds", n=shown.replace(".", ",") if self._words.language == "nl" else shown)
        if seconds < 2 * MINUTE:
            return self._words("time.seconds", n=round(seconds))
        if seconds < 2 * HOUR:
            return self._words("time.minutes", n=round(seconds / MINUTE))
        if seconds < 2 * DAY:
            return self._words("time.hours", n=round(seconds / HOUR))
        return self._words("time.days", n=round(seconds / DAY))

    def exactly(self, seconds: float) -> str:
        """A short length of time that is to be compared: 8 ms; 0,2 s; 15 s; longer ones as `lasting`."""
        if seconds < 0.1:
            return f"{max(round(seconds * 1000), 1)}\N{NO-BREAK SPACE}ms"
        if seconds < 10:
            shown = f"{seconds:.1f}"
            return f"{shown.replace('.', ',') if self._words.language == 'nl' else shown}\N{NO-BREAK SPACE}s"
        return self.lasting(seconds)

    def name_of(self, moment: datetime, seconds: float) -> str:
        """What a step of a plot is called: its time, and of whole days and longer periods the day."""
        there = local(moment)
        return f"{there:%H:%M}" if seconds <= 2 * DAY else f"{there.day} {self._month(there)}"

    def between(self, start: datetime, end: datetime) -> Markup:
        """The length of time between two moments."""
        return self.lasting((end - start) / timedelta(seconds=1))

    def day(self, moment: datetime) -> str:
        """The day alone: 3 mrt 2026."""
        there = local(moment)
        return f"{there.day} {self._month(there)} {there.year}"

    def _plain(self, moment: datetime) -> str:
        there = local(moment)
        year = "" if there.year == local(self.now).year else f" {there.year}"
        return f"{there.day} {self._month(there)}{year} {there:%H:%M}"

    def _month(self, there: datetime) -> str:
        return self._words.text("time.months").split()[there.month - 1]

    def _marked(self, moment: datetime, words: str) -> Markup:
        exact = f"{self.day(moment)} {local(moment):%H:%M:%S}"
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            moment.astimezone(UTC).isoformat(timespec="seconds"), exact, words
        )
