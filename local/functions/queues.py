"""Queue triggers: one listener feeds one function from one storage queue."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from local.functions.config import QueueOptions
from local.functions.protos import TypedData
from local.functions.storage import POISON_SUFFIX, MessageSource, Received
from local.functions.worker import Outcome

log = logging.getLogger("local.host")

LEASE_SECONDS = 600.0
FIRST_WAIT_SECONDS = 0.1
THREADS = 4
STOPPING_SECONDS = 0.8  # what giving messages back may take at the very end

Run = Callable[[TypedData, dict[str, TypedData]], Awaitable[Outcome]]


class QueueListener:
    """Polls the queue and runs the function for each message.

    A success deletes the message; a failure shows it again after `visibility_timeout`; after `max_dequeue_count`
    failures, or when it cannot be decoded, it goes to the poison queue.
    """

    def __init__(
        self,
        queue: MessageSource,
        run: Run,
        options: QueueOptions,
        *,
        lease_seconds: float = LEASE_SECONDS,
        first_wait_seconds: float = FIRST_WAIT_SECONDS,
    ) -> None:
        self.queue_name = queue.name
        self._queue = queue
        self._run = run
        self._options = options
        self._lease = lease_seconds
        self._first_wait = first_wait_seconds
        self._threads = ThreadPoolExecutor(THREADS, f"queue-{queue.name}")
        self._awake = asyncio.Event()
        self._running: dict[asyncio.Task[None], Received] = {}
        self._closing = False
        self._away = False

    async def listen(self) -> None:
        """Poll until closed: again at once after a message, else at doubling, slightly random intervals."""
        wait = self._first_wait
        while self._is_open():
            self._awake.clear()
            messages = await self._receive()
            for message in messages:
                if not self._is_open():  # leased while the host was told to stop
                    await self._attempt(self._queue.hide, message, 0.0)
                    continue
                task = asyncio.create_task(self._process(message))
                self._running[task] = message
                task.add_done_callback(self._running.pop)
            if messages:
                wait = self._first_wait
                while len(self._running) > self._options.new_batch_threshold:
                    await asyncio.wait(set(self._running), return_when=asyncio.FIRST_COMPLETED)
            else:
                wait = await self._pause(wait)

    def wake(self) -> None:
        """Poll now: there may be a message. Only from the event loop's thread."""
        self._awake.set()

    def close(self) -> None:
        """Take no more messages; `listen` returns soon, and what runs goes on."""
        self._closing = True
        self._awake.set()

    async def settle(self, seconds: float) -> None:
        """Wait until what has run is deleted or given back, or until the time is over."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=max(seconds, 0.0))

    async def abandon(self) -> None:
        """Let the messages of runs that have not ended be seen again now, not when their lease ends."""
        given_back = [self._attempt(self._queue.hide, message, 0.0) for message in self._running.values()]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*given_back), STOPPING_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _is_open(self) -> bool:
        return not self._closing

    async def _receive(self) -> list[Received]:
        try:
            messages = await self._call(self._queue.receive, self._options.batch_size, self._lease)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next poll tries again
            if not self._away:
                log.warning("queue %s cannot be read, trying on: %s", self.queue_name, _first_line(error))
            self._away = True
            return []
        if self._away:
            log.info("queue %s can be read again", self.queue_name)
        self._away = False
        return messages

    async def _pause(self, wait: float) -> float:
        """Wait for a wake or the interval's end; the next interval."""
        longest = self._options.max_polling_interval
        try:
            await asyncio.wait_for(self._awake.wait(), min(wait * random.uniform(0.8, 1.2), longest))
        except TimeoutError:
            return min(wait * 2, longest)
        return self._first_wait

    async def _process(self, message: Received) -> None:
        renewal = asyncio.create_task(self._renew(message))
        try:
            if message.body is None or message.dequeue_count > self._options.max_dequeue_count:
                await self._bury(message)
                return
            outcome = await self._run(_value(message.body), _metadata(message))
            if outcome.ok:
                await self._attempt(self._queue.delete, message)
            elif message.dequeue_count >= self._options.max_dequeue_count:
                await self._bury(message)
            else:
                delay = self._options.visibility_timeout
                await self._attempt(self._queue.hide, message, delay)
                asyncio.get_running_loop().call_later(delay, self.wake)
        finally:
            renewal.cancel()

    async def _bury(self, message: Received) -> None:
        log.warning("message %s of queue %s goes to %s%s", message.id, self.queue_name, self.queue_name, POISON_SUFFIX)
        await self._attempt(self._queue.bury, message)

    async def _renew(self, message: Received) -> None:
        while True:
            await asyncio.sleep(self._lease / 2)
            await self._attempt(self._queue.hide, message, self._lease)

    async def _attempt[**Arguments](
        self, work: Callable[Arguments, None], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> None:
        """One call whose failure only costs time: the message is seen again when its lease ends."""
        try:
            await self._call(work, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the client's errors have no common root
            log.warning("queue %s: a message could not be updated: %s", self.queue_name, _first_line(error))

    async def _call[**Arguments, Result](
        self, work: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))


def _value(body: bytes) -> TypedData:
    try:
        return TypedData(string=body.decode())
    except UnicodeDecodeError:
        return TypedData(bytes=body)


def _metadata(message: Received) -> dict[str, TypedData]:
    """Strings travel as strings, numbers and times as JSON."""
    return {
        "Id": TypedData(string=message.id),
        "PopReceipt": TypedData(string=message.receipt),
        "DequeueCount": TypedData(json=json.dumps(message.dequeue_count)),
        "InsertionTime": TypedData(json=json.dumps(message.inserted.isoformat())),
        "ExpirationTime": TypedData(json=json.dumps(message.expires.isoformat())),
        "NextVisibleTime": TypedData(json=json.dumps(message.next_visible.isoformat())),
    }


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
