"""`up` as a new user runs it: a process of its own with an empty folder and no account; and a look at what it keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import requests

from cli.console import make_link
from tests.e2e.running import Rows, free_port

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 60.0  # the end of a hang
# Seconds shorter than what is shipped, so that a test waits for less: the host's timer, settling, leases.
QUICK = {"POLL_SCHEDULE": "* * * * * *", "SETTLE_SECONDS": "0", "JOB_LEASE_SECONDS": "2"}
PUT_OFF = """
    UPDATE ai_jobs SET next_run_at = now() + interval '1 hour' WHERE type = %(kind)s AND status = 'pending' RETURNING id
"""


class UpProcess:
    """A running `up`; as a context manager. The phone page is at `page_url`, of the stand-in for Twilio at `twilio_url`;
    `database` is a look at its rows.

    `console_link` is the link that it prints: it signs in to the console once. The webhooks page is at `gateway_url`.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        self.port, self.phone_port = free_port(), free_port()
        self.twilio_url = f"http://127.0.0.1:{self.phone_port}"
        self.page_url = f"{self.twilio_url}/phone/"
        self._folder = folder
        self._environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ} | {
            "ANTWOORD_FOLDER": str(folder),
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR", tempfile.gettempdir()),
            **settings,
        }

    def sends_to(self, phone: str) -> int:
        """How often Twilio was asked to send a message to a number."""
        asked = requests.get(f"{self.twilio_url}/_requests", timeout=5).json()
        return sum(call["where"] == "create" and call["form"].get("To") == f"whatsapp:{phone}" for call in asked)

    def hurry(self) -> None:
        """What waits is due now, not ten seconds later."""
        self.database.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")

    def put_off(self, kind: str) -> bool:
        """What waits of a type is due in an hour, and does not go on while it is looked at; whether anything did."""
        return self.database.rows(PUT_OFF, kind=kind) != []

    def new_console_link(self) -> str:
        """Another link to the console, as the `console` command makes one."""
        with psycopg.connect(self._database_url, autocommit=True) as connection:
            return make_link(connection, f"http://127.0.0.1:{self.port}")

    def logged(self) -> str:
        """What `up` and its host have written to stderr."""
        return self._log.read_text("utf-8", "replace")

    def __enter__(self) -> Self:
        self._log = self._folder / "up.log"
        ports = ["--port", str(self.port), "--phone-port", str(self.phone_port), "--gateway-port", "0"]
        command = [sys.executable, "-m", "cli", "up", *ports]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=self._environment, stdout=subprocess.PIPE, stderr=log, cwd=self._folder
            )
        assert self._process.stdout is not None
        printed = []
        for line in self._process.stdout:
            printed.append(line.decode())
            if b"Ctrl-C" in line:
                break
        else:
            raise AssertionError(f"`up` did not start: {self.logged()}")
        links = {line.split()[0]: line.split()[-1] for line in printed if line.strip()}
        self.console_link, self.gateway_url = links["console"], links["webhooks"]
        running = json.loads((self._folder / "running.json").read_text("utf-8"))
        self._database_url = running["environment"]["DATABASE_URL"]
        self.database = Rows(self._database_url)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.database.close()
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        finally:
            self._process.kill()
            assert self._process.stdout is not None
            self._process.stdout.close()
