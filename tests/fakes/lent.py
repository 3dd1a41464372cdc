"""A database that lends the one connection it was given: so that a test decides on which connection, and in which transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from shared.db.pool import LENT_SECONDS, POOL_WAIT_SECONDS, Conn, Database


class Lent(Database):
    """Lends `lent` to whoever asks; nothing waits for it and nothing cuts it."""

    def __init__(self, lent: Conn) -> None:
        self._lent = lent

    @contextlib.contextmanager
    def connection(self, *, wait: float = POOL_WAIT_SECONDS, deadline: float = LENT_SECONDS) -> Iterator[Conn]:
        del wait, deadline
        yield self._lent
