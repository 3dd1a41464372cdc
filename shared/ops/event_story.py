"""An event's way to an endpoint as a story: the tries of each round, who had it sent again and why, what comes next. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from shared.ops.events_query import Asked
from shared.webhooks.events import Attempt, DeliveryRow

type Outcome = Literal["delivered", "failed", "interrupted", "running"]
TONES = {"delivered": "good", "failed": "bad", "interrupted": "bad", "running": "busy"}


@dataclass(frozen=True, slots=True)
class Step:
    """One try. `seconds` is how long it took, `after` how many seconds after the end of the one before in its round it began."""

    number: int
    outcome: Outcome
    seconds: float | None
    after: float | None
    attempt: Attempt

    @property
    def tone(self) -> str:
        """The colour of its mark."""
        return TONES[self.outcome]


@dataclass(frozen=True, slots=True)
class Round:
    """The tries of one run of its job; `asked` by whom, for those after the first."""

    number: int
    steps: list[Step]
    asked: Asked | None


@dataclass(frozen=True, slots=True)
class Way:
    """One delivery. `asked`: who had it sent, if a person did; `repeats`: what was sent anew since, to here or elsewhere."""

    delivery: DeliveryRow
    asked: Asked | None
    rounds: list[Round]
    repeats: list[Asked]

    @property
    def next_number(self) -> int:
        """The number of its next try in its round."""
        return (self.delivery.attempts or 0) + 1

    @property
    def is_last_try(self) -> bool:
        """Whether its next try is the last that it gets by itself."""
        return self.delivery.max_attempts is not None and self.next_number >= self.delivery.max_attempts

    @property
    def runs_now(self) -> bool:
        """Whether a try is being made."""
        return any(step.outcome == "running" for round_ in self.rounds for step in round_.steps)

    @property
    def can_be_sent_again(self) -> bool:
        """Whether a person can have it sent again now."""
        return self.delivery.state in ("delivered", "dead", "replayed", "closed") and self.delivery.job_status not in (
            "pending",
            "processing",
        )


def tell(delivery: DeliveryRow, attempts: Sequence[Attempt], asked: Sequence[Asked], now: datetime) -> Way:
    """The story of one delivery. `asked` are all times that a person had it sent again, oldest first."""
    repeats = [one for one in asked if one.made not in (None, delivery.id)]
    asked = [one for one in asked if one not in repeats]
    rounds: list[Round] = []
    if (attempts[0].run if attempts else delivery.run or 1) > 1:  # it died without a try, as its endpoint was disabled
        rounds.append(Round(1, [], None))
    for place, (_, group) in enumerate(itertools.groupby(attempts, key=lambda attempt: attempt.run), len(rounds) + 1):
        steps = _steps(list(group), now)
        begun = [one for one in asked if one.at <= steps[0].attempt.started]
        rounds.append(Round(place, steps, begun[-1] if place > 1 and begun else None))
    last = attempts[-1].started if attempts else delivery.created_at
    later = [one for one in asked if rounds and one.at > last]
    if later and delivery.state == "waiting":  # nothing has been tried yet of what was asked for
        rounds.append(Round(len(rounds) + 1, [], later[-1]))
    sent = next((one for one in asked if one.made == delivery.id), None) if delivery.replay_of else None
    return Way(delivery, sent, rounds, repeats)


def _steps(attempts: Sequence[Attempt], now: datetime) -> list[Step]:
    steps: list[Step] = []
    before: Attempt | None = None
    for number, attempt in enumerate(attempts, 1):
        after = None if before is None else (attempt.started - (before.ended or before.started)).total_seconds()
        seconds = None if attempt.duration_ms is None else attempt.duration_ms / 1000
        steps.append(Step(number, _outcome(attempt, now), seconds, after, attempt))
        before = attempt
    return steps


def _outcome(attempt: Attempt, now: datetime) -> Outcome:
    if attempt.outcome is not None:
        return attempt.outcome
    return "running" if attempt.gives_up_at > now else "interrupted"
