"""Waiting in tests: for a condition, with an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Return as soon as `condition()` is true; fail after `seconds`."""
    ends_at, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < ends_at, "the condition did not come true in time"
        pause.wait(0.005)
