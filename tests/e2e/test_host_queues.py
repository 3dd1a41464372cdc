"""The local host's queue triggers, through Microsoft's own client and the queue stand-in."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.storage.queue import QueueClient

from local.standins.storage_queue import QueueStandIn
from tests.e2e.host_process import APP, HostProcess, running
from tests.e2e.running import free_port
from tests.fakes.eventually import eventually


def send(queue: QueueClient, text: str, visible_in: int = 0) -> float:
    """Put a message as the app's wake does; the earliest moment at which it may be visible."""
    earliest = time.time() + visible_in
    queue.send_message(base64.b64encode(text.encode()).decode(), visibility_timeout=visible_in)
    return earliest


def runs(host: HostProcess, body: str) -> list[dict[str, Any]]:
    return [run for run in host.seen("queue") if run["body"] == body]


def first_run(host: HostProcess, body: str) -> dict[str, Any]:
    return eventually(lambda: runs(host, body), what=f"a run for {body}")[0]


@pytest.fixture(scope="module")
def host() -> Iterator[HostProcess]:
    """A host with the stand-in in its own process; polling alone would take up to 30 s."""
    with running("--no-timer", "--queue-standin") as process:
        yield process


@pytest.fixture(scope="module")
def queue(host: HostProcess) -> QueueClient:
    connection = host.get("/api/setting?name=AzureWebJobsStorage").json()
    client = QueueClient.from_connection_string(connection, "wake")
    client.create_queue()
    return client


def test_message_is_delivered_once_and_deleted(host: HostProcess, queue: QueueClient) -> None:
    for number in range(12):
        send(queue, f"message {number}")
    eventually(lambda: len([run for run in host.seen("queue") if "message" in run["body"]]) >= 12, what="12 runs")
    eventually(lambda: queue.get_queue_properties().approximate_message_count == 0, what="an empty queue")
    bodies = sorted(run["body"] for run in host.seen("queue") if "message" in run["body"])
    assert bodies == sorted(f"message {number}" for number in range(12))


def test_wake_in_one_process_is_picked_up_at_once(host: HostProcess, queue: QueueClient) -> None:
    send(queue, "warm")
    first_run(host, "warm")
    visible = send(queue, "now")
    assert first_run(host, "now")["at"] - visible < 10  # by a look now and then it would be up to 30


@pytest.fixture(scope="module")
def later(host: HostProcess, queue: QueueClient) -> float:
    """Messages that take a second or two, put together; when the delayed one is visible."""
    queue.send_message("not base64!")
    send(queue, "once")
    send(queue, "poison")
    return send(queue, "later", visible_in=1)


def test_delayed_message_is_picked_up_when_it_is_visible(host: HostProcess, later: float) -> None:
    assert 0 <= first_run(host, "later")["at"] - later < 10


def test_failed_message_comes_again_after_the_visibility_timeout(host: HostProcess, later: float) -> None:
    eventually(lambda: len(runs(host, "once")) == 2, what="a second run")
    first, second = runs(host, "once")
    assert (first["count"], second["count"]) == (1, 2)
    assert first["id"] == second["id"]
    assert 1 <= second["at"] - first["at"] < 10


def test_what_always_fails_and_what_is_not_base64_goes_to_poison(
    host: HostProcess, queue: QueueClient, later: float
) -> None:
    connection = host.get("/api/setting?name=AzureWebJobsStorage").json()
    poison = QueueClient.from_connection_string(connection, "wake-poison")
    eventually(lambda: host.log().count("to wake-poison") == 2, what="two burials")
    eventually(lambda: queue.get_queue_properties().approximate_message_count == 0, what="an empty queue")
    buried = {str(message.content) for message in poison.peek_messages(max_messages=32)}
    assert buried == {base64.b64encode(b"poison").decode(), "not base64!"}
    assert [run["count"] for run in runs(host, "poison")] == [1, 2, 3]


def test_storage_that_is_away_at_the_start_is_polled_until_it_is_there(tmp_path: Path) -> None:
    port = free_port()
    app = impatient_app(tmp_path)
    env = {"AzureWebJobsStorage": QueueStandIn(port=port).connection_string}
    with running("--no-timer", "--grace", "0", env=env, app=app) as host:
        eventually(lambda: "cannot be read" in host.log(), what="a warning")
        assert host.get("/api/ping").status == 200
        with QueueStandIn(port=port) as there:
            eventually(lambda: "can be read again" in host.log(), what="the good news")
            queue = QueueClient.from_connection_string(there.connection_string, "wake")
            queue.create_queue()
            send(queue, "found")
            first_run(host, "found")
            # A message that is being worked on when the host is stopped is seen again by the next host at once.
            send(queue, "slow")
            first_run(host, "slow")
            code, took = host.stop()
            assert (code, took < 15) == (1, True)
            assert "left woken behind" in host.log()
            again = eventually(queue.receive_message, what="the message")
            assert again is not None
            assert again.dequeue_count == 2
        assert host.log().count("cannot be read") == 1


def test_without_storage_http_works_and_the_trigger_is_explained() -> None:
    with running("--no-timer") as host:
        assert host.get("/api/ping").status == 200
        assert "AzureWebJobsStorage is not set: the queue trigger woken does not run" in host.log()


def impatient_app(folder: Path) -> Path:
    """The tests' app with a short polling interval."""
    app = Path(shutil.copytree(APP, folder / "app"))
    config = json.loads((app / "host.json").read_text())
    config["extensions"]["queues"]["maxPollingInterval"] = "00:00:00.2"
    (app / "host.json").write_text(json.dumps(config))
    return app
