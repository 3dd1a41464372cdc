"""What a check has found, in one sentence for the person who has to do something about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a check ended. Only WRONG makes the command fail."""

    OK = "ok"
    ADVICE = "advice"  # it works; it would be better otherwise
    LEFT_OUT = "left out"  # it could not be looked at from here
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `said` of what is wrong says what to do; of what was left out, why."""

    check: str
    state: State
    said: str


def ok(check: str, said: str) -> Finding:
    """As it should be."""
    return Finding(check, State.OK, said)


def advice(check: str, said: str) -> Finding:
    """Works, and could be better."""
    return Finding(check, State.ADVICE, said)


def left_out(check: str, why: str) -> Finding:
    """Not looked at."""
    return Finding(check, State.LEFT_OUT, why)


def wrong(check: str, said: str) -> Finding:
    """To be mended."""
    return Finding(check, State.WRONG, said)
