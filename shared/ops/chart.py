"""The plot of a day, as numbers for an inline SVG: bars in pairs, an hour each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
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
