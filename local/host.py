"""The project's own Functions host: runs the app on this machine without Azure's tools.

    python -m local.host [--port N] [--no-timer] [--no-wake] [--queue-standin]

Prints `ready http://127.0.0.1:N` on stdout when it answers; logs go to stderr. Exit status: 0 stopped, 1 the app is
broken or did not stop in time, 2 a wrong flag or setting, 130 stopped twice.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from local.functions import logs
from local.functions.app import PROJECT_ROOT, import_app, taken_names
from local.functions.config import HostConfig, fill_from_local_settings, read_host_json, resolve
from local.functions.doorbell import Doorbell
from local.functions.errors import USAGE, CannotStart
from local.functions.http import HttpFrontend
from local.functions.queues import QueueListener
from local.functions.server import HOST, Server, open_socket
from local.functions.stopping import StopSignals
from local.functions.storage import StorageQueue
from local.functions.timers import Timer
from local.functions.worker import Function, Worker

log = logging.getLogger("local.host")

STORAGE = "AzureWebJobsStorage"
GRACE_SECONDS = 8
SECONDS_AFTER_GRACE = 1.8  # for the last answers and for giving messages back; with the grace under ten seconds


@dataclass(frozen=True, slots=True)
class Options:
    """The command line. `grace` is in seconds."""

    app: Path
    port: int
    timers: bool
    wake: bool
    queue_standin: bool
    grace: int
    stop_at_eof: bool


class Host:
    """The running app: its HTTP server, timers and queue listeners."""

    def __init__(self, options: Options, config: HostConfig, worker: Worker, doorbell: Doorbell) -> None:
        self._options = options
        self._config = config
        self._worker = worker
        self._doorbell = doorbell
        self._listeners: list[QueueListener] = []
        self._timers: list[asyncio.Task[None]] = []
        self._listening: list[asyncio.Task[None]] = []

    async def serve(self, listening: socket.socket, signals: StopSignals, tell: Callable[[], object]) -> bool:
        """Serve until told to stop; False when a run had to be left behind. `tell` is called first at a stop.

        Raises CannotStart.
        """
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        functions = await self._worker.start(self._options.app)
        timers = self._make_timers(functions)
        self._listeners = self._make_listeners(functions)
        self._doorbell.connect(loop, self._listeners)
        frontend = HttpFrontend(self._worker, functions, self._config.route_prefix)
        server = Server(frontend, self._options.grace)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        stopped = asyncio.create_task(stop.wait())
        answers = asyncio.create_task(server.answers.wait())
        await _first_of(serving, answers)
        signals.listen(tell, lambda: loop.call_soon_threadsafe(stop.set))
        sys.stdout.write(f"ready http://{HOST}:{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        self._timers = [asyncio.create_task(_watched(timer.run())) for timer in timers]
        self._listening = [asyncio.create_task(_watched(listener.listen())) for listener in self._listeners]
        await _first_of(serving, stopped)
        return await self._shut_down(server, serving)

    def _make_timers(self, functions: Sequence[Function]) -> list[Timer]:
        if not self._options.timers:
            return []
        return [Timer(self._worker, function) for function in functions if function.kind == "timerTrigger"]

    def _make_listeners(self, functions: Sequence[Function]) -> list[QueueListener]:
        if not self._options.wake:
            return []
        found = [self._make_listener(function) for function in functions if function.kind == "queueTrigger"]
        return [listener for listener in found if listener is not None]

    def _make_listener(self, function: Function) -> QueueListener | None:
        setting = str(function.trigger.get("connection") or STORAGE)
        connection = (os.environ.get(setting) or os.environ.get(f"AzureWebJobs{setting}") or "").strip()
        if not connection:
            log.warning("%s is not set: the queue trigger %s does not run", setting, function.name)
            return None
        try:
            name = resolve(str(function.trigger["queueName"]))
        except ValueError as wrong:
            raise CannotStart(f"the queue trigger {function.name} cannot run: {wrong}", USAGE) from wrong
        queue = StorageQueue(connection, name, base64_encoded=self._config.queues.base64)
        return QueueListener(
            queue, lambda value, metadata: self._worker.invoke(function, value, metadata), self._config.queues
        )

    async def _shut_down(self, server: Server, serving: asyncio.Task[None]) -> bool:
        """Take nothing new, and give what runs the grace to end, to be answered and to be deleted."""
        grace = self._options.grace
        deadline = time.monotonic() + grace
        log.info("stopping; %d running", len(self._worker.running))
        for timer in self._timers:
            timer.cancel()
        for listener in self._listeners:
            listener.close()
        server.should_exit = True
        # A little longer than the server's own grace, so that it can answer the requests that it gives up.
        await asyncio.wait({serving, *self._listening}, timeout=grace + 0.5)
        await self._worker.drain(deadline - time.monotonic())
        for listener in self._listeners:
            await listener.settle(max(deadline - time.monotonic(), 0.2))
        left = list(self._worker.running.values())
        for run in left:  # a thread cannot be stopped, only left behind
            log.error("left %s behind after %.1f s", run.function.name, time.monotonic() - run.started)
        await asyncio.gather(*(listener.abandon() for listener in self._listeners))
        if left:
            return False
        self._worker.close()
        log.info("stopped")
        return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the host; the exit status."""
    options = _parse(arguments)
    formatter = logs.set_up()
    signals = StopSignals(options.grace + SECONDS_AFTER_GRACE)
    signals.install()
    if options.stop_at_eof:
        threading.Thread(target=_stop_at_eof, name="stop-at-eof", daemon=True).start()
    try:
        with contextlib.ExitStack() as standins:
            return 0 if _run(options, formatter, signals, standins) else 1
    except CannotStart as refusal:
        sys.stderr.write(f"{refusal}\n")
        return refusal.status
    except Exception:
        log.exception("the host has failed")
        return 1


