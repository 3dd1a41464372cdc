"""Telephone numbers of people that a test makes up."""

from __future__ import annotations

import itertools

_numbers = itertools.count(10_000_001)


def new_number() -> str:
    """Nobody else's in this process: numbers that were drawn could meet."""
    return f"+316{next(_numbers)}"
