"""Parts of the local host by themselves: routes, URLs, host.json, body limits, queue leases, the doorbell."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from local.functions.config import QueueOptions, read_host_json, resolve, timespan_seconds
from local.functions.doorbell import Doorbell
from local.functions.errors import CannotStart
from local.functions.http import Disconnected, Event, TooLarge, read_body
from local.functions.protos import TypedData
from local.functions.queues import QueueListener
from local.functions.routes import Route, RouteTable
from local.functions.storage import Received
from local.functions.urls import decode_path, encode_path
from local.functions.worker import Outcome

RETRY_SECONDS = 0.125  # of the queue in memory

# --- routes and URLs -----------------------------------------------------------------------------------------------


def test_more_specific_routes_win() -> None:
    templates = ["a/{*rest}", "a/{x}", "a/{x:int}", "a/b"]
    table = RouteTable((Route.parse(template, None), template) for template in templates)
    found = {path: table.find("GET", path) for path in ("a/b", "a/7", "a/c", "a/c/d", "a", "b")}
    assert found == {
        "a/b": ("a/b", {}),
        "a/7": ("a/{x:int}", {"x": "7"}),
        "a/c": ("a/{x}", {"x": "c"}),
        "a/c/d": ("a/{*rest}", {"rest": "c/d"}),
        "a": ("a/{*rest}", {}),
        "b": None,
    }


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ("/%41%7e", "/A~"), ("/a%2Fb%2fc", "/a%2Fb%2fc"), ("/a%20b+c", "/a%20b+c"), ("/%28x%29", "/(x)"),
        ("/caf%c3%a9", "/caf%C3%A9"), ("/a%FFb", "/a%FFb"), ("/50%25", "/50%25"),
    ],
)  # fmt: skip
def test_path_is_decoded_and_encoded_as_in_the_cloud(sent: str, seen: str) -> None:
    assert encode_path(decode_path(sent)) == seen


# --- bodies --------------------------------------------------------------------------------------------------------


def receiver(*events: Event) -> Callable[[], asyncio.Future[Event]]:
    """An ASGI receive that gives these events."""
    coming = iter(events)

    async def receive() -> Event:
        return next(coming)

    return lambda: asyncio.ensure_future(receive())


def test_body_over_the_limit_is_refused_however_it_comes() -> None:
    async def check() -> None:
        chunk: Event = {"type": "http.request", "body": b"1234", "more_body": True}
        end: Event = {"type": "http.request", "body": b"5", "more_body": False}
        assert await read_body({}, receiver(chunk, end), 5) == b"12345"
        with pytest.raises(TooLarge):
            await read_body({}, receiver(chunk, end), 4)
        with pytest.raises(TooLarge):
            await read_body({"content-length": "5"}, receiver(), 4)

    asyncio.run(check())


def test_request_that_breaks_off_is_no_request() -> None:
    async def check() -> None:
        chunk: Event = {"type": "http.request", "body": b"1234", "more_body": True}
        with pytest.raises(Disconnected):
            await read_body({}, receiver(chunk, {"type": "http.disconnect"}), 100)

    asyncio.run(check())


# --- host.json -----------------------------------------------------------------------------------------------------


def test_host_json_is_read_with_the_clouds_defaults(tmp_path: Path) -> None:
    assert read_host_json(tmp_path).route_prefix == "api"
    queues = {"batchSize": 8, "newBatchThreshold": 0, "visibilityTimeout": "00:00:30", "maxPollingInterval": "00:00:02"}
    (tmp_path / "host.json").write_text(json.dumps({"extensions": {"http": {"routePrefix": ""}, "queues": queues}}))
    config = read_host_json(tmp_path)
    assert config.route_prefix == ""
    assert config.queues == QueueOptions(8, 0, 5, 30.0, 2.0, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not valid JSON"),
        ('{"extensions": []}', "extensions must be an object"),
        ('{"extensions": {"queues": {"batchSize": 33}}}', "batchSize is 33"),
        ('{"extensions": {"queues": {"visibilityTimeout": "30 s"}}}', "'30 s' is not a time span"),
        ('{"extensions": {"queues": {"messageEncoding": "rot13"}}}', "messageEncoding"),
    ],
)
def test_broken_host_json_is_explained(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "host.json").write_text(text)
    with pytest.raises(CannotStart, match=says) as refused:
        read_host_json(tmp_path)
    assert refused.value.status == 2


def test_settings_in_bindings_and_time_spans() -> None:
    assert resolve("a-%NAME%-z", {"NAME": "b"}) == "a-b-z"
    with pytest.raises(ValueError, match="NAME is not set"):
        resolve("%NAME%", {})
    assert timespan_seconds("1.02:03:04.5") == 86400 + 2 * 3600 + 3 * 60 + 4.5


# --- the queue listener on a queue in memory, and the doorbell --------------------------------------------------------


class MemoryQueue:
    """One message, seen again as soon as it is hidden for the retry; and what happened to it."""

    name = "wake"

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.hidden: list[float] = []
        self.deleted = threading.Event()
        self.runs = 0
        self._visible = True

    def receive(self, count: int, hidden_seconds: float) -> list[Received]:
        if self.failures:
            self.failures -= 1
            raise OSError("storage is away\nmore of it")
        if not self._visible:
            return []
        self._visible = False
        self.runs += 1
        now = dt.datetime.now(dt.UTC)
        return [Received("1", "eA==", b"x", self.runs, now, now, now, "receipt")]

    def hide(self, message: Received, seconds: float) -> None:
        self.hidden.append(seconds)
        self._visible = seconds == RETRY_SECONDS

    def delete(self, message: Received) -> None:
        self.deleted.set()

    def bury(self, message: Received) -> None:
        raise AssertionError("nothing fails that often here")


async def listen_until_deleted(
    queue: MemoryQueue, run: Callable[[], Awaitable[bool]], options: QueueOptions, *, lease: float, first_wait: float
) -> None:
    async def invoke(value: TypedData, metadata: dict[str, TypedData]) -> Outcome:
        return Outcome(await run())

    listener = QueueListener(queue, invoke, options, lease_seconds=lease, first_wait_seconds=first_wait)
    listening = asyncio.create_task(listener.listen())
    await asyncio.to_thread(queue.deleted.wait, 30)
    await listener.settle(30)
    listener.close()
    await asyncio.wait_for(listening, 30)
    await listener.abandon()
    assert queue.deleted.is_set()


def test_lease_is_renewed_while_a_function_runs() -> None:
    queue = MemoryQueue()

    async def run() -> bool:
        while len(queue.hidden) < 2:
            await asyncio.sleep(0.005)
        return True

    asyncio.run(listen_until_deleted(queue, run, QueueOptions(), lease=0.1, first_wait=30))
    assert set(queue.hidden) == {0.1}


def test_failed_message_is_polled_for_when_it_is_visible_again() -> None:
    queue = MemoryQueue()

    async def run() -> bool:
        return queue.runs == 2

    options = QueueOptions(visibility_timeout=RETRY_SECONDS)
    asyncio.run(listen_until_deleted(queue, run, options, lease=600, first_wait=30))
    assert (queue.runs, queue.hidden) == (2, [RETRY_SECONDS])


def test_storage_that_is_away_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    queue = MemoryQueue(failures=4)

    async def run() -> bool:
        return True

    with caplog.at_level("INFO", "local.host"):
        options = QueueOptions(max_polling_interval=0.02)
        asyncio.run(listen_until_deleted(queue, run, options, lease=600, first_wait=0.01))
    assert [record.getMessage() for record in caplog.records] == [
        "queue wake cannot be read, trying on: storage is away",
        "queue wake can be read again",
    ]


def test_doorbell_wakes_from_another_thread_and_at_the_visible_time() -> None:
    class Sleeper:
        queue_name = "wake"

        def __init__(self) -> None:
            self.woken: asyncio.Queue[float] = asyncio.Queue()

        def wake(self) -> None:
            self.woken.put_nowait(asyncio.get_running_loop().time())

    async def check() -> None:
        bell, sleeper, loop = Doorbell(), Sleeper(), asyncio.get_running_loop()

        def ring(name: str, seconds: float) -> None:
            threading.Thread(target=bell.ring, args=(name, seconds)).start()

        bell.ring("wake", 0.0)  # nobody is there yet
        bell.connect(loop, [sleeper])
        for name, seconds in (("other", 0.0), ("wake", 60.0), ("wake", 0.0)):
            ring(name, seconds)
        await asyncio.wait_for(sleeper.woken.get(), 30)  # though another message is to be seen in a minute
        started = loop.time()
        ring("wake", 0.6)
        assert await asyncio.wait_for(sleeper.woken.get(), 30) - started >= 0.6
        assert sleeper.woken.empty()

    asyncio.run(check())
