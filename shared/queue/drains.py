"""What the drains of a process know of each other: which of them takes care of jobs that hang, and how many wait for due moments.

So a wake message is in hand only as long as there is something to do for it. If each waited for its own job's endpoint, or for
a moment that another waits for already, a few of them would keep the process from taking in the next.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from shared.queue.crew import Crew
from shared.queue.slots import Slots


class Drains[T]:
    """Shared by the drains of one worker."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._stays: Crew[T] | None = None
        self._lingering = 0
        self._looked_at = 0.0
        self._changed = threading.Lock()

    def have_taken(self, crew: Crew[T]) -> bool:
        """Leave a drain's jobs to the one that stays, if all of them hang; the first that has such jobs stays itself."""
        with self._changed:
            if self._slots.waits_of(crew) < crew.busy or self._stays is crew:
                return False
            if self._stays is None:
                self._stays = crew
                return False
            self._slots.pass_on(crew, self._stays)
            crew.leave_to(self._stays)
            return True

    def leave(self, crew: Crew[T], *, at_once: bool = False) -> bool:
        """Let nothing be left to a drain any more; False when something just was."""
        with self._changed:
            if self._stays is crew:
                if crew.expects and not at_once:
                    return False
                self._stays = None
            return True

    @contextlib.contextmanager
    def lingering(self) -> Iterator[int]:
        """Inside, a drain waits for what falls due; how many did already."""
        with self._changed:
            place = self._lingering
            self._lingering += 1
        try:
            yield place
        finally:
            with self._changed:
                self._lingering -= 1

    def look(self) -> None:
        """A drain looks for what is due now."""
        self._looked_at = time.monotonic()

    def have_looked(self, seconds: float) -> bool:
        """Whether any of them has within the last `seconds`."""
        return time.monotonic() - self._looked_at < seconds
