"""pgqueuer, with asyncpg and uvloop, as its own benchmark has it."""

from __future__ import annotations

from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, Queries, QueueManager

from bench.peers.coroutines import Run, serve

NAME = "bench"


class PgQueuer:
    """A connection for the client's calls; the worker has one of its own, or a pool."""

    async def open(self, url: str) -> None:
        """A client with a connection."""
        self._client = Queries(AsyncpgDriver(await asyncpg.connect(url)))

    async def install(self) -> None:
        """Its own tables."""
        await self._client.install()

    async def enqueue(self) -> None:
        """One job."""
        await self._client.enqueue(NAME, None)

    async def work(self, url: str, run: Run, settings: dict[str, Any]) -> None:
        """Its worker."""
        if size := settings.get("pool"):
            driver: Any = AsyncpgPoolDriver(await asyncpg.create_pool(url, min_size=1, max_size=size))
        else:
            driver = AsyncpgDriver(await asyncpg.connect(url))
        manager = QueueManager(Queries(driver))

        async def work(job: object) -> None:
            del job
            await run()

        manager.entrypoint(NAME)(work)
        await manager.run(**settings.get("worker", {}))


if __name__ == "__main__":
    uvloop.run(serve(PgQueuer()))
