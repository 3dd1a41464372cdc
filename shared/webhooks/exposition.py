"""Prometheus' text exposition format, version 0.0.4: one HELP and one TYPE a metric, then its samples. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric that goes up and down: labels and value of each sample. A value of None is left out: there is none."""

    name: str
    help: str
    samples: Iterable[tuple[Mapping[str, str], float | None]]


def exposed(gauges: Iterable[Gauge]) -> str:
    """All of them as text, with the line feed that the format ends with. A gauge without samples is left out whole."""
    lines: list[str] = []
    for gauge in gauges:
        samples = [_sample(gauge.name, labels, value) for labels, value in gauge.samples if value is not None]
        if samples:
            lines += [f"# HELP {gauge.name} {_help(gauge.help)}", f"# TYPE {gauge.name} gauge", *samples]
    return "".join(f"{line}\n" for line in lines)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_label(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _label(text: str) -> str:
    return _help(text).replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
