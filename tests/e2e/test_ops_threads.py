"""The console leaves a connection to the webhooks and the jobs, however many look at it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from shared.app import App
from shared.db.pool import LENT_SECONDS, POOL_WAIT_SECONDS, Conn, Database
from tests.fakes.world import settings

ASKED, CONNECTIONS = 8, 3


class Counting(Database):
    """Counts how many hold a connection at once; the first ones wait until there are as many as there may be."""

    def __init__(self, url: str) -> None:
        super().__init__(url, CONNECTIONS)
        self.inside = self.most = self.lent = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def connection(self, *, wait: float = POOL_WAIT_SECONDS, deadline: float = LENT_SECONDS) -> Iterator[Conn]:
        with self._changed:
            self.inside += 1
            self.lent += 1
            self.most = max(self.most, self.inside)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= CONNECTIONS - 1, timeout=30)
        try:
            with super().connection(wait=wait, deadline=deadline) as connection:
                yield connection
        finally:
            with self._changed:
                self.inside -= 1


@pytest.fixture
def counting(database_url: str) -> Iterator[Counting]:
    database = Counting(database_url)
    yield database
    database.close()


def test_all_but_one_of_the_connections_at_most(counting: Counting) -> None:
    app = App(settings(OPS_AUTH="local", DB_POOL_MAX=str(CONNECTIONS)), database=counting)
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def ask_all() -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "scheme": "http",
            "path": "/api/ops",
            "query_string": b"",
            "headers": [],
        }
        async with anyio.create_task_group() as group:
            for _ in range(ASKED):
                group.start_soon(app.console, dict(scope), receive, send)

    anyio.run(ask_all)
    assert statuses == [401] * ASKED
    assert counting.lent == ASKED
    assert counting.most == CONNECTIONS - 1
