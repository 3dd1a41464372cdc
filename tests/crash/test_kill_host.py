"""The host is killed with SIGKILL where it matters; after a new start every question has one answer."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import psycopg
import pytest

from local.demo.load import HANDBOOKS
from local.postgres import EmbeddedPostgres
from shared.db.migrate import limit_role
from tests.e2e.running import Outside, until

QUESTION = "Hoeveel vakantie-uren heb ik?"
ACTIVE = "SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing')"
NUMBERS = iter(range(1000))
HELD_SECONDS = 60.0  # longer than anything that a test does meanwhile
LONG_ENOUGH = (0.2, *[0.4] * 100)  # seconds between the tries of a webhook: until a host is there again


@pytest.fixture(scope="module")
def embedded(postgres: EmbeddedPostgres) -> str:
    """A database that already has the handbook, embedded: the template of each test's own."""
    from shared.db.pool import Database
    from tests.e2e.running import Inside, embed_now, standins

    url = postgres.create("crash_embedded", template="template_migrated")
    database = Database(url, 4)
    with standins() as (openai, twilio):
        embed_now(Inside(database, openai, twilio).app, database, [HANDBOOKS / "personeelshandboek.md"])
    database.close()
    return "crash_embedded"


@pytest.fixture
def outside(postgres: EmbeddedPostgres, embedded: str) -> Iterator[Outside]:
    url = postgres.create(f"crash_{next(NUMBERS)}", template=embedded)
    with psycopg.connect(url, autocommit=True) as connection:
        limit_role(connection)
    # A lease that no busy machine lets go by: the tests end those of a host that they kill or freeze.
    with Outside(url, JOB_LEASE_SECONDS="20") as found:
        found.twilio.retry_webhooks(LONG_ENOUGH)
        found.start_host()
        yield found


EXPIRE = "UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'processing'"


def kill_and_start_again(outside: Outside) -> None:
    """And the leases of what it had in hand are over."""
    assert outside.host is not None
    outside.host.kill()
    outside.database.execute(EXPIRE)
    outside.start_host()


def sends(outside: Outside) -> int:
    """How many messages Twilio was asked to send."""
    return len([r for r in outside.twilio.requests if r.method == "POST" and r.path.endswith("/Messages.json")])


def settled(outside: Outside) -> bool:
    return bool(outside.database.value(ACTIVE) == 0)


def test_killed_in_the_model_call_the_work_goes_on_after_the_restart(outside: Outside) -> None:
    outside.openai.faults.add("chat", "slow", seconds=HELD_SECONDS, times=1)
    outside.twilio.receive("+31600000001", QUESTION)
    until(lambda: [r for r in outside.openai.requests if r.path.endswith("/chat/completions")])
    kill_and_start_again(outside)
    until(lambda: outside.sent_to("+31600000001"))
    until(lambda: settled(outside))
    bodies = outside.sent_to("+31600000001")
    assert len(bodies) == 1
    assert "200 vakantie-uren" in bodies[0]
    outcomes = outside.database.rows("SELECT outcome FROM job_attempts a JOIN ai_jobs j ON j.id = a.job_id"
                                     " WHERE j.type = 'autoreply' ORDER BY claim")  # fmt: skip
    assert [outcome for (outcome,) in outcomes] == ["crashed", "done"]


LET_TIME_PASS = """
    UPDATE messages SET send_started_at = send_started_at - interval '60 seconds',
        last_lookup_at = last_lookup_at - interval '60 seconds'
    WHERE status = 'sending'
"""
ALL_DUE = (
    "UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending' AND next_run_at > now() + interval '3 seconds'"
)


def settles(outside: Outside) -> bool:
    """Let time pass for what is looked up; whether all is settled."""
    outside.database.execute(LET_TIME_PASS)
    outside.database.execute(ALL_DUE)
    return settled(outside)


