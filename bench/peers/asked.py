"""What a driver is asked, by its command line, and how it tells: lines of JSON.

    python -m bench.peers.NAME URL install
    python -m bench.peers.NAME URL enqueue COUNT
    python -m bench.peers.NAME URL work COUNT JOB_MS SETTINGS     tells "first" and "last"; then waits for a line, tells "ran"
    python -m bench.peers.NAME URL pickup COUNT SETTINGS          one job at a time while the worker is idle

Nothing but the standard library: the peers' environment does not have ours.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from dataclasses import dataclass
from typing import Any

WARM_UP = 5  # pickups that are not counted
SETTLE_SECONDS = 1.0  # until a worker that has just started is idle
GAP_SECONDS = (0.04, 0.08)  # between two pickups


@dataclass(frozen=True, slots=True)
class Asked:
    """One run of a driver."""

    url: str
    what: str
    count: int = 0
    job_seconds: float = 0.0
    settings: dict[str, Any] | None = None

    @classmethod
    def from_arguments(cls) -> Asked:
        """From `sys.argv`."""
        url, what, *rest = sys.argv[1:]
        match what, rest:
            case "work", [count, job_ms, settings]:
                return cls(url, what, int(count), float(job_ms) / 1000, json.loads(settings))
            case "pickup", [count, settings]:
                return cls(url, what, int(count), settings=json.loads(settings))
            case "enqueue", [count]:
                return cls(url, what, int(count))
        return cls(url, what)


def tell(**what: object) -> None:
    """One line to the bench."""
    print(json.dumps(what), flush=True)


def gap() -> float:
    """Seconds until the next pickup: at random, so that no rhythm of a queue is met."""
    return random.uniform(*GAP_SECONDS)


class Progress:
    """Counts the jobs that ran, and ends this process when the bench says so."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._ran = 0
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()

    def ran(self) -> None:
        """A job is about to begin."""
        with self._lock:
            self._ran += 1
            number = self._ran
        if number == 1:
            tell(at="first")
        if number == self._count:
            tell(at="last")

    def _wait_for_the_end(self) -> None:
        sys.stdin.readline()
        tell(ran=self._ran)
        os._exit(0)  # no slow farewell: what it holds is swept away before the next round
