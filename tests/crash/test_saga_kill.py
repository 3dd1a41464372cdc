"""The process that sends is killed at each boundary of its way, for each outcome of the send: never two, never silence.

The boundaries come from the code, so that a new one cannot be forgotten. The process is a real one, with the real clients,
against the stand-ins in this process; another one goes on after it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from local.standins.azure_openai import OpenAIStandIn
from local.standins.twilio import TwilioStandIn
from shared.app import App
from shared.boundary import OF_THE_QUEUE, OF_THE_SAGA, Boundary
from shared.clients.deadline import boot_clock
from shared.conversation import actions
from shared.conversation.reply import INTENT_SECONDS
from shared.db.pool import Database
from shared.queue import store
from shared.settings import load
from tests.crash.saga_process import run_all, run_until
from tests.fakes.eventually import eventually
from tests.fakes.numbers import new_number
from tests.fakes.world import ENVIRONMENT, World

type Outcome = Literal["accepted", "dropped before", "dropped after"]
OUTCOMES: tuple[Outcome, ...] = ("accepted", "dropped before", "dropped after")
OF_DRAFTING = {Boundary.READ, Boundary.ANSWERED, Boundary.DRAFTED}
OF_DOUBT = {Boundary.DOUBTED, Boundary.LOOKED_UP}
OWN = "Een lange uitleg over verlof en alles wat daarbij hoort. " * 40  # two parts

_processes = multiprocessing.get_context("forkserver")


def reached(outcome: Outcome) -> set[Boundary]:
    """What a send with this outcome passes, beside the drafting."""
    found = set(OF_THE_QUEUE + OF_THE_SAGA) - OF_DRAFTING
    match outcome:
        case "accepted":
            return found - OF_DOUBT - {Boundary.RELEASED}
        case "dropped before":
            return found
        case "dropped after":
            return found - {Boundary.RELEASED}


@dataclass
class Site:
    """A database with a handbook, both services, and this process's own application, which goes on after the killed one."""

    world: World
    openai: OpenAIStandIn
    twilio: TwilioStandIn
    environment: dict[str, str]
    app: App

    def begin(self, outcome: Outcome) -> str:
        """A new employee's address; the next send has this outcome."""
        self.twilio.faults.clear()
        if outcome != "accepted":
            self.twilio.faults.add("create", "drop_before" if outcome == "dropped before" else "drop_after", times=1)
        return new_number()

    def killed_at(self, boundary: Boundary, times: int = 1) -> bool:
        """Run the jobs in a process of their own; whether it was killed there, or ended without having passed."""
        process = _processes.Process(target=run_until, args=(self.environment, boundary.value, signal.SIGKILL, times))
        process.start()
        process.join(90)
        assert process.exitcode in (0, -signal.SIGKILL)
        return process.exitcode != 0

    def go_on(self) -> None:
        """Another process finds what the dead one has left."""
        self.world.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'processing'")
        with self.world.database.connection() as connection:
            store.rescue(connection)
        run_all(self.app, self.environment["DATABASE_URL"])

    def sent_to(self, address: str) -> list[str]:
        return [message.body for message in self.twilio.sent if message.to == f"whatsapp:{address}"]

    def model_calls(self) -> int:
        return sum(request.path.endswith("/chat/completions") for request in self.openai.requests)

    def rows(self, address: str) -> list[tuple[Any, ...]]:
        """What is said of the messages to an address: whether they went out, and that their job is done."""
        return self.world.rows(
            "SELECT DISTINCT m.provider_sid IS NOT NULL, j.status FROM messages m"
            " JOIN ai_jobs j ON j.id = m.reply_id OR j.payload ->> 'message_id' = m.reply_id::text"
            " WHERE m.from_self AND m.conversation_id = (SELECT id FROM conversations WHERE address = %(address)s)",
            address=address,
        )


