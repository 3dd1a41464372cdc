"""The receiver's fault switches: each is one rule of its plan."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from local.standins.faults import FaultPlan, read_rule

SECONDS_OF_SILENCE = 30.0  # longer than the demo's endpoint waits
SECONDS_OF_SLOWNESS = 2.0
RULES: dict[str, Mapping[str, Any]] = {
    "down": {"do": "status", "status": 500},
    "throttled": {"do": "status", "status": 429, "headers": {"Retry-After": "10"}},
    "refuses": {"do": "status", "status": 400},
    "gone": {"do": "status", "status": 410},
    "silent": {"do": "drop_before", "seconds": SECONDS_OF_SILENCE},
    "slow": {"do": "slow", "seconds": SECONDS_OF_SLOWNESS},
    "drop_before": {"do": "drop_before"},
    "drop_after": {"do": "drop_after"},
    "gateway": {"do": "status_after", "status": 502},
    "drip": {"do": "drip", "seconds": 0.5},
}


class Switches:
    """Turns faults on and off by name; what somebody changed in the plan over HTTP is seen too."""

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self._in_force: dict[str, int] = {}

    def turned_on(self) -> list[str]:
        """The switches that are in force."""
        there = {rule.id for rule in self._plan.rules()}
        with self._lock:
            return [name for name in RULES if self._in_force.get(name) in there]

    def turn(self, name: str, on: bool) -> None:
        """Turn one on or off. Raises KeyError for a name that there is not."""
        rule = {"where": "hook", **RULES[name]}
        with self._lock:
            known = self._in_force.pop(name, None)
            if known is not None:
                self._plan.clear(rule_id=known)
            if on:
                self._in_force[name] = self._plan.put(read_rule(rule)).id

    def turn_all_off(self) -> None:
        """It works again."""
        for name in self.turned_on():
            self.turn(name, on=False)
