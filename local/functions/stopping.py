"""SIGTERM and SIGINT: the first one asks, the second one ends the process, and time ends it in any case.

Plain signal handlers and a thread of their own, not the event loop's: an app that blocks the loop must not keep the
process alive.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

log = logging.getLogger("local.host")

FORCED = 1
ASKED_TWICE = 130


class StopSignals:
    """What happens on a signal. `limit_seconds` after the first one the process ends whatever still runs."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self._asked = False
        self._listeners: tuple[Callable[[], object], ...] = ()
        self._requests: queue.SimpleQueue[None] = queue.SimpleQueue()  # its put may be called in a signal handler

    def install(self) -> None:
        """Take both signals over. Until somebody listens the first one ends the process at once, too."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)
        threading.Thread(target=self._watch, name="stop-signals", daemon=True).start()

    def listen(self, *listeners: Callable[[], object]) -> None:
        """Call these at the first signal, each once and in a thread of its own."""
        self._listeners = listeners

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._asked:
            os._exit(ASKED_TWICE)
        if not self._listeners:
            os._exit(128 + number)
        self._asked = True
        self._requests.put(None)

    def _watch(self) -> None:
        self._requests.get()
        for listener in self._listeners:
            threading.Thread(target=_call, args=(listener,), name="stop-listener", daemon=True).start()
        time.sleep(self._limit)
        log.error("the host did not stop within %g s and is ended", self._limit)
        os._exit(FORCED)


def _call(listener: Callable[[], object]) -> None:
    try:
        listener()
    except Exception:
        log.exception("telling the app that the host stops has failed")
