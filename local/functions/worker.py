"""The worker's part: loads the app through `azure_functions_runtime` and runs its functions in this process.

The library keeps its state in module globals: one app a process, and no reload.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.functions import protos
from local.functions.errors import CannotStart
from local.functions.protos import Message, ParameterBinding, TypedData

log = logging.getLogger("local.host")

TRIGGERS = ("httpTrigger", "timerTrigger", "queueTrigger")
BINDINGS = (*TRIGGERS, "http")


@dataclass(frozen=True, slots=True)
class Function:
    """One function: the library's id, its name, and its trigger's settings (the decorator's, in camelCase)."""

    id: str
    name: str
    trigger: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The trigger's type, one of TRIGGERS."""
        return str(self.trigger["type"])


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run ended; `value` is what the function returned, encoded."""

    ok: bool
    value: TypedData | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A run that has not ended; `started` is monotonic."""

    function: Function
    task: asyncio.Task[Outcome]
    started: float


class Worker:
    """Drives the library and knows what runs."""

    def __init__(self) -> None:
        self.running: dict[str, Running] = {}
        self._library: Any = None

    async def start(self, app_dir: Path) -> list[Function]:
        """Load the app. Raises CannotStart when it is broken, has no functions, or asks for what is not here."""
        import azure_functions_runtime as library  # late: it reads the environment

        self._library = library
        library.start_threadpool_executor()  # without it PYTHON_THREADPOOL_THREAD_COUNT is ignored
        reply = await library.worker_init_request(
            _envelope("worker_init_request", Message(capabilities={}, function_app_directory=str(app_dir)))
        )
        if not reply.result.ok:
            raise CannotStart(f"the app cannot be loaded:\n{reply.result.exception.stack_trace.rstrip()}")
        reply = await library.functions_metadata_request(_envelope("functions_metadata_request", Message()))
        functions = [_function(described) for described in reply.function_metadata_results or ()]
        if not functions:
            raise CannotStart(f"there are no functions in {app_dir}")
        return functions

    async def invoke(
        self,
        function: Function,
        value: TypedData,
        metadata: Mapping[str, TypedData] | None = None,
        trace: tuple[str, str] = ("", ""),
    ) -> Outcome:
        """Run a function once. `trace` is traceparent and tracestate.

        A cancelled caller does not take the run along: its thread cannot be stopped anyway.
        """
        invocation_id = str(uuid.uuid4())
        task = asyncio.create_task(self._run(function, invocation_id, value, metadata or {}, trace))
        self.running[invocation_id] = Running(function, task, time.monotonic())
        task.add_done_callback(lambda _task: self.running.pop(invocation_id))
        return await asyncio.shield(task)

    async def drain(self, seconds: float) -> None:
        """Wait until nothing runs, or until the time is over."""
        if self.running:
            await asyncio.wait([run.task for run in self.running.values()], timeout=max(seconds, 0.0))

    def close(self) -> None:
        """End the functions' threads; only when nothing runs, since it waits for each of them."""
        if self._library is not None:
            self._library.stop_threadpool_executor()

    def where(self) -> str:
        """The function that the caller's thread or task runs, and the start of its invocation id; for log lines."""
        invocation_id = self._library.invocation_id_cv.get() if self._library is not None else None
        if invocation_id is None:
            return "-"
        run = self.running.get(invocation_id)
        return f"{run.function.name if run else '?'} {invocation_id[:8]}"

    async def _run(
        self,
        function: Function,
        invocation_id: str,
        value: TypedData,
        metadata: Mapping[str, TypedData],
        trace: tuple[str, str],
    ) -> Outcome:
        # The library sets this for sync functions, in their thread; here it covers async ones and their tasks too.
        self._library.invocation_id_cv.set(invocation_id)
        request = Message(
            invocation_id=invocation_id,
            function_id=function.id,
            input_data=[ParameterBinding(name=function.trigger["name"], data=value)],
            trigger_metadata=metadata,
            trace_context=Message(trace_parent=trace[0], trace_state=trace[1], attributes={}),
            retry_context=Message(retry_count=0, max_retry_count=0, exception=None),
        )
        try:
            response = await self._library.invocation_request(_envelope("invocation_request", request))
        except (SystemExit, KeyboardInterrupt):  # not caught by the library: it would end this process
            log.exception("%s wants to end the process; in the cloud that ends the worker", function.name)
            return Outcome(False)
        if not response.result.ok:
            log.error("%s failed: %s", function.name, response.result.exception.stack_trace.rstrip())
            return Outcome(False)
        return Outcome(True, response.return_value)


def new_trace_parent() -> str:
    """A fresh W3C traceparent, not sampled."""
    return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-00"


def _envelope(kind: str, request: Message) -> Message:
    return Message(request=Message(**{kind: request}), properties={"protos": protos, "host": "127.0.0.1"})


def _function(described: Message) -> Function:
    bindings = [json.loads(text) for text in described.raw_bindings]
    for binding in bindings:
        if binding["type"] not in BINDINGS:
            raise CannotStart(
                f"the function {described.name} has the binding {binding['name']!r} of type {binding['type']}, which "
                "the local host does not know; it serves HTTP, timer and queue triggers"
            )
    if described.retry_options is not None:
        log.warning("the retry policy of %s is not carried out by the local host", described.name)
    trigger = next(binding for binding in bindings if binding["type"] in TRIGGERS)
    return Function(described.function_id, described.name, trigger)
