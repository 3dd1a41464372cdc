"""What employees, messages and jobs see of each fault of the model: real clients, real HTTP, one table.

Twilio's faults have a matrix of their own (matrix.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from local.demo.load import HANDBOOKS
from local.standins.azure_openai import OpenAIStandIn
from local.standins.twilio import TwilioStandIn
from shared.db.pool import Database
from tests.e2e.running import Inside, embed_now, standins
from tests.fakes.numbers import new_number

QUESTION = "Hoeveel vakantie-uren heb ik?"
APOLOGY = "Sorry, het lukt me nu niet"


@dataclass(frozen=True)
class Case:
    """A fault that strikes `times` (None: always), and what is to come of it."""

    where: str
    do: str
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    times: int | None = 1
    job: str = "done"
    error_class: str | None = None
    message: str | None = "sent"
    model_calls: int = 1  # that were made, the failed ones included
    accepted: int = 1  # answers that Twilio has
    apologies: int = 0


MODEL = [
    Case("chat", "status", 429, model_calls=2),
    Case("chat", "status", 429, headers={"Retry-After": "7"}, model_calls=2),
    Case("chat", "status", 503, headers={"Retry-After": "7"}, model_calls=2),
    Case("chat", "status", 500, model_calls=2),
    Case("chat", "drop_before", model_calls=2),
    Case("chat", "drop_after", model_calls=2),
    Case("chat", "broken_body", model_calls=2),
    Case("chat", "no_text", model_calls=2),
    Case("chat", "status", 500, times=None, job="failed", error_class="unavailable", message=None, model_calls=3,
         accepted=0, apologies=1),
    Case("chat", "no_text", times=None, job="failed", error_class="empty_answer", message=None, model_calls=3,
         accepted=0, apologies=1),
    Case("chat", "content_filter", job="failed", error_class="content_filter", message=None, accepted=0, apologies=1),
    Case("chat", "content_filter_400", job="failed", error_class="content_filter", message=None, accepted=0, apologies=1),
    Case("chat", "status", 400, job="failed", error_class="rejected", message=None, accepted=0, apologies=1),
    Case("chat", "status", 401, model_calls=2),
    Case("embeddings", "status", 429),
    Case("embeddings", "drop_before"),
]  # fmt: skip
# What may have left is a matter of evidence: test_fault_matrix_*.py.


def name(case: Case) -> str:
    retry = "-retry-after" if case.headers else ""
    return (
        f"{case.where}-{case.do}{'-' + str(case.status) if case.do == 'status' else ''}{retry}-{case.times or 'always'}"
    )


@pytest.fixture(scope="module")
def services(database: Database) -> Iterator[tuple[OpenAIStandIn, TwilioStandIn]]:
    with standins() as (openai, twilio):
        embed_now(Inside(database, openai, twilio).app, database, [HANDBOOKS / "personeelshandboek.md"])
        yield openai, twilio


@pytest.fixture
def inside(database: Database, services: tuple[OpenAIStandIn, TwilioStandIn]) -> Iterator[Inside]:
    found = Inside(database, *services)
    found.world.execute("UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL")
    found.world.force("UPDATE ai_jobs SET status = 'failed' WHERE status = 'pending'")
    yield found
    for service in services:
        service.faults.clear()


@pytest.mark.parametrize("case", MODEL, ids=name)
def test_fault(inside: Inside, case: Case) -> None:
    who = new_number()
    calls = len([r for r in inside.openai.requests if r.path.endswith("/chat/completions")])
    where: Any = case.where
    do: Any = case.do
    inside.openai.faults.add(where, do, status=case.status, headers=case.headers, times=case.times)
    inside.ask(who, QUESTION)
    inside.run_all()
    row = inside.world.rows(
        "SELECT j.id, j.status, j.error_class FROM ai_jobs j JOIN conversations c ON c.id = j.conversation_id"
        " WHERE c.address = %(who)s AND j.type = 'autoreply'",
        who=who,
    )
    assert len(row) == 1
    job, state, error_class = row[0]
    assert (state, error_class) == (case.job, case.error_class)
    assert inside.world.value("SELECT status FROM messages WHERE reply_id = %(job)s", job=job) == case.message
    assert len([r for r in inside.openai.requests if r.path.endswith("/chat/completions")]) - calls == case.model_calls
    bodies = inside.sent_to(who)
    assert len([body for body in bodies if "200 vakantie-uren" in body]) == case.accepted
    assert len([body for body in bodies if body.startswith(APOLOGY)]) == case.apologies
    attempts = inside.world.rows(
        "SELECT outcome, error FROM job_attempts WHERE job_id = %(job)s ORDER BY claim", job=job
    )
    assert attempts[-1][0] == ("done" if case.job == "done" else "failed")
    assert not any("standin" in (error or "") and "key" in (error or "").lower() for _, error in attempts)


@pytest.mark.parametrize(("headers", "wait"), [({}, 10), ({"Retry-After": "7"}, 7)], ids=["policy", "retry-after"])
def test_a_throttled_model_is_asked_again_when_it_says(inside: Inside, headers: dict[str, str], wait: float) -> None:
    who = new_number()
    inside.openai.faults.add("chat", "status", status=429, headers=headers, times=1)
    inside.ask(who, QUESTION)
    inside.run()
    due, attempts = inside.world.rows(
        "SELECT extract(epoch FROM next_run_at - updated_at)::float8, attempts FROM ai_jobs WHERE status = 'pending'"
    )[0]
    assert due == wait
    assert attempts == (0 if headers else 1)  # being told when to come back uses no attempt


def test_a_refused_credential_of_ours_buries_nothing_and_says_so(
    inside: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    inside.twilio.faults.add("create", "status", status=401, code=20003)
    before = inside.world.value("SELECT max(seq) FROM ai_jobs")
    for _ in range(3):
        inside.ask(new_number(), QUESTION)
    inside.run()
    states = inside.world.rows("SELECT DISTINCT status FROM ai_jobs WHERE seq > %(before)s", before=before)
    assert states == [("pending",)]
    assert any("credential_refused" in record.message and record.levelname == "ERROR" for record in caplog.records)


def test_a_payload_of_an_unknown_type_is_left_and_shown(inside: Inside) -> None:
    inside.world.execute('INSERT INTO ai_jobs (payload) VALUES (\'{"type": "of_tomorrow"}\')')
    inside.run_all()
    assert inside.world.rows("SELECT status, attempts FROM ai_jobs WHERE type = 'of_tomorrow'") == [("pending", 0)]
