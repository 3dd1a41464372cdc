"""Plots, as numbers for an inline SVG: bars in pairs, an hour each, of a day; curves and bars over any steps. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shared.ops.figures import Hour
from shared.ops.times import local

WIDTH, HEIGHT = 600, 190
LEFT, RIGHT, TOP, BOTTOM = 40, 4, 16, 26
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar; `kind` is asked or given."""

    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Label:
    """A text at an axis; `is_minor`: left out where there is little room."""

    text: str
    x: float
    y: float
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """All of the picture. `lines` are the heights of the grid's lines."""

    width: int
    height: int
    left: int
    bars: list[Bar]
    lines: list[float]
    values: list[Label]
    hours: list[Label]


def draw(hours: Sequence[Hour]) -> Chart:
    """The plot of these hours."""
    top, step = scale(max((max(hour.asked, hour.given) for hour in hours), default=0))
    floor, room = HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP
    slot = (WIDTH - LEFT - RIGHT) / max(len(hours), 1)
    width = slot * 0.36
    bars: list[Bar] = []
    labels: list[Label] = []
    for place, hour in enumerate(hours):
        x = LEFT + place * slot
        for kind, value, offset in (("asked", hour.asked, 0.12), ("given", hour.given, 0.52)):
            height = room * value / top
            if value:
                bars.append(
                    Bar(kind, round(x + slot * offset, 1), round(floor - height, 1), round(width, 1), round(height, 1))
                )
        clock = local(hour.hour)
        if clock.hour % 3 == 0:
            labels.append(Label(f"{clock:%H}:00", round(x + slot / 2, 1), HEIGHT - 7, clock.hour % 6 != 0))
    ticks = range(0, top + 1, step)
    heights = [round(floor - room * tick / top, 1) for tick in ticks]
    values = [Label(str(tick), LEFT - 7, height + 4) for tick, height in zip(ticks, heights, strict=True)]
    return Chart(WIDTH, HEIGHT, LEFT, bars, heights, values, labels)


def scale(highest: int) -> tuple[int, int]:
    """The top of an axis and the step between its lines: whole numbers, two to five lines above zero."""
    size = 1
    while True:
        for step in _STEPS:
            if highest <= step * size * 4:
                lines = max(-(-highest // (step * size)), 2)
                return lines * step * size, step * size
        size *= 10


@dataclass(frozen=True, slots=True)
class Axis:
    """The upright one: its marks, and where from 0 (bottom) to 1 (top) a value is."""

    marks: list[tuple[float, str]]
    place: Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through values, broken where there are none: an SVG path. `dots` are values that have no neighbour."""

    kind: str
    path: str
    dots: list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Plot:
    """All of the picture, like Chart's."""

    width: int
    height: int
    left: int
    bars: list[Bar]
    curves: list[Curve]
    lines: list[float]
    values: list[Label]
    names: list[Label]


def whole(highest: int) -> Axis:
    """An axis of whole numbers from 0."""
    top, step = scale(highest)
    return Axis([(tick, str(tick)) for tick in range(0, top + 1, step)], lambda value: value / top)


def percent(lowest: float | None) -> Axis:
    """An axis of shares, up to 1, that begins as high as the lowest allows."""
    floor = next((step for step in (0.99, 0.9, 0.5) if lowest is None or lowest >= step), 0.0)
    marks = [floor + (1 - floor) * part / 2 for part in range(3)]
    return Axis([(mark, f"{mark * 100:g}%") for mark in marks], lambda value: (value - floor) / (1 - floor))


def seconds(values: Sequence[float]) -> Axis:
    """An axis of seconds by powers of ten."""
    low = math.floor(math.log10(max(min(values, default=0.1), 0.001)))
    high = max(math.ceil(math.log10(max(*values, 0.001) if values else 1.0)), low + 1)
    marks = [(10.0**power, _length(10.0**power)) for power in range(low, high + 1)]
    return Axis(marks, lambda value: (math.log10(max(value, 10.0**low)) - low) / (high - low))


def plot(
    names: Sequence[str],
    axis: Axis,
    *,
    bars: Mapping[str, Sequence[int]] | None = None,
    curves: Mapping[str, Sequence[float | None]] | None = None,
) -> Plot:
    """The plot of steps with these names, of which as many are written as there is room for."""
    floor, room, count = HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP, max(len(names), 1)
    left = LEFT + 52  # its marks have units, and on a phone letters twice as large
    slot = (WIDTH - left - RIGHT) / count

    def up(value: float) -> float:
        return round(floor - room * axis.place(value), 1)

    kinds = bars or {}
    width = slot * 0.76 / max(len(kinds), 1)
    drawn = [
        Bar(
            kind,
            round(left + slot * (place + 0.12) + width * number, 1),
            up(value),
            round(width, 1),
            round(floor - up(value), 1),
        )
        for number, (kind, series) in enumerate(kinds.items())
        for place, value in enumerate(series)
        if value
    ]
    every = -(-count // 8)
    written = [
        Label(name, round(left + slot * (place + 0.5), 1), HEIGHT - 7, is_minor=(place // every) % 2 == 1)
        for place, name in enumerate(names)
        if place % every == every // 2 and left + slot * (place + 0.5) < WIDTH - 20
    ]
    heights = [up(value) for value, _ in axis.marks]
    values = [Label(text, left - 7, up(value) + 4) for value, text in axis.marks]
    lines = [_curve(kind, [(left + slot * (place + 0.5), None if value is None else up(value)) for place, value in
                           enumerate(series)]) for kind, series in (curves or {}).items()]  # fmt: skip
    return Plot(WIDTH, HEIGHT, left, drawn, lines, heights, values, written)


def _curve(kind: str, points: Sequence[tuple[float, float | None]]) -> Curve:
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append((round(x, 1), y))
    path = " ".join("M" + " L".join(f"{x} {y}" for x, y in run) for run in runs if len(run) > 1)
    return Curve(kind, path, [run[0] for run in runs if len(run) == 1])


def _length(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:g} ms"
    if seconds < 1000:
        return f"{seconds:g} s"
    return f"{seconds / 60:.0f} min" if seconds < 10_000 else f"{seconds / 3600:.0f} h"
