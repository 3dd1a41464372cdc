"""A job's attempts as a story: which try it was, how long after the one before, what happened. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from shared.ops.jobs_query import Attempt

type Tone = Literal["good", "bad", "wait", "calm"]
COUNTED = frozenset({"done", "retry", "failed", "crashed"})  # the others use up no try
TONES: dict[str, Tone] = {"done": "good", "retry": "wait", "failed": "bad", "crashed": "bad"}
MODEL_JOBS = frozenset({"autoreply", "suggest", "embed_record"})


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the story.

    `number` is the try's, within its run; None for what used up no try. `after` is in seconds since the end of the step
    before, within its run. `times` attempts in a row that were the same are one step. `service` is model, line or other.
    """

    run: int
    number: int | None
    outcome: str
    error_class: str | None
    http_status: int | None
    error: str | None
    started: datetime
    ended: datetime
    after: float | None
    service: str
    times: int = 1

    @property
    def tone(self) -> Tone:
        """The colour of its mark."""
        return TONES.get(self.outcome, "calm")


@dataclass(frozen=True, slots=True)
class Run:
    """The steps of one run: the first, or what followed a restart."""

    number: int
    steps: list[Step]


def tell(job_type: str, attempts: Sequence[Attempt]) -> list[Step]:
    """The steps, oldest first."""
    return list(_joined(_steps(job_type, attempts)))


def by_run(steps: Sequence[Step], present: int) -> list[Run]:
    """The steps, parted by run; the present run is there even if nothing of it has happened yet."""
    found = {number: Run(number, list(group)) for number, group in itertools.groupby(steps, key=lambda step: step.run)}
    return list((found | {present: found.get(present, Run(present, []))}).values())


def _steps(job_type: str, attempts: Sequence[Attempt]) -> Iterator[Step]:
    before: Attempt | None = None
    number = 0
    for attempt in attempts:
        if before is None or before.run != attempt.run:
            before, number = None, 0
        is_counted = attempt.outcome in COUNTED
        number += is_counted
        yield Step(
            attempt.run,
            number if is_counted else None,
            attempt.outcome,
            attempt.error_class,
            attempt.http_status,
            attempt.error,
            attempt.started,
            attempt.ended,
            (attempt.started - before.ended).total_seconds() if before else None,
            _service(job_type, attempt.error),
        )
        before = attempt


def _joined(steps: Iterator[Step]) -> Iterator[Step]:
    """What was put off again and again for one reason is one line."""
    last: Step | None = None
    for step in steps:
        is_same = last is not None and step.number is None and _kind(step) == _kind(last)
        if last is not None and is_same:
            last = replace(last, ended=step.ended, error=step.error, times=last.times + 1)
            continue
        if last is not None:
            yield last
        last = step
    if last is not None:
        yield last


def _kind(step: Step) -> tuple[object, ...]:
    return step.run, step.number, step.outcome, step.error_class


def _service(job_type: str, error: str | None) -> str:
    """Whose failure it was, for the words: Twilio's errors say so, and so does the type of a job that only asks the model."""
    if error and "Twilio" in error:
        return "line"
    if job_type in MODEL_JOBS:
        return "model"
    return "line" if job_type == "send_message" else "other"
