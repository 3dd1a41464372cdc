"""What is said in a chaos run, and how its webhooks fare: drawn from a seed. Pure.

Every question carries a number of its own, and the model's answer names the numbers that it answers; so an answer that comes
twice, to the wrong question or out of turn is recognised by its text. Some are answered with one and the same sentence on
purpose.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

type Kind = Literal["question", "same", "long", "thanks", "stop", "start"]

SAME = "Dat staat zo in het handboek. [1]"
_MARK = re.compile(r"nr(\d{6})(\w?)")
_TEXTS: dict[Kind, str] = {
    "question": "Hoeveel verlof heb ik bij nr{number:06d}?",
    "same": "Waar staat dat precies, nr{number:06d}g?",
    "long": "Kun je alles over verlof vertellen bij nr{number:06d}u?",
    "thanks": "Dank je wel!",
    "stop": "STOP",
    "start": "START",
}
_KINDS: tuple[tuple[Kind, int], ...] = (("question", 72), ("same", 20), ("long", 3), ("thanks", 5))
_LONG = "Over verlof valt nog meer te zeggen, en dat staat in het handboek. " * 30
BURSTS = 0.25  # the share of turns in which somebody sends two to four messages at once
LOST, TWICE_AT_ONCE, TWICE, LATE = 0.02, 0.03, 0.05, 0.08  # shares of the webhooks
CONSENT_EVERY = 10  # one of so many conversations opts out and in again


@dataclass(frozen=True, slots=True)
class Said:
    """A message: `at` and `webhooks` (when each of its webhooks is posted, none if it is lost) in seconds from the begin."""

    number: int
    address: str
    kind: Kind
    text: str
    at: float
    webhooks: tuple[float, ...]


def write(messages: int, conversations: int, seconds: float, seed: int) -> list[Said]:
    """The script, in the order in which things are said; about `messages` of them, all within `seconds`."""
    draw = random.Random(seed)
    addresses = [f"+3161{index:07d}" for index in range(conversations)]
    script: list[Said] = []
    for address in addresses[::CONSENT_EVERY]:
        stops = draw.uniform(0.2, 0.5) * seconds
        starts = stops + draw.uniform(0.15, 0.35) * seconds
        script += [_said(draw, len(script), address, "stop", stops, at_most_twice=True)]
        script += [_said(draw, len(script), address, "start", starts, at_most_twice=True)]
    while len(script) < messages:
        address, at = draw.choice(addresses), draw.uniform(0, seconds)
        burst = draw.randint(2, 4) if draw.random() < BURSTS else 1
        for _ in range(min(burst, messages - len(script))):
            (kind,) = draw.choices([kind for kind, _ in _KINDS], [weight for _, weight in _KINDS])
            script.append(_said(draw, len(script), address, kind, at))
            at += draw.uniform(0, 0.6)
    return sorted(script, key=lambda said: said.at)


def _said(
    draw: random.Random, number: int, address: str, kind: Kind, at: float, *, at_most_twice: bool = False
) -> Said:
    fate = draw.random()
    if fate < LOST and not at_most_twice:
        webhooks: tuple[float, ...] = ()
    elif fate < LOST + TWICE_AT_ONCE:
        webhooks = (at, at)
    elif fate < LOST + TWICE_AT_ONCE + TWICE:
        webhooks = (at, at + draw.uniform(0.2, 8))
    elif fate < LOST + TWICE_AT_ONCE + TWICE + LATE and not at_most_twice:
        webhooks = (at + draw.uniform(0.5, 3),)  # after what was said later
    else:
        webhooks = (at,)
    return Said(number, address, kind, _TEXTS[kind].format(number=number), at, webhooks)


def numbers_in(text: str) -> frozenset[int]:
    """The numbers of the questions that a text names."""
    return frozenset(int(found[1]) for found in _MARK.finditer(text))


def answer_to(question: str) -> str:
    """What the model says: the numbers of what was asked; or the same sentence as ever, where only such things were asked."""
    marks = [(int(found[1]), found[2]) for found in _MARK.finditer(question)]
    named = [number for number, mark in marks if mark != "g"]
    if not named:
        return SAME
    text = f"Het antwoord op {_list(named)} staat in het handboek. [1]"
    return f"{text} {_LONG}[1]" if any(mark == "u" for _, mark in marks) else text


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(f"nr{number:06d}" for number in numbers)
