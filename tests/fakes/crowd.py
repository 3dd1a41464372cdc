"""A pool for tests in which many come at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from shared.db.pool import Database


@contextmanager
def roomy_pool(url: str, size: int) -> Iterator[Database]:
    """One with a connection for each who comes, opened before: on a slow machine one who waits for it would be told 503."""
    with closing(Database(url, size)) as pool:
        with ExitStack() as all_of_them:
            for _ in range(size):
                all_of_them.enter_context(pool.connection(wait=60))
        yield pool
