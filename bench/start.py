"""From the start of the host's process to the first 200 of its health page, beside a bare uvicorn with Starlette."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from bench.figures import Figure, Goal, Spread, ratios
from bench.lab import BenchFailed, Lab, environment, free_port
from bench.report import alone
from local.host_process import ROOT

ROUNDS, WARM_UP = 10, 1
SECONDS_AT_MOST = 20.0


def measure(note: Callable[[str], None]) -> list[Figure]:
    """The figures; about twenty seconds."""
    with Lab() as lab:
        url = lab.database("antwoord")
        note(f"start: {ROUNDS} starts of each …")
        took: dict[str, list[float]] = {"bare": [], "host": [], "queue": []}
        for number in range(WARM_UP + ROUNDS):
            for name, seconds in _round(url).items():
                if number >= WARM_UP:
                    took[name].append(seconds)
    bare = Spread.of(took["bare"])
    return [
        Figure("start", what, Spread.of(took[name]), "s", bare, ratios(took[name], took["bare"]), Goal(0.8))
        for name, what in (("host", "host, to the first 200"), ("queue", "host with the queue stand-in, to the first 200"))
    ]  # fmt: skip


def _round(database_url: str) -> dict[str, float]:
    def host(port: int, *arguments: str) -> float:
        command = [sys.executable, "-m", "local.host", "--port", str(port), *arguments]
        return _first_answer(command, environment(database_url, f"http://127.0.0.1:{port}"), port)

    bare = free_port()
    return {
        "bare": _first_answer([sys.executable, "-m", "bench.bare_server", str(bare)], os.environ, bare),
        "host": host(free_port()),
        "queue": host(free_port(), "--queue-standin"),
    }


def _first_answer(command: Sequence[str], environ: Mapping[str, str], port: int) -> float:
    """Seconds from starting the process to its first 200."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            while not _answers(port):
                if process.poll() is not None or time.perf_counter() - began > SECONDS_AT_MOST:
                    raise BenchFailed(f"{' '.join(command[1:])} did not answer: its status is {process.poll()}.")
                time.sleep(0.002)
            return time.perf_counter() - began
        finally:
            process.kill()


def _answers(port: int) -> bool:
    """Whether the health page says 200; a port that is open but not served yet is waited for."""
    try:
        with socket.create_connection(("127.0.0.1", port), SECONDS_AT_MOST) as connection:
            connection.sendall(b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def main() -> None:
    """Measure and print."""
    alone(measure)


if __name__ == "__main__":
    main()
