"""The receiver of docs/receiving.md, as it stands there, in a process of its own: what the page promises is so."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from shared.clients.guard import Guard
from shared.signature import new_secret
from shared.webhooks.sending import Answer, Sender, Target, headers_of
from tests.e2e.running import free_port
from tests.fakes.eventually import eventually

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "receiving.md"
SECRET, NEW = new_secret(), new_secret()
BODY = b'{"data":{"n":1},"id":"evt_1","type":"batch.completed"}'


@dataclass
class Receiver:
    """The page's program, running."""

    port: int
    database: Path
    sender: Sender = field(default_factory=lambda: Sender(Guard(("127.0.0.1",))))

    def target(self, *secrets: str) -> Target:
        return Target(f"http://127.0.0.1:{self.port}/", secrets, timeout_seconds=15)

    def send(self, message_id: str, body: bytes = BODY, *, secrets: tuple[str, ...] = (SECRET,)) -> Answer:
        """A delivery as the gateway sends it."""
        return self.sender.send(self.target(*secrets), body, message_id=message_id, idempotency_key=str(uuid4()))

    def post(self, message_id: str, body: bytes, *, age: int = 0, signed: bytes = BODY, **changes: str) -> int:
        """A request of somebody else: the signature is over `signed`, made `age` seconds ago."""
        headers = headers_of(self.target(SECRET), signed, message_id, "key", int(time.time()) - age)
        headers |= {name.replace("_", "-"): value for name, value in changes.items()}
        kept = [(name.encode(), value.encode("latin-1")) for name, value in headers.items() if value]
        url = f"http://127.0.0.1:{self.port}/"
        return httpx2.post(url, content=body, headers=kept, trust_env=False, timeout=20).status_code

    def effects(self) -> list[str]:
        with contextlib.closing(sqlite3.connect(self.database)) as opened:
            return [row[0] for row in opened.execute("SELECT event FROM effects")]


def program() -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return str(found)


@contextlib.contextmanager
def running(folder: Path, secrets: str) -> Iterator[Receiver]:
    script, port, database = folder / "receiver.py", free_port(), folder / "orders.db"
    script.write_text(program(), "utf-8")
    environment = {**os.environ, "WEBHOOK_SECRETS": secrets, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(port), str(database)]
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: process.poll() is not None or is_open(port), what="the receiver")
        yield Receiver(port, database)
    finally:
        process.kill()
        process.wait(30)


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with running(tmp_path_factory.mktemp("receiver"), SECRET) as made:
        yield made


@pytest.fixture(autouse=True)
def forget(receiver: Receiver) -> None:
    with contextlib.closing(sqlite3.connect(receiver.database, timeout=10)) as opened, opened:
        opened.execute("DELETE FROM seen")
        opened.execute("DELETE FROM effects")


def test_it_is_thirty_lines() -> None:
    lines = [line for line in program().splitlines() if line.strip()]
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 120, "and they can be read"
    assert not re.search(
        r"^(import|from) (?!os|contextlib|http\.server|shared\.(errors|signature) )", program(), re.MULTILINE
    )


def test_a_genuine_delivery_has_its_effect_once(receiver: Receiver) -> None:
    for _ in range(3):
        answer = receiver.send("evt_genuine")
        assert (answer.http_status, answer.failure) == (200, None)
    assert receiver.effects() == [BODY.decode()]
    assert receiver.send("evt_other").http_status == 200
    assert len(receiver.effects()) == 2


def test_twenty_copies_at_once_have_one_effect(receiver: Receiver) -> None:
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: receiver.send("evt_twenty").http_status, range(20)))
    assert answers == [200] * 20
    assert len(receiver.effects()) == 1


def test_what_is_forged_changed_or_old_is_refused(receiver: Receiver) -> None:
    assert receiver.send("evt_forged", secrets=(NEW,)).http_status == 403
    assert receiver.post("evt_changed", BODY.replace(b"1", b"2")) == 403
    assert receiver.post("evt_old", BODY, age=400) == 403
    assert receiver.post("evt_future", BODY, age=-400) == 403
    assert receiver.post("evt_a", BODY, webhook_id="evt_b") == 403
    assert receiver.post("evt_a", BODY, webhook_signature="") == 400
    assert receiver.post("evt_a", BODY, webhook_id="") == 400
    assert receiver.post("evt_a", BODY, webhook_timestamp="yesterday") == 400
    assert receiver.post("evt_a", BODY, webhook_signature="v1,é") == 400
    assert receiver.effects() == []
    assert receiver.post("evt_a", BODY, age=200) == 200


def test_a_body_beyond_its_limit_is_refused(receiver: Receiver) -> None:
    large = b"x" * (16 * 1024 * 1024 + 1)
    with contextlib.suppress(httpx2.TransportError):  # its answer may be lost, as it does not read to the end
        assert receiver.post("evt_large", large, signed=large) == 403
    assert receiver.effects() == []


def test_a_rotation_loses_nothing_in_either_order(receiver: Receiver, tmp_path: Path) -> None:
    assert receiver.send("evt_both", secrets=(NEW, SECRET)).http_status == 200, "it knows the old one, both sign"
    with running(tmp_path, f"{NEW} {SECRET}") as prepared:
        for number, secrets in enumerate([(SECRET,), (NEW, SECRET), (NEW,)]):
            assert prepared.send(f"evt_{number}", secrets=secrets).http_status == 200
        assert prepared.send("evt_none", secrets=(new_secret(),)).http_status == 403
        assert len(prepared.effects()) == 3


def test_an_effect_that_fails_is_not_noted_and_comes_again(receiver: Receiver) -> None:
    with contextlib.closing(sqlite3.connect(receiver.database)) as opened:
        opened.execute("ALTER TABLE effects RENAME TO elsewhere")
        failure = receiver.send("evt_again").failure
        assert failure is not None
        assert failure.error_class == "dropped"
        opened.execute("ALTER TABLE elsewhere RENAME TO effects")
    assert receiver.send("evt_again").http_status == 200
    assert len(receiver.effects()) == 1
