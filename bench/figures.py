"""What a figure is: a median with its range over repeated rounds, its baseline, and the goal that it meets or misses. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

COLUMNS = ("bench", "what", "figure", "baseline", "ratio", "goal", "met")


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over several rounds, with the lowest and the highest; mostly their median."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, rounds: Iterable[float]) -> Spread:
        """Raises ValueError when there is no round."""
        values = list(rounds)
        if not values:
            raise ValueError("a figure needs at least one round")
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def pooled(cls, rounds: Sequence[Sequence[float]], share: float) -> Spread:
        """A percentile of all rounds' values together, for rounds too small to have a tail; the range is the rounds' own."""
        own = [percentile(values, share) for values in rounds]
        return cls(percentile([value for values in rounds for value in values], share), min(own), max(own))


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit on the figure's value or on its ratio."""

    limit: float
    on: Literal["value", "ratio"] = "value"
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        """Whether a value keeps the limit; the limit itself does."""
        return value >= self.limit if self.at_least else value <= self.limit

    def missed_by(self, value: float) -> float:
        """By which share of the limit a value misses it; 0 when it does not."""
        return 0.0 if self.is_met(value) or not self.limit else abs(value - self.limit) / abs(self.limit)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `value` and `baseline` are in `unit`; `ratio` is the value by the baseline of the same round."""

    bench: str
    what: str
    value: Spread
    unit: str
    baseline: Spread | None = None
    ratio: Spread | None = None
    goal: Goal | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.goal is None:
            return None
        judged = self._judged
        return judged is not None and self.goal.is_met(judged.middle)

    @property
    def missed_by(self) -> float | None:
        """By which share of its limit the goal is missed; None when it is met, or there is none, or nothing to judge it by."""
        judged = self._judged
        return None if self.goal is None or judged is None or self.met else self.goal.missed_by(judged.middle)

    @property
    def _judged(self) -> Spread | None:
        return self.value if self.goal is None or self.goal.on == "value" else self.ratio


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest value that at least `share` (0 to 1) of all do not exceed."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    rank = math.ceil(share * len(values) - 1e-9)  # 0.07 × 100 is a little over 7 in binary
    return sorted(values)[max(rank, 1) - 1]


def ratios(values: Sequence[float], baselines: Sequence[float]) -> Spread:
    """Each round's value by its own baseline: what slows both down together does not count."""
    return Spread.of(value / baseline for value, baseline in zip(values, baselines, strict=True))


def row(figure: Figure) -> tuple[str, ...]:
    """The cells of a figure under COLUMNS."""
    return (
        figure.bench,
        figure.what,
        show(figure.value, figure.unit),
        show(figure.baseline, figure.unit) if figure.baseline else "",
        show(figure.ratio, "×") if figure.ratio else "",
        _goal(figure),
        _met(figure),
    )


def show(spread: Spread, unit: str) -> str:
    """`4.1 ms (3.9–4.6)`; one number when all rounds gave the same."""
    middle, low, high = (_number(value) for value in (spread.middle, spread.low, spread.high))
    return f"{middle} {unit}" if low == high else f"{middle} {unit} ({low}–{high})"


def as_json(figure: Figure) -> dict[str, Any]:
    """A figure as an object for scripts."""
    return {
        "bench": figure.bench,
        "what": figure.what,
        "unit": figure.unit,
        "figure": _spread_json(figure.value),
        "baseline": _spread_json(figure.baseline),
        "ratio": _spread_json(figure.ratio),
        "goal": _goal(figure) or None,
        "met": figure.met,
        "missed_by": figure.missed_by,
    }


def _spread_json(spread: Spread | None) -> dict[str, float] | None:
    return {"middle": spread.middle, "low": spread.low, "high": spread.high} if spread else None


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    unit = figure.unit if figure.goal.on == "value" else "×"
    return f"{'≥' if figure.goal.at_least else '≤'} {_number(figure.goal.limit)} {unit}"


def _met(figure: Figure) -> str:
    if figure.met is None:
        return ""
    if figure.met:
        return "yes"
    missed = figure.missed_by
    return "NO" if not missed else f"NO, by {_number(missed * 100)} %"


def _number(value: float) -> str:
    """Three figures that count, never an exponent."""
    if value == 0:
        return "0"
    digits = max(2 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
