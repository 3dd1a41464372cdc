"""Tells a listener in this process at once that its queue, in this process too, has a new message."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Protocol

# A little after the message is visible, by whichever clock: a poll that comes too early waits for the next one.
MARGIN_SECONDS = 0.002


class Sleeper(Protocol):
    """Who is woken."""

    queue_name: str

    def wake(self) -> None:
        """Look for messages now."""


class Doorbell:
    """Carries news from any thread to the event loop. Rings before `connect` are lost: a listener polls first anyway."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sleepers: list[Sleeper] = []

    def connect(self, loop: asyncio.AbstractEventLoop, sleepers: Iterable[Sleeper]) -> None:
        """From now on ring for these."""
        self._sleepers = list(sleepers)
        self._loop = loop

    def ring(self, queue_name: str, visible_in_seconds: float) -> None:
        """A message has arrived that can be received `visible_in_seconds` from now. Thread-safe."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed: the host is stopping
                self._loop.call_soon_threadsafe(self._schedule, self._loop, queue_name, visible_in_seconds)

    def _schedule(self, loop: asyncio.AbstractEventLoop, queue_name: str, seconds: float) -> None:
        for sleeper in self._sleepers:
            if sleeper.queue_name == queue_name:
                if seconds > 0:
                    loop.call_later(seconds + MARGIN_SECONDS, sleeper.wake)
                else:
                    sleeper.wake()
