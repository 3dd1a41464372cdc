"""The local host's timers: on time, never two runs at once, one run for all that were missed."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from local.functions.protos import TypedData
from local.functions.timers import Timer
from local.functions.worker import Function, Outcome, Worker
from tests.e2e.host_process import HostProcess, running
from tests.fakes.eventually import eventually

START = dt.datetime(2026, 3, 1, 12, 0, 0, 300_000, tzinfo=dt.UTC)


class Over(Exception):
    """As many runs as were asked for."""


class Clocked(Worker):
    """Runs that take so many seconds each, on a clock that only they and the timer's sleep move. `ran`: from when to when."""

    def __init__(self, *seconds: float) -> None:
        super().__init__()
        self.passed = 0.0
        self.ran: list[tuple[float, float]] = []
        self._seconds = list(seconds)

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.passed)

    async def sleep(self, seconds: float) -> None:
        self.passed += seconds

    async def invoke(self, function: Function, value: TypedData, *_: object) -> Outcome:
        if not self._seconds:
            raise Over
        began = self.passed
        self.passed += self._seconds.pop(0)
        self.ran.append((round(began, 6), round(self.passed, 6)))
        return Outcome(True)


def timed(schedule: str, *seconds: float) -> list[tuple[float, float]]:
    worker = Clocked(*seconds)
    timer = Timer(worker, Function("1", "tick", {"schedule": schedule}), now=worker.now, sleep=worker.sleep)
    with pytest.raises(Over):
        asyncio.run(timer.run())
    return worker.ran


def test_a_run_begins_on_time_and_all_that_were_missed_are_one_at_once() -> None:
    # The first begins with the next second; two moments pass while it runs.
    assert timed("* * * * * *", 2.4, 0.1, 0.1) == [(0.7, 3.1), (3.1, 3.2), (3.7, 3.8)]
    assert timed("0 * * * * *", 1.0, 1.0) == [(59.7, 60.7), (119.7, 120.7)]


def test_the_host_runs_its_timers_without_overlap() -> None:
    with running("--no-wake", env={"TICK": "* * * * * *"}) as host:
        # The first run takes 2.4 s, more than two periods.
        eventually(lambda: len([run for run in host.seen("timer") if run[1]]) >= 3, what="three runs")
        slow, caught_up, regular = host.seen("timer")[:3]
    assert slow[1] - slow[0] > 2.3
    assert slow[1] <= caught_up[0] <= caught_up[1] <= regular[0]


def test_schedule_that_is_not_set_is_refused_only_when_timers_run() -> None:
    with HostProcess("--no-wake") as host:
        assert host.process.wait(30) == 2
        assert host.log() == "the timer tick cannot run: the app setting TICK is not set, and %TICK% needs it\n"