@pytest.mark.parametrize("accepted", [True, False], ids=["after-acceptance", "before-acceptance"])
def test_killed_in_the_send_nobody_gets_two_replies(outside: Outside, accepted: bool) -> None:
    outside.twilio.receive("+31600000002", QUESTION)
    until(lambda: outside.sent_to("+31600000002"))  # Twilio's list can be held against that
    until(lambda: settled(outside))
    before = sends(outside)
    outside.twilio.faults.add("create", "slow" if accepted else "drop_before", seconds=HELD_SECONDS, times=1)
    outside.twilio.receive("+31600000001", QUESTION)
    until(lambda: sends(outside) > before)
    kill_and_start_again(outside)
    until(lambda: settles(outside))
    assert len(outside.sent_to("+31600000001")) == 1
    status, evidence, tries = outside.database.rows(
        "SELECT m.status, m.evidence, m.send_attempt FROM messages m JOIN conversations c ON c.id = m.conversation_id"
        " WHERE c.address = '+31600000001' AND m.source = 'ai'"
    )[0]
    assert status in ("sent", "delivered", "read")
    assert (
        (tries == 1 and evidence in ("callback", "list"))
        if accepted
        else (tries > 1 and evidence in ("answer", "callback"))
    )
    assert outside.database.value("SELECT count(*) FROM dead_letters") == 0
    assert outside.twilio.receive("+31600000001", "Hoeveel verlof is er bij een verhuizing?")
    until(lambda: len(outside.sent_to("+31600000001")) == 2)  # the conversation goes on


def test_killed_right_after_storing_nothing_is_lost(outside: Outside) -> None:
    numbers = [f"+3160000{n:04d}" for n in range(20)]
    for number in numbers:
        outside.twilio.receive(number, QUESTION, wait=False)
    until(lambda: outside.database.value("SELECT count(*) FROM messages WHERE NOT from_self") >= 5)
    kill_and_start_again(outside)
    until(lambda: outside.database.value("SELECT count(*) FROM messages WHERE NOT from_self") == 20)
    until(lambda: settles(outside))
    assert [len(outside.sent_to(number)) for number in numbers] == [1] * 20
    assert outside.database.value("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == 0


def test_a_planned_stop_finishes_or_gives_back_and_uses_no_attempt(outside: Outside) -> None:
    outside.openai.faults.add("chat", "slow", seconds=HELD_SECONDS, times=1)
    outside.twilio.receive("+31600000001", QUESTION)
    until(lambda: [r for r in outside.openai.requests if r.path.endswith("/chat/completions")])
    assert outside.host is not None
    outside.host.signal(signal.SIGTERM)
    outside.host.wait(30)
    assert outside.database.rows("SELECT status, attempts FROM ai_jobs WHERE type = 'autoreply'") == [("pending", 0)]
    outside.start_host()
    until(lambda: len(outside.sent_to("+31600000001")) == 1)


def test_a_frozen_host_that_wakes_up_late_sends_nothing(outside: Outside) -> None:
    """SIGSTOP in the model call, beyond the lease: another host answers, and the first one's answer is refused."""
    outside.openai.faults.add("chat", "slow", seconds=5, times=1)
    outside.twilio.receive("+31600000001", QUESTION)
    until(lambda: [r for r in outside.openai.requests if r.path.endswith("/chat/completions")])
    frozen = outside.host
    assert frozen is not None
    frozen.signal(signal.SIGSTOP)
    outside.port = 0
    second = outside.start_host()

    def answered() -> bool:  # again, as a renewal may have been on its way
        outside.database.execute(EXPIRE + " AND claims = 1")
        return len(outside.sent_to("+31600000001")) == 1

    until(answered)
    frozen.signal(signal.SIGCONT)
    until(lambda: "lease_lost" in outside.logged())
    until(lambda: settled(outside))
    assert len(outside.sent_to("+31600000001")) == 1
    second.stop()
    frozen.kill()


def test_a_host_whose_starter_is_gone_stops_by_itself(outside: Outside) -> None:
    assert outside.host is not None
    process = outside.host._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()  # as the end of `up` does, also by SIGKILL
    assert outside.host.wait(30) == 0
