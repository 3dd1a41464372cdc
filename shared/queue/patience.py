"""When this process may take an expired lease for a dead worker's: not while the database itself has just been away.

During an outage nobody can renew a lease. Who comes back first would rescue the jobs of workers that live, and each of them would
have paid an attempt for the database's fault. So whoever has seen an outage gives the others half a lease: their renewals
come every third of one, and bring an expired lease back as long as nobody has taken it.
"""

from __future__ import annotations

import threading
import time

from shared.db.pool import Database

ANSWER = "SELECT 1"


class Patience:
    """Told of every answer and failure while jobs run, and asked before each rescue; safe to use from several threads."""

    def __init__(self, lease_seconds: float, every_seconds: float) -> None:
        self._lease = lease_seconds
        self._every = min(every_seconds, lease_seconds / 2)
        self._lock = threading.Lock()
        self._answered_at = time.monotonic()
        self._was_away = False
        self._next = 0.0

    def begin(self) -> None:
        """Nobody has asked the database for a while: the silence until now says nothing."""
        with self._lock:
            self._answered_at = time.monotonic()

    def answered(self) -> None:
        """The database has answered. Between two renewals it was not silent, unless it was frozen, which fails nobody."""
        with self._lock:
            now = time.monotonic()
            if now - self._answered_at > self._lease / 2:
                self._was_away = True
            self._answered_at = now

    def failed(self) -> None:
        """The database could not be reached, or did not take our work."""
        with self._lock:
            self._was_away = True

    def is_over(self, database: Database) -> bool:
        """Whether it is time for a rescue, at most once in `every_seconds`. Raises what the database raises when it is away."""
        if time.monotonic() < self._next:
            return False
        with database.connection() as connection:
            connection.execute(ANSWER)
        self.answered()
        with self._lock:
            was_away, self._was_away = self._was_away, False
            self._next = time.monotonic() + (self._lease / 2 if was_away else self._every)
        return not was_away
