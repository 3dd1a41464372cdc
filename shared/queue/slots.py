"""The slots of a process: timer and wake messages share them, so that together they run no more jobs than it can carry."""

from __future__ import annotations

import threading


class Slots:
    """So many places, taken and released several at once."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._changed = threading.Condition()

    def take(self, size: int, *, wait: float = 0.0) -> int:
        """Take the free ones, at most `size` (below 1: none); how many. When none is free, wait at most `wait` seconds."""
        with self._changed:
            if wait and size > 0 and not self._free:
                self._changed.wait_for(lambda: self._free, timeout=wait)
            taken = max(min(self._free, size), 0)
            self._free -= taken
            return taken

    def release(self, size: int = 1) -> None:
        """Give some back."""
        with self._changed:
            self._free += size
            self._changed.notify(size)
