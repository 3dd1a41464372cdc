"""A process that takes an event in, killed with SIGKILL between its two transactions, and after the second."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shared.boundary import OF_RECEIVING, Boundary
from shared.db.pool import Database
from tests.fakes.senders import Sending, event_body

REPOSITORY = Path(__file__).resolve().parents[2]
A_MINUTE_ON = "UPDATE webhook_receipts SET locked_until = locked_until - interval '60 s'"


@pytest.fixture
def world(database: Database) -> Sending:
    made = Sending(database)
    made.add_source()
    made.add_endpoints(["one", "two"])
    return made


def kill(url: str, world: Sending, body: bytes, at: Boundary) -> None:
    """Send the event in a process that dies on the way."""
    lines = "\n".join((world.secrets["openai"][1], "wh_1", body.decode(), ""))
    ended = subprocess.run(
        [sys.executable, "-m", "tests.crash.receive_process", url, at],
        cwd=REPOSITORY, input=lines, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize("at", OF_RECEIVING)
def test_killed_anywhere_the_event_is_there_once(database_url: str, world: Sending, at: Boundary) -> None:
    body = event_body()
    kill(database_url, world, body, at)
    if at == Boundary.TAKEN:
        assert world.count("webhook_events") == 0
        assert world.send(body=body, identity="wh_1") == (409, {"status": "processing"})
        world.execute(A_MINUTE_ON)
        assert world.send(body=body, identity="wh_1")[1]["status"] == "accepted"
    status, answer = world.send(body=body, identity="wh_1")
    assert (status, answer["status"]) == (200, "already_processed")
    assert [world.count(table) for table in ("webhook_events", "webhook_deliveries", "ai_jobs")] == [1, 2, 2]
