"""Runs the local host as a process and talks to it; shared by the tests of the host."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
APP = Path(__file__).parent / "app"
SECONDS = 60.0  # the end of a hang


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response; headers as they came, in order."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        """The values of a header."""
        return [value for key, value in self.headers if key.lower() == name]

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class HostProcess:
    """A host on the tests' app, on a free port; `output()` is its stdout, `log()` its stderr."""

    def __init__(self, *arguments: str, app: Path = APP, env: Mapping[str, str] | None = None, port: int = 0) -> None:
        self.port = port
        self._stderr = tempfile.NamedTemporaryFile("w+", suffix=".log")  # noqa: SIM115 - closed with the process
        self._stdout = b""
        inherited = {name: value for name, value in os.environ.items() if name != "AzureWebJobsStorage"}
        command = [sys.executable, "-m", "local.host", "--app", str(app), "--port", str(port), *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
            env=inherited | dict(env or {}),
        )  # fmt: skip

    def ready(self) -> Self:
        """Wait for the line that says where it answers."""
        assert self.process.stdout is not None
        stdout = self.process.stdout.fileno()
        limit = time.monotonic() + SECONDS
        while b"\n" not in self._stdout:
            readable, _, _ = select.select([stdout], [], [], max(limit - time.monotonic(), 0))
            data = os.read(stdout, 65536) if readable else b""
            assert data, f"the host is not ready:\n{self.log()}"
            self._stdout += data
        line = self._stdout.decode().splitlines()[0]
        assert line.startswith("ready http://127.0.0.1:"), line
        self.port = int(line.rpartition(":")[2])
        return self

    def request(
        self, method: str, target: str, headers: Sequence[tuple[str, str]] = (), body: bytes | None = None
    ) -> Reply:
        """One request on a connection of its own, target and headers sent as given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            if body is not None or method == "POST":
                connection.putheader("Content-Length", str(len(body or b"")))
            connection.endheaders(body)
            response = connection.getresponse()
            return Reply(response.status, response.getheaders(), response.read())

    def get(self, target: str) -> Reply:
        """GET."""
        return self.request("GET", target)

    def seen(self, kind: str) -> list[Any]:
        """What the app has noted of a kind."""
        noted: list[Any] = self.get("/api/seen").json()[kind]
        return noted

    def log(self) -> str:
        """What the process has written to stderr."""
        return Path(self._stderr.name).read_text()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; the exit status, and how many seconds it took."""
        started = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(SECONDS), time.monotonic() - started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self._stderr.close()


@contextlib.contextmanager
def running(*arguments: str, env: Mapping[str, str] | None = None, app: Path = APP) -> Iterator[HostProcess]:
    """A host that answers."""
    with HostProcess(*arguments, env=env, app=app) as host:
        yield host.ready()
