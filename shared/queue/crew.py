"""The threads of one drain: they are handed work, and what comes back is collected in one go, by this drain or by its heir."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class _Joined:
    """So many things that another crew was handed come back here."""

    count: int


class Crew[T]:
    """At most `size` threads, begun when first needed, ended when the block is left.

    One caller hands out and collects. A crew of one has no thread: the work is done by the caller, which has nothing else to do.

    Threads are woken one by one: who takes something calls the next if there is more. So work that takes no time is done by the
    few that are awake, and work that waits has them all awake in no time.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._threads: list[threading.Thread] = []
        self._work: deque[Callable[[], T | None]] = deque()
        self._back: SimpleQueue[T | _Joined | None] = SimpleQueue()
        self._heir: Crew[T] | None = None
        self._passing = threading.Lock()
        self._context = contextvars.copy_context()
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._is_called = False  # somebody will come and look
        self._is_over = False
        self.busy = 0  # handed out and not yet collected

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        for _ in self._threads:
            self._calls.put(None)
        if self._heir is None:
            for thread in self._threads:
                thread.join()

    @property
    def expects(self) -> bool:
        """Whether anything is out, or has been left to this one."""
        return self.busy > 0 or not self._back.empty()

    def hand(self, work: Iterable[Callable[[], T | None]]) -> None:
        """Have things done. None of them may raise; what they return, unless None, comes back with `collect`."""
        items = list(work)
        self.busy += len(items)
        if self._size == 1:
            for item in items:
                self._back.put(item())
            return
        self._work.extend(items)
        if items:
            self._call()
        while len(self._threads) < min(self._size, self.busy):
            # In the caller's context: the platform tells by it which invocation a log line belongs to, and drops all others.
            work_in_context = partial(contextvars.copy_context().run, self._serve)
            thread = threading.Thread(target=work_in_context, name=f"job_{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def collect(self, seconds: float) -> list[T]:
        """All that has come back, after waiting at most `seconds` for the first."""
        back: list[T] = []
        try:
            result = self._back.get(timeout=seconds) if self.busy and seconds > 0 else self._back.get_nowait()
            if self.busy > 1:
                time.sleep(0)  # no wait: those that are at their end come along
            while True:
                if isinstance(result, _Joined):
                    self.busy += result.count
                else:
                    self.busy -= 1
                    if result is not None:
                        back.append(result)
                result = self._back.get_nowait()
        except Empty:
            return back

    def leave_to(self, heir: Crew[T]) -> None:
        """What is out comes back to `heir`, whose caller must still be collecting; nothing is handed out here any more."""
        with self._passing:
            heir._return(_Joined(self.busy))
            with contextlib.suppress(Empty):
                while True:
                    heir._return(self._back.get_nowait())
            self._heir, self.busy = heir, 0

    def adopt_context(self) -> None:
        """In a thread whose crew has an heir: go on in the context of the heir's caller, since the first caller has ended."""
        if self._heir is not None:
            for variable, value in self.collector._context.items():
                variable.set(value)

    @property
    def collector(self) -> Crew[T]:
        """To whose caller things come back: this one, or the last of its heirs."""
        return self if self._heir is None else self._heir.collector

    def _return(self, result: T | _Joined | None) -> None:
        with self._passing:
            heir = self._heir
            if heir is None:
                self._back.put(result)
        if heir is not None:
            heir._return(result)

    def _call(self) -> None:
        """Whoever is called looks after `_is_called` is false again: so what is added then calls anew, and nothing is left."""
        if not self._is_called:
            self._is_called = True
            self._calls.put(None)

    def _serve(self) -> None:
        while True:
            self._is_called = False
            while self._work:
                try:
                    work = self._work.popleft()
                except IndexError:
                    break
                if self._work:
                    self._call()
                result: T | None = None
                try:
                    result = work()
                finally:
                    self._return(result)
            if self._is_over:
                return
            self._calls.get()
