"""Three hosts on one database and one real Azurite queue: they share the work, and no wake message can do harm."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from azure.storage.queue import QueueServiceClient

from local.host_process import HostProcess
from local.stack import Stack
from local.standins.twilio import TwilioStandIn
from shared.clients.wake import QUEUE_NAME
from shared.db.pool import Database
from tests.e2e.running import Inside, Rows, embed_now, free_port, until
from tests.fakes.azurite import Azurite
from tests.fakes.numbers import new_number

HOSTS, SLOTS = 3, 2
HELD_SECONDS = 4.0  # for which the model keeps the first jobs: until every host is full
QUESTION = "Hoeveel vakantie-uren heb ik?"
ACTIVE = "SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing')"
RUNNING = "SELECT count(*) FROM ai_jobs WHERE status = 'processing'"
CRASHED = "SELECT count(*) FROM job_attempts WHERE outcome = 'crashed'"
BACKLOG = "SELECT count(*) FROM ai_jobs WHERE status = 'pending' AND next_run_at <= now()"
DOCUMENT = "# Handboek\n\n## Verlof\n\nJe hebt 200 vakantie-uren per jaar.\n"


class Site:
    """The hosts, each with a log of its own, and what they share."""

    def __init__(self, database_url: str, azurite: Azurite, stack: Stack) -> None:
        self.azurite, self.stack = azurite, stack
        self.database = Rows(database_url)
        self.hosts: list[HostProcess] = []
        self.logs: list[Path] = []

    def start(self) -> None:
        """Bring them to three. The first has the port that the webhooks go to."""
        self.hosts = [host for host in self.hosts if host.poll() is None]
        missing = [self._new_host() for _ in range(HOSTS - len(self.hosts))]
        with ThreadPoolExecutor(HOSTS) as pool:
            self.hosts += pool.map(HostProcess.start, missing)
        until(lambda: self.database.value(ACTIVE) == 0 and self.length() == 0)

    def _new_host(self) -> HostProcess:
        port = int(self.stack.environment["PUBLIC_BASE_URL"].rsplit(":", 1)[1]) if not self.logs else 0
        log = Path(tempfile.mkstemp(prefix="antwoord-host-", suffix=".log")[1])
        self.logs.append(log)
        return HostProcess(self.stack.environment, port=port, log=os.open(log, os.O_WRONLY))

    def ask(self, count: int) -> list[str]:
        """As many people ask something at once; all are acknowledged with 200."""
        numbers = [new_number() for _ in range(count)]
        with ThreadPoolExecutor(8) as pool:
            sids = set(pool.map(lambda number: self.twilio.receive(number, QUESTION), numbers))
        assert [post.status for post in self.twilio.posted if post.sid in sids] == [200] * count  # at the first try
        return numbers

    @contextlib.contextmanager
    def asking(self, count: int) -> Iterator[Future[list[str]]]:
        """Inside, as many people ask something, and as many jobs run as there are slots: every host has its share in hand."""
        assert self.stack.openai is not None
        self.stack.openai.faults.add("chat", "slow", seconds=HELD_SECONDS, times=HOSTS * SLOTS)
        with ThreadPoolExecutor(1) as asker:
            asked = asker.submit(self.ask, count)
            until(lambda: self.database.value(RUNNING) == HOSTS * SLOTS)
            yield asked

    @property
    def twilio(self) -> TwilioStandIn:
        """The stand-in that all hosts talk to."""
        assert self.stack.twilio is not None
        return self.stack.twilio

    def all_answered_once(self, numbers: list[str]) -> None:
        until(lambda: self.database.value(ACTIVE) == 0, 100)
        answers = [message.to for message in self.twilio.sent if "200 vakantie-uren" in message.body]
        assert {number: answers.count(f"whatsapp:{number}") for number in numbers} == dict.fromkeys(numbers, 1)

    def ran(self) -> list[int]:
        """How many autoreplies each host that ever was has brought to their end."""
        return [
            len(re.findall(r'"event": "job_ran".*"type": "autoreply".*"outcome": "complete"', log.read_text("utf-8")))
            for log in self.logs
        ]

    def queue(self, name: str = QUEUE_NAME) -> Any:
        return QueueServiceClient.from_connection_string(self.azurite.connection_string).get_queue_client(name)

    def length(self) -> int:
        """How many messages there are, whether or not somebody has them in hand."""
        return int(self.queue().get_queue_properties().approximate_message_count or 0)

    def close(self) -> None:
        for host in self.hosts:
            host.kill()
        self.database.close()
        for log in self.logs:
            log.unlink()


@pytest.fixture(scope="module")
def running(database: Database, database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    with ExitStack() as closing:
        azurite = closing.enter_context(Azurite())
        given = inherited | {
            "DATABASE_URL": database_url,
            "AzureWebJobsStorage": azurite.connection_string,
            "JOB_LEASE_SECONDS": "4",
            "JOB_CONCURRENCY": str(SLOTS),
            "SETTLE_SECONDS": "0",
            "POLL_SCHEDULE": "* * * * * *",
            "AI_NOTICE": "off",
            "TYPING_INDICATOR": "off",
            "RECONCILE_WINDOW_SECONDS": "1",  # for a host that is killed while it sends
        }
        url = f"http://127.0.0.1:{free_port()}"
        stack = closing.enter_context(Stack(Path(tempfile.gettempdir()), given, host_url=url, model_seconds=0.3)).open()
        assert stack.openai is not None
        assert stack.twilio is not None
        document = tmp_path_factory.mktemp("handbook") / "handboek.md"
        document.write_text(DOCUMENT, "utf-8")
        embed_now(Inside(database, stack.openai, stack.twilio).app, database, [document])
        site = Site(database_url, azurite, stack)
        closing.callback(site.close)
        site.queue().create_queue()
        yield site


@pytest.fixture
def site(running: Site) -> Site:
    running.start()
    return running


def test_they_share_the_work_and_the_queue_is_as_long_as_the_backlog(site: Site) -> None:
    before = site.ran()
    with site.asking(40) as asked:
        until(lambda: site.length() >= site.database.value(BACKLOG) > 0)  # a message for each job that waits
    site.all_answered_once(asked.result())
    until(lambda: site.length() == 0)

    def shares() -> list[int]:
        return [now - then for now, then in zip(site.ran(), before, strict=True)]

    until(lambda: sum(shares()) >= 40)  # a host says so after the commit
    assert sum(shares()) == 40
    assert min(shares()[-HOSTS:]) >= SLOTS, shares()


def test_wake_messages_that_are_lost_doubled_late_or_poisoned_do_no_harm(site: Site) -> None:
    queue = site.queue()
    numbers = site.ask(6)
    queue.clear_messages()  # lost: the timer finds the jobs
    site.all_answered_once(numbers)
    numbers = site.ask(6)
    wake = base64.b64encode(b"wake").decode()
    for _ in range(30):  # doubled, five times over
        queue.send_message(wake)
    queue.send_message(wake, visibility_timeout=2)  # late: when everything is done
    poison = [
        queue.send_message(text).id
        for text in ("not base64!", base64.b64encode(b"\xff\x00{").decode(), "", "x" * 48_000)
    ]
    site.all_answered_once(numbers)
    until(lambda: site.length() == 0)
    assert all(host.poll() is None for host in site.hosts)
    buried = [message.content for message in site.queue(f"{QUEUE_NAME}-poison").receive_messages(messages_per_page=32)]
    assert len(poison) == 4
    assert "not base64!" in buried


def test_without_azurite_the_webhook_answers_and_the_timer_does_the_work(site: Site) -> None:
    site.azurite.kill()
    numbers = site.ask(10)
    site.all_answered_once(numbers)
    site.azurite.start()  # on the same port, its queue gone: the first message makes a new one
    service = QueueServiceClient.from_connection_string(site.azurite.connection_string)

    def is_made() -> bool:  # a wake message is a best effort: one may fail
        site.all_answered_once(site.ask(2))
        return QUEUE_NAME in {queue.name for queue in service.list_queues()}

    until(is_made)


def test_a_host_that_is_killed_leaves_its_jobs_to_the_others(site: Site) -> None:
    victim = site.hosts[-1]
    crashed = site.database.value(CRASHED)
    with site.asking(16) as asked:
        victim.kill()
    site.all_answered_once(asked.result())
    assert 1 <= site.database.value(CRASHED) - crashed <= SLOTS
