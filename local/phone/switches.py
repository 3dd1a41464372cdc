"""The drawer's fault switches: each is a few rules in the stand-ins' fault plans."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from local.standins.faults import FaultPlan, read_rule

SECONDS_OF_SILENCE = 30.0
SECONDS_OF_A_SLOW_MODEL = 12.0

TWILIO: Mapping[str, list[dict[str, Any]]] = {
    "twilio_timeout": [{"where": "create", "do": "drop_before", "seconds": SECONDS_OF_SILENCE}],
    "twilio_drop": [{"where": "create", "do": "drop_after"}],
    "twilio_refuse": [{"where": "create", "do": "status", "status": 400, "code": 21211}],
}
MODEL: Mapping[str, list[dict[str, Any]]] = {
    "model_throttle": [{"where": "chat", "do": "status", "status": 429, "headers": {"Retry-After": "5"}}],
    "model_down": [
        {"where": "chat", "do": "status", "status": 503},
        {"where": "embeddings", "do": "status", "status": 503},
    ],
    "model_slow": [{"where": "chat", "do": "slow", "seconds": SECONDS_OF_A_SLOW_MODEL}],
    "content_filter": [{"where": "chat", "do": "content_filter_400"}],
}


class Switches:
    """Turns faults on and off by name; `model` is None when a real service answers."""

    def __init__(self, twilio: FaultPlan, model: FaultPlan | None) -> None:
        self._plans = {name: (twilio, rules) for name, rules in TWILIO.items()}
        if model is not None:
            self._plans |= {name: (model, rules) for name, rules in MODEL.items()}
        self._lock = threading.Lock()
        self._in_force: dict[str, list[int]] = {}

    def names(self) -> list[str]:
        """The switches that there are."""
        return list(self._plans)

    def turned_on(self) -> list[str]:
        """The switches whose rules are in force, also after somebody cleared some of them over HTTP."""
        with self._lock:
            return [name for name in self._plans if self._is_on(name)]

    def turn(self, name: str, on: bool) -> None:
        """Turn one on or off. Raises KeyError for a name that there is not."""
        plan, rules = self._plans[name]
        with self._lock:
            for rule_id in self._in_force.pop(name, []):
                plan.clear(rule_id=rule_id)
            if on:
                self._in_force[name] = [plan.put(read_rule(rule)).id for rule in rules]

    def _is_on(self, name: str) -> bool:
        plan, _ = self._plans[name]
        there = {rule.id for rule in plan.rules()}
        return any(rule_id in there for rule_id in self._in_force.get(name, []))
