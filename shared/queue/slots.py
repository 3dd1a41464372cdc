"""The slots of a process: timer and wake messages share them, so that together they run no more jobs than it can carry.

A job that waits for somebody else's network needs no slot meanwhile. It lends its own once the wait has lasted a moment, so
that a hanging endpoint holds nobody up, while a quick answer costs no claim and no thread. When the wait is over it goes on
at once, without a slot until one of those that were begun instead is done: it has only to say what became of it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

LENT_AT_MOST = 32  # beyond that a wait keeps its slot: each is a thread
LENDS_AFTER_SECONDS = 0.005


class Slots:
    """So many places, taken and released several at once. `party` is whoever runs jobs together: one drain."""

    def __init__(self, size: int, *, lends_after: float = LENDS_AFTER_SECONDS) -> None:
        self._free = size  # below zero while more have come back from a wait than there was room for
        self._lends_after = lends_after
        self._waits: dict[_Wait, None] = {}  # the longest first
        self._lent = 0
        self._changed = threading.Condition()

    def take(self, size: int, *, wait: float = 0.0) -> int:
        """Take the free ones, at most `size` (below 1: none); how many. When none is free, wait at most `wait` seconds."""
        with self._changed:
            self._lend()
            ends = time.monotonic() + wait
            while wait and size > 0 and self._free <= 0 and (left := ends - time.monotonic()) > 0:
                until_loan = self._until_loan()
                self._changed.wait(left if until_loan is None else min(left, until_loan))
                self._lend()
            taken = max(min(self._free, size), 0)
            self._free -= taken
            return taken

    def release(self, size: int = 1) -> None:
        """Give some back."""
        with self._changed:
            self._free += size
            self._changed.notify(size)

    @contextlib.contextmanager
    def waiting(self, party: object) -> Iterator[None]:
        """Inside, a job of `party` waits for the network: its slot is lent when that lasts."""
        wait = _Wait(party, time.monotonic())
        with self._changed:
            self._waits[wait] = None
            self._changed.notify()  # whoever waits for a slot now knows when there may be one
        try:
            yield
        finally:
            with self._changed:
                del self._waits[wait]
                if wait.is_lent:
                    self._lent -= 1
                    self._free -= 1

    def lent_by(self, party: object) -> int:
        """How many slots of a party's jobs are lent now."""
        with self._changed:
            self._lend()
            return sum(wait.is_lent and wait.party is party for wait in self._waits)

    def waits_of(self, party: object) -> int:
        """How many jobs of a party wait for the network: each has lent its slot, or may in a moment."""
        with self._changed:
            return sum(wait.party is party for wait in self._waits)

    def pass_on(self, party: object, heir: object) -> None:
        """A party's waits are another's from now on."""
        with self._changed:
            for wait in self._waits:
                if wait.party is party:
                    wait.party = heir

    def _lend(self) -> None:
        """Lend what is ripe, and with it what is nearly so: it would call for a claim of its own a moment later."""
        now = time.monotonic()
        ripe = [wait for wait in self._waits if not wait.is_lent and now - wait.began >= self._lends_after / 2]
        if ripe and now - ripe[0].began >= self._lends_after:
            for wait in ripe[: LENT_AT_MOST - self._lent]:
                wait.is_lent = True
                self._lent += 1
                self._free += 1

    def _until_loan(self) -> float | None:
        waits = (wait for wait in self._waits if not wait.is_lent)
        if self._lent < LENT_AT_MOST and (longest := next(waits, None)):
            return max(longest.began + self._lends_after - time.monotonic(), 0.001)
        return None


class _Wait:
    """One job's wait."""

    __slots__ = ("began", "is_lent", "party")

    def __init__(self, party: object, began: float) -> None:
        self.party = party
        self.began = began
        self.is_lent = False
