"""Rules of the house that no linter knows, as code: `check` runs them, and so do the tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One place that breaks a rule: `path` is relative to the repository, `line` counts from 1."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"
