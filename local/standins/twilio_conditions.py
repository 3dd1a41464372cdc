"""How the Twilio stand-in behaves beside its faults: what the list shows and when, whose clock it has, what it posts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

CALLBACKS = ("normal", "late", "twice", "reversed", "lost", "early")
WEBHOOKS = ("normal", "late", "twice", "lost")


class BadCondition(ValueError):
    """A condition that makes no sense; the text says why."""


@dataclass(slots=True)
class Conditions:
    """May be changed at any time; each is read when it matters. Seconds everywhere."""

    list_lag: float = 0.0  # a message is in the list only so long after it was accepted
    redacted: bool = False  # bodies are empty when they are read back
    foreign: bool = False  # whoever lists what went to an address finds that somebody else has written to it
    clock_offset: float = 0.0  # how far the clock is ahead: in the Date header and in each date of a message
    keeps_stop: bool = False  # Advanced Opt-Out: OptOutType on STOP, START and HELP, an answer of Twilio's own, 21610
    keeps_window: bool = False  # 63016 for text more than 24 hours after the last inbound message, templates excepted
    callbacks: str = "normal"  # reversed: the last state first; early: the first one before the create call is answered
    callback_delay: float = 5.0  # when late
    webhook: str = "normal"  # lost: an inbound message is in the list, but its webhook never comes
    webhook_delay: float = 5.0  # when late

    def change(self, given: Mapping[str, Any]) -> None:
        """Change some of them from JSON, all or none. Raises BadCondition."""
        kinds = get_type_hints(type(self))
        for name, value in given.items():
            if name not in kinds:
                raise BadCondition(f"there is no condition {name}; there are: {', '.join(kinds)}")
            wanted = (int, float) if kinds[name] is float else kinds[name]
            if not isinstance(value, wanted) or (kinds[name] is float and isinstance(value, bool)):
                raise BadCondition(f"{name} must be a {kinds[name].__name__}")
        for name, words in (("callbacks", CALLBACKS), ("webhook", WEBHOOKS)):
            if given.get(name, words[0]) not in words:
                raise BadCondition(f"{name} must be one of {', '.join(words)}")
        for name, value in given.items():
            setattr(self, name, value)

    def reset(self) -> None:
        """All as at first."""
        for field in fields(self):
            setattr(self, field.name, field.default)

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)
