"""A real Azurite: Microsoft's own storage emulator, of which the tests use the queue; signatures are checked, as in the cloud."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from cli.needs import NODE
from local.ports import free_port
from tests.fakes.eventually import eventually

FOLDER = Path(__file__).resolve().parents[1] / "azurite"
PROGRAM = FOLDER / "node_modules" / "azurite" / "dist" / "src" / "queue" / "main.js"
INSTALL_SECONDS = 180
# The emulator's well-known account and key: the same on every machine.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def install() -> None:
    """Put Azurite into its ignored folder, as the lock file says, unless it is there; once for all that ask at a time."""
    with (FOLDER / "package-lock.json").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = FOLDER / "node_modules" / ".installed"
        wanted = (FOLDER / "package-lock.json").read_text("utf-8")
        if done.exists() and done.read_text("utf-8") == wanted:
            return
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            pytest.fail(f"This test needs Node, which is not installed: {NODE.install}.", pytrace=False)
        subprocess.run(
            [npm, "ci", "--ignore-scripts"], cwd=FOLDER, check=True, timeout=INSTALL_SECONDS, stdout=subprocess.DEVNULL
        )
        done.write_text(wanted, "utf-8")


class Azurite:
    """One queue service on loopback, its data in memory; a context manager. After `kill`, `start` has the same port."""

    def __init__(self) -> None:
        self.port = free_port()  # not one of the system's own: while it is killed nobody else gets that
        self._process: subprocess.Popen[str] | None = None
        self._listens = threading.Event()

    @property
    def connection_string(self) -> str:
        """What AzureWebJobsStorage is set to."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"QueueEndpoint=http://127.0.0.1:{self.port}/{ACCOUNT};"
        )

    def start(self) -> Self:
        """Start it and wait until it listens."""
        install()
        self._listens.clear()
        options = ["--queueHost", "127.0.0.1", "--queuePort", str(self.port), "--inMemoryPersistence", "--silent"]
        # The client library may be newer than the newest version of the protocol that this Azurite knows by name.
        options += ["--disableTelemetry", "--skipApiVersionCheck"]
        self._process = subprocess.Popen(
            ["node", str(PROGRAM), *options], cwd=FOLDER, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        eventually(self._listens.is_set, what="Azurite's start")
        return self

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if "successfully listens on" in line:
                self._listens.set()

    def kill(self) -> None:
        """SIGKILL: whoever is connected is cut off, and the queue is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
