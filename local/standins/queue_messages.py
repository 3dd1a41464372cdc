"""The storage queue's messages in memory: visibility, pop receipts, expiry, and the service's own errors."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from dataclasses import dataclass, field

SECONDS_OF_LIFE = 7 * 24 * 3600.0
FOR_EVER = 4102444800.0  # 2100-01-01: what "never expires" looks like as a date


class QueueError(Exception):
    """An error of the service: HTTP status, its code, and a sentence."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        self.status, self.code, self.sentence = status, code, sentence
        super().__init__(sentence)


@dataclass(slots=True)
class QueuedMessage:
    """One message; times are Unix seconds."""

    text: str
    inserted: float
    expires: float
    visible_at: float
    order: int
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    pop_receipt: str = ""
    dequeue_count: int = 0


@dataclass(slots=True)
class Queue:
    """One queue with its metadata."""

    name: str
    metadata: dict[str, str]
    messages: dict[str, QueuedMessage] = field(default_factory=dict)


class Queues:
    """All queues of one account; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}
        self._order = itertools.count()

    def create(self, name: str, metadata: dict[str, str]) -> bool:
        """Make a queue; False if the same one is there already. Raises QueueError (409) if its metadata differs."""
        with self._lock:
            present = self._queues.get(name)
            if present is None:
                self._queues[name] = Queue(name, metadata)
                return True
            if present.metadata != metadata:
                raise QueueError(409, "QueueAlreadyExists", "The specified queue already exists.")
            return False

    def delete(self, name: str) -> None:
        """Remove a queue with its messages. Raises QueueError (404)."""
        with self._lock:
            del self._queues[self._find(name).name]

    def names(self) -> list[tuple[str, dict[str, str]]]:
        """The queues in order of name, each with its metadata."""
        with self._lock:
            return [(name, dict(queue.metadata)) for name, queue in sorted(self._queues.items())]

    def describe(self, name: str) -> tuple[dict[str, str], int]:
        """Metadata, and how many messages there are, invisible ones too. Raises QueueError (404)."""
        with self._lock:
            queue = self._find(name)
            return dict(queue.metadata), len(queue.messages)

    def set_metadata(self, name: str, metadata: dict[str, str]) -> None:
        """Replace the metadata. Raises QueueError (404)."""
        with self._lock:
            self._find(name).metadata = metadata

    def put(self, name: str, text: str, visible_in: float, lives: float | None) -> QueuedMessage:
        """Add a message, visible after `visible_in` seconds, gone after `lives` (None: never). QueueError (404)."""
        with self._lock:
            queue, now = self._find(name), time.time()
            expires = FOR_EVER if lives is None else now + lives
            message = QueuedMessage(text, now, expires, now + visible_in, next(self._order), pop_receipt=_receipt())
            queue.messages[message.id] = message
            return message

    def get(self, name: str, count: int, hidden_for: float) -> list[QueuedMessage]:
        """Up to `count` visible messages, hidden for `hidden_for` seconds, with new pop receipts. QueueError (404)."""
        with self._lock:
            now = time.time()
            found = self._visible(name, now)[:count]
            for message in found:
                message.dequeue_count += 1
                message.visible_at = now + hidden_for
                message.pop_receipt = _receipt()
            return found

    def peek(self, name: str, count: int) -> list[QueuedMessage]:
        """Up to `count` visible messages, unchanged. Raises QueueError (404)."""
        with self._lock:
            return self._visible(name, time.time())[:count]

    def remove(self, name: str, message_id: str, pop_receipt: str) -> None:
        """Delete one message. Raises QueueError: 404 when it is gone, 400 when the receipt is an old one."""
        with self._lock:
            del self._find(name).messages[self._held(name, message_id, pop_receipt).id]

    def update(
        self, name: str, message_id: str, pop_receipt: str, hidden_for: float, text: str | None
    ) -> QueuedMessage:
        """Change when one message is visible, and its text if given; a new pop receipt. QueueError as in `remove`."""
        with self._lock:
            message = self._held(name, message_id, pop_receipt)
            message.visible_at = time.time() + hidden_for
            message.pop_receipt = _receipt()
            if text is not None:
                message.text = text
            return message

    def clear(self, name: str) -> None:
        """Delete all messages of a queue. Raises QueueError (404)."""
        with self._lock:
            self._find(name).messages.clear()

    def _find(self, name: str) -> Queue:
        queue = self._queues.get(name)
        if queue is None:
            raise QueueError(404, "QueueNotFound", "The specified queue does not exist.")
        now = time.time()
        for message in [message for message in queue.messages.values() if message.expires <= now]:
            del queue.messages[message.id]
        return queue

    def _visible(self, name: str, now: float) -> list[QueuedMessage]:
        found = [message for message in self._find(name).messages.values() if message.visible_at <= now]
        return sorted(found, key=lambda message: message.order)

    def _held(self, name: str, message_id: str, pop_receipt: str) -> QueuedMessage:
        message = self._find(name).messages.get(message_id)
        if message is None:
            raise QueueError(404, "MessageNotFound", "The specified message does not exist.")
        if message.pop_receipt != pop_receipt:
            raise QueueError(
                400,
                "PopReceiptMismatch",
                "The specified pop receipt did not match the pop receipt for a dequeued message.",
            )
        return message


def _receipt() -> str:
    return uuid.uuid4().hex
