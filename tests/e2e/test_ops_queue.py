"""The queue's pages over HTTP: what waits and runs by type, pausing, the form for weight and limit, slow jobs, connections."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shared.db.pool import Database
from tests.e2e.talks import NOOR, asks, fresh, live_address
from tests.fakes.visitor import Visitor, words_of
from tests.fakes.world import World

FORM: dict[str, Any] = {"weight": "4", "max_running": "", "seen_weight": "4", "seen_max_running": ""}


@pytest.fixture
def world(database: Database) -> World:
    found = fresh(database)
    found.execute("UPDATE job_types SET paused = false, max_running = NULL, weight = 4")
    return found


@pytest.fixture
def hr(world: World) -> Visitor:
    return Visitor(world.app, language="nl")


def row(page: str, job_type: str = "autoreply") -> str:
    found = re.search(rf'<tr id="type-{job_type}">.*?</tr>', page, re.DOTALL)
    assert found
    return words_of(found[0])


def limits(world: World) -> tuple[int, int | None]:
    return world.rows("SELECT weight, max_running FROM job_types WHERE type = 'autoreply'")[0]


def audited(world: World) -> list[str]:
    rows = world.rows(
        "SELECT what FROM audit_log WHERE target_type = 'job_type' AND target_id = 'autoreply' ORDER BY id"
    )
    return [what for (what,) in rows]


def test_each_type_says_what_waits_and_runs_and_how_it_stands(world: World, hr: Visitor) -> None:
    asks(world)
    world.force("UPDATE ai_jobs SET next_run_at = now() - interval '5 minutes'")
    world.execute("UPDATE job_types SET resting_until = now() + interval '3 minutes', resting_reason = 'HTTP 503 <b>'"
                  " WHERE type = 'suggest'")  # fmt: skip
    page = hr.get("/jobs/queue").text
    assert row(page) == "Automatisch antwoord gewicht 4 gereed 1 5 min geleden 0 0 0 Pauzeren"
    assert "rust volgende poging: over 2 min" in row(page, "suggest")
    assert re.search(r"\d+ in gebruik, van de \d+ die de database ons geeft", words_of(page))
    assert "Niets duurde de afgelopen dag langer dan 8,0 s." in words_of(page)
    one = hr.get("/jobs/queue/suggest").text
    assert "de andere kant doet het niet" in words_of(one)
    assert "HTTP 503 &lt;b&gt;" in one
    world.run()
    fresh_part = hr.get(live_address(page))
    assert row(fresh_part.text).startswith("Automatisch antwoord gewicht 4 gereed 0 0 0")
    assert "waiting" in words_of(Visitor(world.app, language="en").get("/jobs/queue").text)
    world.execute("UPDATE job_types SET resting_until = NULL, resting_reason = NULL")


def test_a_type_of_another_version_is_shown_as_such(world: World, hr: Visitor) -> None:
    world.execute('INSERT INTO ai_jobs (payload) VALUES (\'{"type": "a/b<i>"}\'), (\'{"type": "later"}\')')
    page = hr.get("/jobs/queue").text
    assert "later onbekend 1" in row(page, "later")
    assert "Pauzeren" not in row(page, "later")
    assert "<i>" not in page
    assert "kent deze soort taak niet" in words_of(hr.get("/jobs/queue/later").text)
    assert "kent deze soort taak niet" in words_of(hr.get(f"/jobs/{world.value('SELECT id FROM ai_jobs')}").text)
    assert hr.post("/jobs/queue/later/pause").status_code == 409
    assert hr.get("/jobs/queue/nothing").status_code == 404
    assert hr.post("/jobs/queue/nothing/limits", **FORM).status_code == 404


def test_one_click_pauses_and_one_goes_on(world: World, hr: Visitor) -> None:
    asks(world)
    told = words_of(hr.follow(hr.post("/jobs/queue/autoreply/pause")).text)
    assert "Deze soort is gepauzeerd: er wordt niets nieuws van begonnen." in told
    assert "Automatisch antwoord gewicht 4 gepauzeerd 1" in row(hr.get("/jobs/queue").text)
    one = words_of(hr.get("/jobs/queue/autoreply").text)
    assert "Wat bezig is, wordt afgemaakt; wat wacht, blijft staan" in one
    assert "Gepauzeerd door Beheerder op deze computer" in one
    assert "Deze soort taak is gepauzeerd" in words_of(hr.get(f"/jobs/{world.value('SELECT id FROM ai_jobs')}").text)
    assert "gepauzeerd" in words_of(hr.get("").text), "and on the overview"
    world.run()
    assert world.line.accepted == []
    assert "was al gepauzeerd" in words_of(hr.post("/jobs/queue/autoreply/pause").text)
    world.wake.delays.clear()
    back = hr.post("/jobs/queue/autoreply/resume", on_its_page="1")
    assert back.headers["location"].startswith("/api/ops/jobs/queue/autoreply?")
    assert world.wake.delays == [0.0]
    world.run()
    assert len(world.sent_to(NOOR)) == 1
    assert audited(world) == ["pause_type", "resume_type"]
    said = words_of(hr.get("/audit").text)
    assert "Pauzeerde een soort taak: Automatisch antwoord" in said


def test_weight_and_limit_are_set_with_a_small_form(world: World, hr: Visitor) -> None:
    page = hr.get("/jobs/queue/autoreply").text
    assert 'name="weight" value="4"' in page
    told = hr.follow(hr.post("/jobs/queue/autoreply/limits", **FORM | {"weight": "9", "max_running": "3"}))
    assert "Opgeslagen" in words_of(told.text)
    assert limits(world) == (9, 3)
    assert "gewicht 9, hooguit 3 tegelijk" in words_of(told.text)
    stale = hr.post("/jobs/queue/autoreply/limits", **FORM | {"weight": "5"})
    assert "Iemand anders heeft dit intussen veranderd" in words_of(stale.text)
    assert 'name="weight" value="9"' in stale.text, "the form shows how it is now"
    assert limits(world) == (9, 3)
    none: dict[str, Any] = {"weight": "9", "max_running": "", "seen_weight": "9", "seen_max_running": "3"}
    hr.follow(hr.post("/jobs/queue/autoreply/limits", **none))
    assert limits(world) == (9, None)
    assert audited(world) == ["set_type_limits", "set_type_limits"]
    assert "gewicht: 4 → 9 · hooguit tegelijk: ∞ → 3" in words_of(hr.get("/audit").text)


@pytest.mark.parametrize(
    ("typed", "sentence", "field"),
    [
        ({"weight": ""}, "Het gewicht is een heel getal van 1 tot 1000.", "weight"),
        ({"weight": "0"}, "Het gewicht is een heel getal van 1 tot 1000.", "weight"),
        ({"weight": 'een"><b>'}, "Het gewicht is een heel getal van 1 tot 1000.", "weight"),
        ({"max_running": "0"}, "“Hooguit tegelijk” is een heel getal van 1 tot 1000, of leeg.", "max_running"),
        ({"max_running": "1,5"}, "“Hooguit tegelijk” is een heel getal van 1 tot 1000, of leeg.", "max_running"),
        ({"max_running": "1001"}, "“Hooguit tegelijk” is een heel getal van 1 tot 1000, of leeg.", "max_running"),
    ],
    ids=["empty", "zero", "words", "none-at-once", "half", "too-many"],
)
def test_what_cannot_be_is_said_in_words_and_what_was_typed_is_kept(
    world: World, hr: Visitor, typed: dict[str, str], sentence: str, field: str
) -> None:
    refused = hr.post("/jobs/queue/autoreply/limits", **FORM | typed)
    assert refused.status_code == 409
    assert sentence in words_of(refused.text)
    assert re.search(rf'<input id="{field}"[^>]* aria-invalid="true">', refused.text)
    value = re.search(rf'<input id="{field}" name="{field}" value="([^"]*)"', refused.text)
    assert value
    assert value[1].replace("&#34;", '"').replace("&gt;", ">").replace("&lt;", "<") == typed[field]
    assert limits(world) == (4, None)
    assert audited(world) == []


def test_slow_jobs_lead_to_what_happened(world: World, hr: Visitor) -> None:
    asks(world)
    world.execute(
        "INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome, error_class)"
        " SELECT id, 1, 1, now() - interval '90 seconds', now(), 'retry', 'timeout' FROM ai_jobs"
    )
    page = hr.get("/jobs/queue").text
    assert "Automatisch antwoord 90 s Noor Smit geen antwoord op tijd" in words_of(page)
    assert f'href="/api/ops/jobs/{world.value("SELECT id FROM ai_jobs")}"' in page
    assert "90 s" in words_of(hr.get("/jobs/queue/autoreply").text)
    assert "90 s" not in words_of(hr.get("/jobs/queue/suggest").text)


def test_nothing_is_set_without_the_token(world: World, hr: Visitor) -> None:
    hr.csrf = "x"
    for action in ("pause", "resume", "limits"):
        assert hr.post(f"/jobs/queue/autoreply/{action}", **FORM).status_code == 403
        assert hr.get(f"/jobs/queue/autoreply/{action}").status_code == 405
    assert audited(world) == []
