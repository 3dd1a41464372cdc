"""One storage queue, through Microsoft's own client: blocking calls for the listener's threads.

`azure.storage.queue` takes a quarter of a second to import, so that happens in the first call, not when the host starts.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime as dt
import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from azure.storage.queue import QueueClient, QueueServiceClient

POISON_SUFFIX = "-poison"
CONNECT_SECONDS = 2
READ_SECONDS = 20


@dataclass(slots=True)
class Received:
    """A message that is leased to this process. `body` is decoded, or None when it is not what the encoding says."""

    id: str
    text: str
    body: bytes | None
    dequeue_count: int
    inserted: dt.datetime
    expires: dt.datetime
    next_visible: dt.datetime
    receipt: str
    lock: threading.Lock = field(default_factory=threading.Lock)  # every update changes the receipt: one at a time


class MessageSource(Protocol):
    """What a listener needs of a queue. Every call blocks, and raises what the client raises when storage is away."""

    name: str

    def receive(self, count: int, hidden_seconds: float) -> list[Received]:
        """Lease up to `count` messages; none when the queue does not exist."""

    def hide(self, message: Received, seconds: float) -> None:
        """Let the lease end in `seconds`; nothing when it is lost already."""

    def delete(self, message: Received) -> None:
        """The message is done; nothing when the lease is lost."""

    def bury(self, message: Received) -> None:
        """Move the message to the poison queue, which is made if need be."""


class StorageQueue:
    """The queue `name` of the account that the connection string names."""

    def __init__(self, connection_string: str, name: str, *, base64_encoded: bool) -> None:
        self.name = name
        self._connection_string = connection_string
        self._base64 = base64_encoded

    def receive(self, count: int, hidden_seconds: float) -> list[Received]:
        """See MessageSource."""
        from azure.core.exceptions import ResourceNotFoundError

        pages = self._queue.receive_messages(
            messages_per_page=count, max_messages=count, visibility_timeout=int(hidden_seconds)
        )
        received: list[Received] = []
        with contextlib.suppress(ResourceNotFoundError):  # nobody has written to the queue yet
            for message in pages:
                text = str(message.content)
                received.append(
                    Received(
                        id=str(message.id),
                        text=text,
                        body=self._decoded(text),
                        dequeue_count=message.dequeue_count or 1,
                        inserted=message.inserted_on or dt.datetime.now(dt.UTC),
                        expires=message.expires_on or dt.datetime.now(dt.UTC),
                        next_visible=message.next_visible_on or dt.datetime.now(dt.UTC),
                        receipt=str(message.pop_receipt),
                    )
                )
        return received

    def hide(self, message: Received, seconds: float) -> None:
        """See MessageSource."""
        from azure.core.exceptions import ResourceNotFoundError

        with message.lock, contextlib.suppress(ResourceNotFoundError):
            updated = self._queue.update_message(message.id, message.receipt, visibility_timeout=int(seconds))
            message.receipt = str(updated.pop_receipt)

    def delete(self, message: Received) -> None:
        """See MessageSource."""
        from azure.core.exceptions import ResourceNotFoundError

        with message.lock, contextlib.suppress(ResourceNotFoundError):
            self._queue.delete_message(message.id, message.receipt)

    def bury(self, message: Received) -> None:
        """See MessageSource."""
        from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError

        poison = self._service.get_queue_client(self.name + POISON_SUFFIX)
        try:
            poison.send_message(message.text)
        except ResourceNotFoundError:
            with contextlib.suppress(ResourceExistsError):
                poison.create_queue()
            poison.send_message(message.text)
        self.delete(message)

    @cached_property
    def _service(self) -> QueueServiceClient:
        from azure.storage.queue import QueueServiceClient

        # The client's own retries take about a minute; the listener polls again anyway.
        return QueueServiceClient.from_connection_string(
            self._connection_string,
            retry_total=1, initial_backoff=0.2, increment_base=1, random_jitter_range=0,
            connection_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS,
        )  # fmt: skip

    @cached_property
    def _queue(self) -> QueueClient:
        return self._service.get_queue_client(self.name)

    def _decoded(self, text: str) -> bytes | None:
        if not self._base64:
            return text.encode()
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None
