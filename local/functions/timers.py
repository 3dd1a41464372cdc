"""Timer triggers: each runs on its schedule in UTC, never twice at a time."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Awaitable, Callable

from local.functions.config import resolve
from local.functions.errors import USAGE, CannotStart
from local.functions.ncrontab import Ncrontab
from local.functions.protos import TypedData
from local.functions.worker import Function, Worker

SECONDS_OF_ONE_NAP = 30.0  # the clock may be set and the machine may sleep meanwhile

_INFO = json.dumps({"Schedule": {"AdjustForDST": True}, "ScheduleStatus": None, "IsPastDue": False})


class Timer:
    """One timer-triggered function. `now` and `sleep` are the clock that it goes by."""

    def __init__(
        self,
        worker: Worker,
        function: Function,
        *,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Raises CannotStart for a schedule that is broken, never comes due, or needs a setting that is not set."""
        self._worker = worker
        self._function = function
        self._now = now
        self._sleep = sleep
        try:
            self._schedule = Ncrontab(resolve(str(function.trigger["schedule"])))
            self._schedule.after(now())
        except ValueError as wrong:
            raise CannotStart(f"the timer {function.name} cannot run: {wrong}", USAGE) from wrong

    async def run(self) -> None:
        """Run whenever it is due, until cancelled; a cancelled timer leaves a running function alone."""
        if self._function.trigger.get("runOnStartup"):
            await self._fire()
        due = self._schedule.after(self._now())
        while True:
            now = self._now()
            if now < due:
                await self._sleep(min((due - now).total_seconds(), SECONDS_OF_ONE_NAP))
                continue
            started = max(due, now)
            await self._fire()
            # Counted from the start of the run: if it took longer than a period, the next one is due at once, and all
            # that were missed are one.
            due = self._schedule.after(started)

    async def _fire(self) -> None:
        await self._worker.invoke(self._function, TypedData(json=_INFO))
