"""The Functions host as a process of its own: started, waited for, stopped, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from shared.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS = 60.0  # the end of a hang: a busy machine takes ten
STOP_SECONDS = 12.0


class HostProcess:
    """One run of `python -m local.host`. `log` gets its stderr; `url` is known once `start` has returned."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        port: int = 0,
        arguments: Sequence[str] = (),
        log: IO[bytes] | int | None = None,
    ) -> None:
        self._environment = dict(environment)
        self._command = [sys.executable, "-m", "local.host", "--port", str(port), "--stop-at-eof", *arguments]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> HostProcess:
        """Start it and wait until it answers. Raises UserError when it ends or does not answer in a minute."""
        path = os.pathsep.join([str(ROOT), *filter(None, [self._environment.get("PYTHONPATH")])])
        # The host stops when its standard input ends: with this process, however that ends.
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, env={**self._environment, "PYTHONPATH": path}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log, start_new_session=True,
        )  # fmt: skip
        answered = threading.Event()
        threading.Thread(target=self._read, args=(self._process, answered), daemon=True).start()
        ends = time.monotonic() + READY_SECONDS
        while not answered.wait(0.02):
            if self._process.poll() is not None and not answered.wait(0.2):
                raise UserError(f"The host ended with status {self._process.returncode} before it answered.")
            if time.monotonic() > ends:
                self.kill()
                raise UserError(f"The host did not answer within {READY_SECONDS:g} s.")
        return self

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._process.poll() if self._process else None

    def wait(self, seconds: float) -> int:
        """Wait for its end; the exit status."""
        assert self._process is not None
        return self._process.wait(seconds)

    def stop(self) -> int:
        """SIGTERM, and SIGKILL if it has not ended after twelve seconds; the exit status."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def kill(self) -> None:
        """SIGKILL: no clean-up of any kind."""
        self.signal(signal.SIGKILL)
        if self._process:
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self._process and self._process.poll() is None:
            self._process.send_signal(number)

    def _read(self, process: subprocess.Popen[bytes], answered: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b"ready "):
                self.url = line.decode().split()[1]
                answered.set()

    def __enter__(self) -> HostProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.poll() is None:
            self.stop()
