"""An hour without the model, two instances, real requests: the type rests, is probed, and comes back; nobody is left in silence.

The clock is moved by SQL: all times in the database go back by as much as is to pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from local.standins.azure_openai import OpenAIStandIn
from local.standins.faults import What
from local.standins.twilio import TwilioStandIn
from shared.app import App
from shared.clients.azure_openai import AzureOpenAI
from shared.db.pool import Database
from tests.e2e.running import Inside, embed_now, standins
from tests.fakes.numbers import new_number

QUESTION = "Hoeveel vakantie-uren heb ik?"
ANSWER, APOLOGY = "200 vakantie-uren", "Sorry, het lukt me nu niet"
DOCUMENT = "# Handboek\n\n## Verlof\n\nJe hebt 200 vakantie-uren per jaar.\n"
STEP = 10  # seconds: how often a resting type is probed
AGE_LIMIT = 15 * 60
# At the end of the hour nobody is just as old as the limit: one who is may be given up at any look from then on.
ASKS_EVERY, ASKS_AT = 150, 70
MODEL_SECONDS = 1.5

LATER = """
    WITH jobs AS (
        UPDATE ai_jobs SET next_run_at = next_run_at - step, run_started_at = run_started_at - step,
            created_at = created_at - step, updated_at = updated_at - step
        FROM make_interval(secs => %(seconds)s) AS step
    ), types AS (
        UPDATE job_types SET resting_until = resting_until - make_interval(secs => %(seconds)s) WHERE resting_until IS NOT NULL
    )
    UPDATE messages SET created_at = created_at - make_interval(secs => %(seconds)s)
"""
AUTOREPLIES = """
    SELECT c.address, j.status, j.error_class, extract(epoch FROM j.updated_at - j.run_started_at)::float8
    FROM ai_jobs j JOIN conversations c ON c.id = j.conversation_id WHERE j.type = 'autoreply'
