"""The local host's timers: on time, never two runs at once, one run for all that were missed."""

from __future__ import annotations

from tests.e2e.host_process import HostProcess, running
from tests.fakes.eventually import eventually


def test_timer_runs_on_time_without_overlap_and_catches_up_once() -> None:
    with running("--no-wake", env={"TICK": "* * * * * *"}) as host:
        # The first run takes 2.4 s: two moments pass, then one run follows at once, and the next is regular again.
        eventually(lambda: len([run for run in host.seen("timer") if run[1]]) >= 3, what="three runs")
        slow, caught_up, regular = host.seen("timer")[:3]
    assert slow[0] % 1 < 0.4
    assert 2.3 < slow[1] - slow[0] < 3
    assert 0 <= caught_up[0] - slow[1] < 0.4  # the next second begins 0.6 s later
    assert regular[0] % 1 < 0.4
    assert 0 < regular[0] - caught_up[0] < 1.1


def test_schedule_that_is_not_set_is_refused_only_when_timers_run() -> None:
    with HostProcess("--no-wake") as host:
        assert host.process.wait(30) == 2
        assert host.log() == "the timer tick cannot run: the app setting TICK is not set, and %TICK% needs it\n"
