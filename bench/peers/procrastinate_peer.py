"""procrastinate, with its psycopg connector."""

from __future__ import annotations

import asyncio
from typing import Any

from procrastinate import App, PsycopgConnector

from bench.peers.coroutines import Run, serve

NAME = "bench"


class Procrastinate:
    """One pool for the client's calls, one for the worker."""

    async def open(self, url: str) -> None:
        """A client with a connection."""
        self._app = App(connector=PsycopgConnector(conninfo=url))
        self._task: Any = self._app.task(name=NAME)(_nothing)
        await self._app.open_async()

    async def install(self) -> None:
        """Its own tables."""
        await self._app.schema_manager.apply_schema_async()

    async def enqueue(self) -> None:
        """One job."""
        await self._task.defer_async()

    async def work(self, url: str, run: Run, settings: dict[str, Any]) -> None:
        """Its worker."""
        app = App(connector=PsycopgConnector(conninfo=url, **settings.get("pool", {})))
        app.task(name=NAME)(run)
        await app.open_async()
        await app.run_worker_async(install_signal_handlers=False, **settings.get("worker", {}))


async def _nothing() -> None:
    """Only its name counts: the worker has the job."""


if __name__ == "__main__":
    asyncio.run(serve(Procrastinate()))
