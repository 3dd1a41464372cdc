"""What the machine was like while it measured: how much others kept it busy."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any, Self

STAT = Path("/proc/stat")  # Linux only; elsewhere nothing is said about what others take
_STEAL = 7  # the column of /proc/stat that counts what the hypervisor gave to others


class Machine:
    """A context manager around the measuring."""

    def __init__(self) -> None:
        self.cores = os.cpu_count() or 1
        self.load_before = self.load_after = 0.0
        self.stolen: float | None = None
        self._ticks: list[int] = []

    def __enter__(self) -> Self:
        self.load_before = os.getloadavg()[0]
        self._ticks = _ticks()
        return self

    def __exit__(self, *_: object) -> None:
        self.load_after = os.getloadavg()[0]
        spent = [after - before for before, after in zip(self._ticks, _ticks(), strict=False)]
        if len(spent) > _STEAL and sum(spent) > 0:
            self.stolen = spent[_STEAL] / sum(spent)

    def sentence(self) -> str:
        """One line for people."""
        text = f"{self.cores} cores, Python {platform.python_version()}, load {self.load_before:.1f} before"
        text += f" and {self.load_after:.1f} after" if self.stolen is None else (
            f" and {self.load_after:.1f} after, {self.stolen:.1%} of the processor taken by other machines"
        )  # fmt: skip
        return text + ("; others kept it busy: mind the ranges" if self.load_before > self.cores / 2 else "")

    def as_json(self) -> dict[str, Any]:
        """The same for scripts."""
        return {
            "cores": self.cores,
            "load_before": self.load_before,
            "load_after": self.load_after,
            "stolen_share": self.stolen,
        }


def _ticks() -> list[int]:
    return [int(field) for field in STAT.read_text().split("\n", 1)[0].split()[1:9]] if STAT.exists() else []
