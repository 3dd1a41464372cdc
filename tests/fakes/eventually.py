"""Waiting for a condition with a deadline, instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually[T](condition: Callable[[], T], seconds: float = 60.0, what: str = "the condition") -> T:
    """Poll until `condition()` is true and return what it gave. Raises AssertionError after `seconds`: the end of a hang, far
    beyond what a busy machine takes."""
    limit = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() > limit:
            raise AssertionError(f"{what} did not come true within {seconds:g} s")
        time.sleep(0.01)
