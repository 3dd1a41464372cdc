"""The drawer's fault switches: each is a few rules in a stand-in's fault plan, or a condition of the Twilio stand-in."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from local.standins.faults import FaultPlan, read_rule
from local.standins.twilio_conditions import Conditions

SECONDS_OF_SILENCE = 30.0
SECONDS_OF_A_SLOW_MODEL = 12.0
SECONDS_OF_A_SLOW_WEBHOOK = 5.0
SECONDS_OF_A_SLOW_CALLBACK = 10.0
SECONDS_OF_A_SLOW_LIST = 15.0  # less than a look-up waits before it gives up on a message


@dataclass(frozen=True, slots=True)
class Switch:
    """Rules for a fault plan, or conditions to set."""

    rules: tuple[Mapping[str, Any], ...] = ()
    conditions: tuple[tuple[str, Any], ...] = ()


def _create(do: str, **more: Any) -> Switch:
    return Switch(({"where": "create", "do": do, **more},))


def _list(do: str, **more: Any) -> Switch:
    return Switch(({"where": "list", "do": do, **more},))


def _condition(**values: Any) -> Switch:
    return Switch(conditions=tuple(values.items()))


MODEL = {
    "model_throttle": Switch(({"where": "chat", "do": "status", "status": 429, "headers": {"Retry-After": "5"}},)),
    "model_down": Switch(
        ({"where": "chat", "do": "status", "status": 503}, {"where": "embeddings", "do": "status", "status": 503})
    ),
    "model_slow": Switch(({"where": "chat", "do": "slow", "seconds": SECONDS_OF_A_SLOW_MODEL},)),
    "content_filter": Switch(({"where": "chat", "do": "content_filter_400"},)),
}
TWILIO = {
    "create": {
        "twilio_throttle": _create("status", status=429, code=20429, headers={"Retry-After": "5"}),
        "twilio_key": _create("status", status=401, code=20003),
        "twilio_refuse": _create("status", status=400, code=21211),
        "twilio_timeout": _create("drop_before", seconds=SECONDS_OF_SILENCE),
        "twilio_timeout_after": _create("drop_after", seconds=SECONDS_OF_SILENCE),
        "twilio_drop_before": _create("drop_before"),
        "twilio_drop": _create("drop_after"),
        "twilio_down": _create("status", status=500),
        "twilio_gateway": _create("status_after", status=502),
        "twilio_broken": _create("broken_body"),
        "twilio_drip": _create("drip", seconds=0.25),
    },
    "lookup": {
        "lookup_late": _condition(list_lag=SECONDS_OF_A_SLOW_LIST),
        "lookup_fails": _list("status", status=503),
        "lookup_silent": _list("drop_before", seconds=SECONDS_OF_SILENCE),
        "lookup_redacted": _condition(redacted=True),
        "lookup_foreign": _condition(foreign=True),
        "lookup_clock_20": _condition(clock_offset=20.0),
        "lookup_clock_90": _condition(clock_offset=90.0),
    },
    "callback": {
        "callback_lost": _condition(callbacks="lost"),
        "callback_late": _condition(callbacks="late", callback_delay=SECONDS_OF_A_SLOW_CALLBACK),
        "callback_twice": _condition(callbacks="twice"),
        "callback_reversed": _condition(callbacks="reversed"),
        "callback_early": _condition(callbacks="early"),
        "callback_window": _condition(keeps_window=True),
    },
    "webhook": {
        "webhook_lost": _condition(webhook="lost"),
        "webhook_late": _condition(webhook="late", webhook_delay=SECONDS_OF_A_SLOW_WEBHOOK),
        "webhook_twice": _condition(webhook="twice"),
        "webhook_stop": _condition(keeps_stop=True),
    },
}
_AT_FIRST = {field.name: field.default for field in fields(Conditions)}


class Switches:
    """Turns faults on and off by name; `model` is None when a real service answers."""

    def __init__(self, twilio: FaultPlan, conditions: Conditions, model: FaultPlan | None) -> None:
        self._groups = ({"model": MODEL} if model is not None else {}) | TWILIO
        self._switches = {name: switch for group in self._groups.values() for name, switch in group.items()}
        self._plans = {name: model if model is not None and name in MODEL else twilio for name in self._switches}
        self._conditions = conditions
        self._lock = threading.Lock()
        self._in_force: dict[str, list[int]] = {}

    def groups(self) -> list[dict[str, Any]]:
        """The switches that there are, by what they disturb."""
        return [{"name": name, "switches": list(group)} for name, group in self._groups.items()]

    def names(self) -> list[str]:
        """The switches that there are."""
        return list(self._switches)

    def turned_on(self) -> list[str]:
        """The switches that are in force, also after somebody changed rules or conditions over HTTP."""
        with self._lock:
            return [name for name in self._switches if self._is_on(name)]

    def turn(self, name: str, on: bool) -> None:
        """Turn one on or off. Raises KeyError for a name that there is not."""
        switch, plan = self._switches[name], self._plans[name]
        with self._lock:
            for rule_id in self._in_force.pop(name, []):
                plan.clear(rule_id=rule_id)
            if on:
                self._in_force[name] = [plan.put(read_rule(rule)).id for rule in switch.rules]
                self._conditions.change(dict(switch.conditions))
            elif self._is_met(switch):
                self._conditions.change({condition: _AT_FIRST[condition] for condition, _ in switch.conditions})

    def turn_all_off(self) -> None:
        """Everything works again."""
        for name in self.turned_on():
            self.turn(name, on=False)

    def _is_on(self, name: str) -> bool:
        there = {rule.id for rule in self._plans[name].rules()}
        return self._is_met(self._switches[name]) or any(rule_id in there for rule_id in self._in_force.get(name, []))

    def _is_met(self, switch: Switch) -> bool:
        now = self._conditions.as_dict()
        return bool(switch.conditions) and all(now[name] == value for name, value in switch.conditions)