def _run(options: Options, formatter: logs.OneLine, signals: StopSignals, standins: contextlib.ExitStack) -> bool:
    config = read_host_json(options.app)
    listening = standins.enter_context(contextlib.closing(open_socket(options.port)))
    doorbell, worker = Doorbell(), Worker()
    formatter.where = worker.where
    _prepare_environment(options, doorbell, standins)
    module = import_app(options.app)
    for name, origin in taken_names(options.app):
        log.warning("the app's %r was imported from %s, as an installed package wins in the cloud too", name, origin)
    host = Host(options, config, worker, doorbell)
    return asyncio.run(host.serve(listening, signals, _stopping(module)))


def _prepare_environment(options: Options, doorbell: Doorbell, standins: contextlib.ExitStack) -> None:
    """The app reads its settings at import: everything has to be there before."""
    fill_from_local_settings(options.app, os.environ)
    os.environ.setdefault("AZURE_FUNCTIONS_ENVIRONMENT", "Development")
    # As the sample says: Python's own default starves webhooks.
    os.environ.setdefault("PYTHON_THREADPOOL_THREAD_COUNT", "40")
    os.environ["TZ"] = "UTC"  # as in the cloud; the library reads the expiry of cookies as local time
    if hasattr(time, "tzset"):
        time.tzset()
    if not options.wake:
        os.environ.pop(STORAGE, None)
    elif options.queue_standin and not os.environ.get(STORAGE, "").strip():
        from local.standins.storage_queue import QueueStandIn

        os.environ[STORAGE] = standins.enter_context(QueueStandIn(on_put=doorbell.ring)).connection_string


def _stopping(module: ModuleType) -> Callable[[], object]:
    """The app's `stopping`, by contract called once when the host is told to stop, so that long drains end early."""
    stopping = getattr(module, "stopping", None)
    return stopping if callable(stopping) else lambda: None


async def _first_of(serving: asyncio.Task[None], event: asyncio.Task[Any]) -> None:
    """Wait for the event; a server that fails first says how."""
    await asyncio.wait({serving, event}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()


async def _watched(work: Coroutine[Any, Any, None]) -> None:
    """A timer or listener that fails is a mistake in the host: say so, and leave the rest running."""
    try:
        await work
    except Exception:
        log.exception("a timer or queue listener has ended; restart the host")


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m local.host", description="Run the Functions app on this machine.")
    parser.add_argument("--port", type=_port, default=7071, help="0 takes a free one (default: 7071)")
    parser.add_argument("--no-timer", action="store_true", help="timers do not run")
    parser.add_argument("--no-wake", action="store_true", help="no queue is listened to, and the app sends no wake")
    parser.add_argument("--queue-standin", action="store_true", help=f"a queue in this process if {STORAGE} is not set")
    parser.add_argument("--app", type=Path, default=PROJECT_ROOT, help="the app's folder (default: the project)")
    parser.add_argument("--stop-at-eof", action="store_true", help="stop when standard input ends")
    parser.add_argument("--grace", type=_grace, default=GRACE_SECONDS, help="seconds for what runs when stopped")
    given = parser.parse_args(arguments)
    return Options(
        given.app.resolve(),
        given.port,
        not given.no_timer,
        not given.no_wake,
        given.queue_standin,
        given.grace,
        given.stop_at_eof,
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _grace(text: str) -> int:
    if not text.isdecimal() or int(text) > GRACE_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {GRACE_SECONDS}")
    return int(text)


def _stop_at_eof() -> None:
    """Whoever started this host is gone when its end of the pipe closes: stop as if told to."""
    while os.read(0, 4096):  # not through sys.stdin, whose lock a normal exit would find taken, and abort
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _leave(status: int) -> None:
    """End the process. After a failure at once: a normal exit waits for threads that may never end."""
    if status:
        logging.shutdown()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status)
    sys.exit(0)


if __name__ == "__main__":
    _leave(main())
