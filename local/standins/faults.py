"""Faults on purpose: rules that make a stand-in fail the way that networks and services do.

One plan may be shared by all stand-ins. A rule says where it strikes and what it does:

    status       answers `status` (with `code` and `headers`); nothing was done
    status_after the thing is done, and `status` is answered all the same (a gateway that gave up)
    slow         the thing is done at once, the answer comes `seconds` later
    drop_before  after `seconds` the connection is closed without an answer; nothing was done
    drop_after   the thing is done; after `seconds` the connection is closed without an answer
    drip         the thing is done; the answer comes one byte every `seconds`
    broken_body  the thing is done; the answer's body is cut in half
    content_filter       (chat) 200, and the answer was stopped by the filter
    content_filter_400   (chat) 400, the prompt was stopped by the filter
    no_text              (chat) 200, and the answer has no text
    length               (chat) 200, and the answer was cut off after three tokens
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Where = Literal[
    "chat", "embeddings", "create", "fetch", "list", "typing", "account", "senders", "put", "get", "hook", "*"
]
What = Literal[
    "status",
    "status_after",
    "slow",
    "drop_before",
    "drop_after",
    "drip",
    "broken_body",
    "content_filter",
    "content_filter_400",
    "no_text",
    "length",
]
_DEFAULT_SECONDS = {"slow": 3.0, "drip": 0.25}
_CHAT_ONLY = ("content_filter", "content_filter_400", "no_text", "length")


class BadRule(ValueError):
    """A rule that makes no sense; the text says why."""


@dataclass(slots=True)
class Fault:
    """One rule. `times` counts down to 0 (None: until it is cleared); `seconds` as the module's table says."""

    where: str
    do: str
    status: int = 500
    code: int | str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    times: int | None = None
    id: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The rule as JSON, with the times that are left."""
        return asdict(self)


def read_rule(given: Mapping[str, Any]) -> Fault:
    """Read one rule from JSON. Raises BadRule."""
    unknown = set(given) - {"where", "do", "status", "code", "headers", "seconds", "times"}
    if unknown:
        raise BadRule(f"unknown fields: {', '.join(sorted(unknown))}")
    where, what = str(given.get("where", "*")), str(given.get("do"))
    if where not in get_args(Where):
        raise BadRule(f"where must be one of {', '.join(get_args(Where))}")
    if what not in get_args(What):
        raise BadRule(f"do must be one of {', '.join(get_args(What))}")
    if what in _CHAT_ONLY and where not in ("chat", "*"):
        raise BadRule(f"{what} happens at chat only")
    times = given.get("times")
    if times is not None and not (isinstance(times, int) and times > 0):
        raise BadRule("times must be a whole number above 0, or null")
    try:
        return Fault(
            where="chat" if what in _CHAT_ONLY else where,
            do=what,
            status=int(given.get("status", 500)),
            code=given.get("code"),
            headers={str(name): str(value) for name, value in dict(given.get("headers") or {}).items()},
            seconds=float(given.get("seconds", _DEFAULT_SECONDS.get(what, 0.0))),
            times=times,
        )
    except (TypeError, ValueError) as wrong:
        raise BadRule(f"a value has the wrong type: {wrong}") from wrong


class FaultPlan:
    """The rules in force, oldest first; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Fault] = []
        self._ids = itertools.count(1)

    def add(
        self,
        where: Where,
        do: What,
        *,
        status: int = 500,
        code: int | str | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
        times: int | None = None,
    ) -> int:
        """Put a rule in force and return its id. Raises BadRule."""
        given: dict[str, Any] = {"where": where, "do": do, "status": status, "code": code, "times": times}
        given["headers"] = dict(headers or {})
        if seconds is not None:
            given["seconds"] = seconds
        return self.put(read_rule(given)).id

    def put(self, rule: Fault) -> Fault:
        """Put a rule that was read in force; it gets its id here."""
        with self._lock:
            rule.id = next(self._ids)
            self._rules.append(rule)
            return rule

    def clear(self, *, where: str | None = None, rule_id: int | None = None) -> None:
        """Take rules away: all of them, those of one place, or one."""
        with self._lock:
            self._rules = [
                rule
                for rule in self._rules
                if (where is not None and rule.where != where) or (rule_id is not None and rule.id != rule_id)
            ]

    def take(self, where: str) -> Fault | None:
        """The first rule that strikes here, used once; a rule whose times ran out goes."""
        with self._lock:
            for rule in self._rules:
                if rule.where not in (where, "*"):
                    continue
                if rule.times is not None:
                    rule.times -= 1
                    if rule.times <= 0:
                        self._rules.remove(rule)
                return rule
            return None

    def rules(self) -> list[Fault]:
        """The rules in force."""
        with self._lock:
            return list(self._rules)
