"""The wake queue: a hint that a job is due, so that a worker need not wait for the timer. Best effort, by design.

Postgres alone knows what is to be done; whoever wakes finds it there. So a hint may be lost, doubled or late, and
nothing here ever raises, blocks or is waited for by a request.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from shared import telemetry
from shared.clients.deadline import boot_clock
from shared.errors import shorten
from shared.settings import Settings

if TYPE_CHECKING:
    from azure.storage.queue import QueueClient

QUEUE_NAME = "wake"
WAITING_AT_MOST = 1000
IMMEDIATE_WAITING_AT_MOST = 100
_WEEK_SECONDS = 7 * 24 * 3600
_TIMEOUT_SECONDS = 2
_STUCK_SECONDS = 10.0
_WARNING_EVERY_SECONDS = 60.0


class Wake(Protocol):
    """Tells the workers that a job falls due in `delay_seconds`."""

    def wake(self, delay_seconds: float = 0.0) -> None: ...

    def close(self) -> None: ...


class NoWake:
    """Without a storage account: the timer finds the jobs."""

    def wake(self, delay_seconds: float = 0.0) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class StorageWake:
    """Puts messages on the storage queue `wake`, invisible until their time, from one background thread.

    Either a connection string, or the queue service's URI and the app's own identity. `sent`, `failed` and `dropped`
    count hints. Dropped are those beyond 1,000 waiting ones, and those for now beyond 100: the hundred before them
    wake every worker there is, and the timer finds the jobs all the same.
    """

    def __init__(
        self,
        connection_string: str | None = None,
        *,
        service_uri: str | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        stuck_seconds: float = _STUCK_SECONDS,
    ) -> None:
        self._connection_string = connection_string
        self._service_uri = service_uri
        self._timeout_seconds = timeout_seconds
        self._stuck_seconds = stuck_seconds
        self._changed = threading.Condition()
        self._waiting: deque[float] = deque()  # when each hint's job falls due, by boot_clock()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._busy_since: float | None = None
        self._next_warning = -math.inf
        self.sent = self.failed = self.dropped = 0

    def wake(self, delay_seconds: float = 0.0) -> None:
        """Hand a hint to the background thread and return at once."""
        now = boot_clock()
        at_most = WAITING_AT_MOST if delay_seconds > 0 else IMMEDIATE_WAITING_AT_MOST
        with self._changed:
            if self._closing or len(self._waiting) >= at_most:
                self.dropped += 1
                return
            self._waiting.append(now + max(delay_seconds, 0.0))
            # The SDK limits each read, not the whole call: a thread that a dripping server holds is left to itself.
            stuck = self._busy_since is not None and now - self._busy_since > self._stuck_seconds
            if self._thread is None or stuck:
                self._busy_since = None
                self._thread = threading.Thread(target=self._run, name="wake", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self, timeout: float = 2.0) -> None:
        """Send what waits, for at most `timeout` seconds; the rest is lost, and later hints are dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def count(self) -> int:
        """About how many hints wait on the queue: for whoever checks a set-up. Raises what the library raises."""
        with self._open() as queue:
            return int(queue.get_queue_properties().approximate_message_count or 0)

    def _run(self) -> None:
        """The background thread: until it is closed, or another has taken its place."""
        me, queue = threading.current_thread(), None
        while (due := self._next(me)) is not None:
            try:
                queue = queue or self._open()
                _put(queue, due)
            except Exception as error:  # noqa: BLE001  # a hint is never worth more than a line in the log
                self._count_failure(error)
            else:
                with self._changed:
                    self.sent += 1
        if queue is not None:
            queue.close()

    def _next(self, me: threading.Thread) -> float | None:
        with self._changed:
            if self._thread is me:
                self._busy_since = None
            while self._thread is me:
                if self._waiting:
                    self._busy_since = boot_clock()
                    return self._waiting.popleft()
                if self._closing:
                    return None
                self._changed.wait()
        return None

    def _open(self) -> QueueClient:
        """The SDK's client. Its retries are off; what it sends is base64, as host.json tells the trigger to expect."""
        from azure.storage.queue import QueueClient, TextBase64EncodePolicy

        policy = TextBase64EncodePolicy()
        limits: dict[str, Any] = {
            "retry_total": 0,
            "connection_timeout": self._timeout_seconds,
            "read_timeout": self._timeout_seconds,
        }
        if self._connection_string is not None:
            return QueueClient.from_connection_string(
                self._connection_string, QUEUE_NAME, message_encode_policy=policy, **limits
            )
        from shared.clients.identity import own_identity

        assert self._service_uri is not None
        return QueueClient(
            self._service_uri, QUEUE_NAME, credential=own_identity(), message_encode_policy=policy, **limits
        )

    def _count_failure(self, error: Exception) -> None:
        with self._changed:
            self.failed += 1
            now, failed = boot_clock(), self.failed
            quiet = now < self._next_warning
            if not quiet:
                self._next_warning = now + _WARNING_EVERY_SECONDS
        if not quiet:
            telemetry.warning("wake_failed", failed=failed, error=shorten(error))


def _put(queue: QueueClient, due: float) -> None:
    """One message, invisible until `due` (whole seconds, rounded up). A queue that isn't there is made, once."""
    from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError

    def send() -> None:
        delay = min(max(math.ceil(due - boot_clock()), 0), _WEEK_SECONDS - 1)
        queue.send_message("wake", visibility_timeout=delay, time_to_live=_WEEK_SECONDS)

    try:
        send()
    except ResourceNotFoundError as error:
        if getattr(error, "error_code", None) != "QueueNotFound":
            raise
        with contextlib.suppress(ResourceExistsError):  # another instance made it in the meantime
            queue.create_queue()
        send()


def open_wake(settings: Settings) -> Wake:
    """The wake queue that the settings name, or none."""
    if settings.azurewebjobsstorage is not None:
        return StorageWake(settings.azurewebjobsstorage)
    uri, account = settings.azurewebjobsstorage_queue_service_uri, settings.azurewebjobsstorage_account_name
    if uri is None and account is not None:
        uri = f"https://{account}.queue.core.windows.net"
    return NoWake() if uri is None else StorageWake(service_uri=uri)