"""


class Two(Inside):
    """Two instances, each with a pool and clients of its own."""

    def __init__(self, database: Database, url: str, openai: OpenAIStandIn, twilio: TwilioStandIn) -> None:
        super().__init__(database, openai, twilio)
        self.pools = [Database(url, 4) for _ in range(2)]
        self.apps = []
        for pool in self.pools:
            model = AzureOpenAI(self.app.settings, chat_seconds=MODEL_SECONDS)
            self.apps.append(App(self.app.settings, database=pool, chat=model, embedder=model))
        self.threads = ThreadPoolExecutor(2)
        self.asked: dict[str, int] = {}
        self.second = 0

    def comes_in(self) -> str:
        """Somebody new asks the question."""
        address = new_number()
        self.asked[address] = self.second
        self.ask(address, QUESTION)
        return address

    def passes(self, seconds: int) -> int:
        """Let so much time pass, at once, and let both instances poll at the same time. Returns the calls of the model."""
        self.second += seconds
        self.world.force(LATER, seconds=seconds)
        before = self.calls()
        list(self.threads.map(lambda app: app.worker.poll_once(4), self.apps))
        return self.calls() - before

    def calls(self) -> int:
        """Chat requests that reached the service, whatever became of them."""
        return sum(request.path.endswith("/chat/completions") for request in self.openai.requests)

    def is_resting(self) -> bool:
        return bool(self.world.value("SELECT resting_until IS NOT NULL FROM job_types WHERE type = 'autoreply'"))

    def replies(self) -> dict[str, str]:
        """To whom what kind of line went out, if one did."""
        kinds = {ANSWER: "answer", APOLOGY: "apology"}
        sent = {message.to.removeprefix("whatsapp:"): message.body for message in self.twilio.sent}
        return {to: next((kind for words, kind in kinds.items() if words in body), body) for to, body in sent.items()}

    def close(self) -> None:
        self.threads.shutdown()
        for pool in self.pools:
            pool.close()


@pytest.fixture(scope="module")
def services(
    database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[OpenAIStandIn, TwilioStandIn]]:
    document: Path = tmp_path_factory.mktemp("handbook") / "handboek.md"
    document.write_text(DOCUMENT, "utf-8")
    with standins() as (openai, twilio):
        embed_now(Inside(database, openai, twilio).app, database, [document])
        yield openai, twilio


@pytest.fixture
def two(database: Database, database_url: str, services: tuple[OpenAIStandIn, TwilioStandIn]) -> Iterator[Two]:
    found = Two(database, database_url, *services)
    found.world.execute("TRUNCATE ai_jobs, job_attempts, message_events, messages, conversations CASCADE")
    found.world.execute("UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL")
    yield found
    found.openai.faults.clear()
    found.close()


def test_an_hour_without_the_model(two: Two) -> None:
    first = two.comes_in()
    assert two.passes(STEP) == 1
    two.passes(STEP)
    assert two.replies() == {first: "answer"}

    # It goes away: after five failures in a row the type rests.
    two.openai.faults.add("chat", "status", status=503)
    early = [two.comes_in() for _ in range(3)]
    calls = 0
    while not two.is_resting():
        calls += two.passes(STEP)
        assert two.second < 120
    assert 5 <= calls <= 8  # what was on its way when the fifth failed is not called back
    rests_since = two.second

    # From then on one probe every ten seconds, of both instances together, however many wait.
    ways: list[tuple[int, What]] = [(0, "status"), (1200, "drop_before"), (1800, "slow"), (1820, "status")]
    probes = 0
    while (outage := two.second - rests_since) < 3600:
        if outage % ASKS_EVERY == ASKS_AT:
            two.comes_in()
        for at, way in ways:
            if at == outage:
                two.openai.faults.clear()
                two.openai.faults.add(
                    "chat", way, status=500 if way == "status" else 503, seconds=2 if way == "slow" else 0
                )
        made = two.passes(STEP)
        assert made <= 1
        probes += made
        assert two.is_resting()
    assert probes >= 355

    # Nobody who asked during the rest was given up before the age limit, and who was heard an apology.
    late = [address for address, at in two.asked.items() if at >= rests_since]
    rows = {address: (status, why, age) for address, status, why, age in two.world.rows(AUTOREPLIES)}
    given_up = [address for address in late if rows[address][0] == "failed"]
    waiting = [address for address in late if rows[address][0] == "pending"]
    assert sorted(given_up + waiting) == sorted(late)
    assert all(rows[address][1] == "expired" and rows[address][2] >= AGE_LIMIT - STEP for address in given_up)
    assert all(two.second - two.asked[address] >= AGE_LIMIT for address in given_up)
    assert all(two.second - two.asked[address] <= AGE_LIMIT + STEP for address in waiting)
    assert len(waiting) >= 5
    replies = two.replies()
    assert [replies.get(address) for address in given_up] == ["apology"] * len(given_up)
    assert not set(replies) & set(waiting)
    assert {replies[address] for address in early} == {"apology"}

    # It is back: the next probe is an answer, and all who still wait get theirs.
    two.openai.faults.clear()
    for _ in range(12):
        two.passes(STEP)
    assert not two.is_resting()
    replies = two.replies()
    assert [replies.get(address) for address in waiting] == ["answer"] * len(waiting)
    assert two.world.value("SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing')") == 0


def test_a_wrong_key_rests_the_type_and_tells_and_buries_nothing(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    two.openai.faults.add("*", "status", status=401)
    people = [two.comes_in() for _ in range(12)]
    calls = [two.passes(STEP) for _ in range(72)]  # twelve minutes
    assert two.is_resting()
    assert two.world.rows("SELECT DISTINCT status FROM ai_jobs") == [("pending",)]
    assert two.world.value("SELECT count(*) FROM ai_jobs WHERE attempts > 0") == 0
    told = [record for record in caplog.records if "credential_refused" in record.getMessage()]
    assert {record.levelname for record in told} == {"ERROR"}
    assert len(told) <= 8 + 14  # those on their way, then a probe a minute
    assert sum(calls) == 0  # the question could not even be embedded
    two.openai.faults.clear()
    for _ in range(12):
        two.passes(STEP)
    assert [two.replies().get(address) for address in people] == ["answer"] * len(people)