@pytest.fixture(scope="module")
def site(database: Database, database_url: str) -> Iterator[Site]:
    _processes.set_forkserver_preload(["tests.crash.saga_process"])
    with OpenAIStandIn() as openai, TwilioStandIn(steps=()) as twilio:
        environment = ENVIRONMENT | {
            "DATABASE_URL": database_url,
            "AZURE_OPENAI_ENDPOINT": openai.url,
            "TWILIO_API_BASE_URL": twilio.url,
            "TWILIO_ACCOUNT_SID": twilio.account_sid,
            "TWILIO_AUTH_TOKEN": twilio.auth_token,
            "TWILIO_WHATSAPP_FROM": twilio.whatsapp_from,
            "TYPING_INDICATOR": "off",
            "DB_POOL_MAX": "2",
        }
        world = World(database)
        world.add_handbook()
        app = App(load(environment), database=database)
        found = Site(world, openai, twilio, environment, app)
        world.says(found.begin("accepted"), "Hoeveel uur verlof heb ik?")
        found.go_on()  # somebody has had an answer: Twilio's list can be held against that
        yield found


OF_AN_ANSWER = [(outcome, at) for outcome in OUTCOMES for at in Boundary if at in reached(outcome) | OF_DRAFTING]
OF_A_PERSON_S = [(outcome, at) for outcome in OUTCOMES for at in Boundary if at in reached(outcome)]


@pytest.mark.parametrize(("outcome", "boundary"), OF_AN_ANSWER)
def test_an_answer(site: Site, outcome: Outcome, boundary: Boundary) -> None:
    address, calls = site.begin(outcome), site.model_calls()
    site.world.says(address, "Hoeveel uur verlof heb ik?")
    assert site.killed_at(boundary)
    assert len(site.sent_to(address)) <= 1
    site.go_on()
    (body,) = site.sent_to(address)
    assert "200 uur" in body
    assert site.rows(address) == [(True, "done")]
    assert site.model_calls() - calls == (2 if boundary is Boundary.ANSWERED else 1)
    assert site.world.value("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == 0


@pytest.mark.parametrize(("outcome", "boundary"), OF_A_PERSON_S)
def test_a_person_s_answer_of_two_parts(site: Site, outcome: Outcome, boundary: Boundary) -> None:
    """Killed in the second one, if both pass there: the first one has gone out by then, and must not again."""
    address = site.begin(outcome)
    site.world.says(address, "stuur maar")
    conversation = site.world.value("SELECT id FROM conversations WHERE address = %(address)s", address=address)
    with site.world.database.connection() as connection:
        actions.send_own(connection, conversation, OWN, who="test", seen_seq=2**40)
    site.world.execute(
        "UPDATE ai_jobs SET next_run_at = now() + interval '1 hour' WHERE type = 'autoreply' AND status = 'pending'"
    )
    times = 1 if boundary in OF_DOUBT | {Boundary.RELEASED} else 2
    assert site.killed_at(boundary, times)
    site.go_on()
    assert "".join(site.sent_to(address)) == OWN.strip()
    assert len(site.sent_to(address)) == 2
    assert site.rows(address) == [(True, "done")]


def test_a_process_that_was_frozen_before_its_request_sends_nothing_when_it_wakes_up(site: Site) -> None:
    """SIGSTOP between intent and request; meanwhile another one finds that nothing has arrived, and sends."""
    address = site.begin("accepted")
    site.world.says(address, "Hoeveel uur verlof heb ik?")
    frozen = _processes.Process(target=run_until, args=(site.environment, Boundary.INTENDED.value, signal.SIGSTOP))
    frozen.start()
    assert frozen.pid is not None
    try:
        eventually(lambda: site.world.value("SELECT count(*) FROM messages WHERE status = 'sending'"))
        eventually(lambda: is_stopped(frozen.pid))
        began = boot_clock()
        site.go_on()
        assert len(site.sent_to(address)) == 1
        eventually(lambda: boot_clock() - began > INTENT_SECONDS)
        os.kill(frozen.pid, signal.SIGCONT)
        frozen.join(90)
        assert frozen.exitcode == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            frozen.kill()
    assert len(site.sent_to(address)) == 1
    assert site.rows(address) == [(True, "done")]
    assert site.world.value(
        "SELECT send_attempt FROM messages m JOIN conversations c ON c.id = m.conversation_id"
        " WHERE c.address = %(address)s AND from_self", address=address) == 2  # fmt: skip


def is_stopped(pid: int | None) -> bool:
    """Whether a process is frozen."""
    found = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.startswith("T")
