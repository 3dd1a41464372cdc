"""One queue in one database, driven by a process of its own."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.contender import OURS, Contender, Way
from bench.lab import BenchFailed
from local.host_process import ROOT
from shared.db.pool import Conn

ANSWER_SECONDS = 60.0  # for an installation, a start, a round of single calls
ENDLESS = 10**9
RECORDED_SECONDS = 10.0  # after the last job has run

CONNECTIONS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class Drained:
    """One drain: jobs a second, from the first job's beginning until the last one is recorded, and the connections held."""

    ran: int
    seconds: float
    connections: int

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.ran / self.seconds


@dataclass(frozen=True, slots=True)
class Driven:
    """A contender in a database; `connection` is the bench's own to it."""

    contender: Contender
    command: Sequence[str]
    url: str
    connection: Conn

    def install(self) -> None:
        """Its tables."""
        with self._driver("install") as driver:
            driver.end()

    def enqueue(self, count: int) -> float:
        """Jobs a second, one call after another, each committed by itself."""
        with self._driver("enqueue", count) as driver:
            return count / float(driver.told("seconds"))

    def pickup(self, count: int, way: Way) -> list[float]:
        """Seconds from the call that adds a job to the job's beginning, of single jobs while the worker is idle."""
        with self._driver("pickup", count, json.dumps(way.settings)) as driver:
            return [float(seconds) for seconds in driver.told("seconds")]

    def fill(self, count: int) -> None:
        """Half of `count` rows that are due later, half that are finished, as far as it keeps any."""
        self.connection.execute(self.contender.tables.future, {"count": count // 2})
        if self.contender.tables.finished:
            self.connection.execute(self.contender.tables.finished, {"count": count // 2})

    def drain(self, count: int, way: Way, seconds: float, *, job_ms: float = 0.0) -> Drained:
        """Run `count` jobs through its real worker, or as many as it does in `seconds`."""
        self.sweep()
        self.connection.execute(self.contender.tables.due, {"count": count})
        self.connection.execute(self.contender.tables.vacuum)
        with self._driver("work", count, job_ms, json.dumps(way.settings)) as driver:
            try:
                began, _ = driver.line(ANSWER_SECONDS)
            except TimeoutError as silent:
                if self.contender is OURS:
                    raise BenchFailed(
                        f"Our worker began none of {count:,} jobs within {ANSWER_SECONDS:g} s."
                    ) from silent
                return Drained(1, ANSWER_SECONDS, self._held())  # at most: it began none, and a rate of 0 has no ratio
            try:
                driver.line(seconds)
            except TimeoutError:
                held = self._held()
                driver.say()
                ended, told = driver.line(ANSWER_SECONDS)
                return Drained(int(told["ran"]), ended - began, held)
            ended, held = self._recorded(), self._held()
            driver.say()
            return Drained(count, ended - began, held)

    @contextlib.contextmanager
    def working(self, way: Way) -> Iterator[int]:
        """Its worker goes on in a process of its own, whose id this gives, until the end."""
        with self._driver("work", ENDLESS, 0, json.dumps(way.settings)) as driver:
            yield driver.pid
            driver.say()

    def sweep(self) -> None:
        """Only the rows that `fill` put in are left."""
        for statement in self.contender.tables.forget:
            self.connection.execute(statement)

    def _recorded(self) -> float:
        """The moment that all are recorded as done."""
        ends = time.perf_counter() + RECORDED_SECONDS
        while (now := time.perf_counter()) < ends:
            row = self.connection.execute(self.contender.tables.left).fetchone()
            if row and row[0] == 0:
                return now
            time.sleep(0.002)
        raise BenchFailed(f"{self.contender.name} ran its jobs and did not record them within {RECORDED_SECONDS:g} s.")

    def _held(self) -> int:
        row = self.connection.execute(CONNECTIONS).fetchone()
        return int(row[0]) if row else 0

    @contextlib.contextmanager
    def _driver(self, *arguments: object) -> Iterator[_Driver]:
        driver = _Driver(self.contender.name, [*self.command, self.url, *map(str, arguments)])
        try:
            yield driver
        finally:
            driver.close()


class _Driver:
    """A driver's process and what it tells, each line with the moment that it came."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self._name = name
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._lines: queue.SimpleQueue[tuple[float, Mapping[str, Any]]] = queue.SimpleQueue()
        self._said: list[str] = []
        self._readers = [threading.Thread(target=reader, daemon=True) for reader in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def line(self, seconds: float) -> tuple[float, Mapping[str, Any]]:
        """The next line. Raises TimeoutError when none comes, BenchFailed when the driver has failed."""
        ends = time.perf_counter() + seconds
        while (left := ends - time.perf_counter()) > 0:
            with contextlib.suppress(queue.Empty):
                return self._lines.get(timeout=min(left, 0.5))
            if self._process.poll() not in (None, 0):
                raise BenchFailed(
                    f"{self._name}'s driver failed: {self._said[-1] if self._said else 'without a word'}."
                )
        raise TimeoutError

    def told(self, name: str) -> Any:
        """One value of the next line."""
        try:
            return self.line(ANSWER_SECONDS)[1][name]
        except TimeoutError as silent:
            raise BenchFailed(f"{self._name}'s driver told nothing within {ANSWER_SECONDS:g} s.") from silent

    def say(self) -> None:
        """That it shall tell how many ran, and end."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("end\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """Wait for its end. Raises BenchFailed unless all went well."""
        if self._process.wait(ANSWER_SECONDS) != 0:
            self._readers[1].join(1.0)
            raise BenchFailed(f"{self._name}'s driver failed: {self._said[-1] if self._said else 'without a word'}.")

    def close(self) -> None:
        """Wait a little, then kill it."""
        try:
            self._process.wait(3.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(1.0)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self._lines.put((time.perf_counter(), json.loads(text)))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for text in self._process.stderr:
            if text.strip():
                self._said = [text.strip()]  # the last line says what failed; the rest must only not fill the pipe
