"""The overview and the jobs pages over HTTP: figures, filters in the address, words, restarts, live parts, hostile text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

from shared.db.pool import Database
from shared.errors import HeldError, JobError, PermanentError, TransientError
from shared.queue import replays_drive
from tests.fakes.deliveries import add_delivery, add_endpoint, forget_deliveries
from tests.fakes.visitor import HERE, Visitor, words_of
from tests.fakes.world import World

HOSTILE = '"><script>alert(1)</script>\u202e<b onclick=x>{{ 7*7 }}{0}%s</b>\u2066\x07'


def fails(error: JobError) -> Callable[[object], str]:
    def answer(_: object) -> str:
        raise error

    return answer


@pytest.fixture(scope="module")
def world(database: Database) -> World:
    world = World(database, OPS_AUTH="local", PUBLIC_BASE_URL=HERE)
    world.add_handbook()
    return world


@pytest.fixture
def hr(world: World) -> Visitor:
    world.execute(
        "TRUNCATE message_events, ai_jobs, job_attempts, messages, conversations, suggestions, audit_log, replays CASCADE"
    )
    world.model.says = lambda _: "Je hebt 200 uur verlof. [1]"
    world.line.before = lambda _: None
    return Visitor(world.app)


def asks(world: World, address: str, **extra: str) -> UUID:
    """A question; its job."""
    world.says(address, "Hoeveel verlof heb ik?", **extra)
    found: UUID = world.value("SELECT id FROM ai_jobs WHERE type = 'autoreply' ORDER BY seq DESC LIMIT 1")
    return found


def dies(world: World, address: str, error: JobError, **extra: str) -> UUID:
    """A question whose job fails for good; its apology is sent."""
    job = asks(world, address, **extra)
    world.model.says = fails(error)
    for _ in range(3):
        world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
        world.run()
    world.model.says = lambda _: "Je hebt 200 uur verlof. [1]"
    return job


def may_arrive(_: object) -> None:
    raise HeldError("held", "it may have been sent")


def state_of(world: World, job: UUID) -> str:
    status, closed_at = world.rows("SELECT status, closed_at FROM ai_jobs WHERE id = %(id)s", id=job)[0]
    return "closed" if closed_at else str(status)


def carry_on(world: World) -> None:
    """What a worker does for replays between two polls."""
    replays_drive.drive(world.database, world.wake.wake)


def jobs_in(page: str) -> list[str]:
    return re.findall(r'<tr id="job-([0-9a-f-]{36})"', page)


def test_the_overview_tells_how_it_stands(world: World, hr: Visitor) -> None:
    empty = words_of(hr.get("").text)
    assert "Niemand wacht op een mens." in empty
    assert "Er zijn nog geen taken geweest." in empty
    world.app.console._desk._services.overview.forget()
    asks(world, "+31612345601")
    world.run()
    dies(world, "+31612345602", TransientError("throttled", "RateLimitError: 429"))
    world.says("+31612345603", "medewerker", ProfileName="Karin")
    world.run()
    asks(world, "+31612345604")
    world.execute("UPDATE messages SET created_at = now()")  # in one hour of the figure, also at the turn of one
    page = hr.get("").text
    words = words_of(page)
    assert (
        "2 wachten op een mens 1 mislukt in de afgelopen dag 1 taken wachten aan de beurt sinds: zojuist 0 taken bezig"
        in words
    )
    assert "Karin vraagt om een mens · zojuist" in words
    assert "+31612345602 het antwoord mislukte: te druk" in words
    assert "Automatisch antwoord 1 0 1 2" in words
    assert "kwamen 4 berichten binnen en gingen 1 antwoorden uit" in words
    assert page.count('<rect class="asked" x=') == 1
    assert "Jobs by kind" in words_of(Visitor(world.app, language="en").get("").text)


def test_a_live_part_is_sent_again_only_when_it_has_changed(world: World, hr: Visitor) -> None:
    asks(world, "+31612345611")
    for path in ("", "/jobs", f"/jobs/{world.value('SELECT id FROM ai_jobs')}"):
        page = hr.get(path).text
        frame = re.search(r'hx-get="/api/ops([^"]+)"[^>]*X-Seen":"([0-9a-f]+)"', page.replace("&#34;", '"'))
        assert frame, path
        address, seen = frame.groups()
        asked = {"HX-Request": "true", "X-Seen": seen}
        assert hr.get(address, **asked).status_code == 204
        world.force("UPDATE ai_jobs SET status = 'done'")
        fresh = hr.get(address, **asked)
        assert fresh.status_code == 200
        assert fresh.text.startswith('<div id="live-')
        assert "<html" not in fresh.text
        world.force("UPDATE ai_jobs SET status = 'pending'")


def test_the_address_holds_the_filter(world: World, hr: Visitor) -> None:
    done = asks(world, "+31612345621")
    world.run()
    failed = dies(world, "+31612345622", PermanentError("content_filter", "stopped"))
    held_up = asks(world, "+31612345623")
    apology = world.value("SELECT id FROM ai_jobs WHERE type = 'send_message'")
    sids: dict[bool, str] = dict(world.rows(
        "SELECT m.from_self, m.provider_sid FROM messages m JOIN conversations c ON c.id = conversation_id"
        " WHERE c.address = '+31612345621'"))  # fmt: skip

    def found(query: str) -> set[str]:
        return set(jobs_in(hr.get(f"/jobs?{query}").text))

    every = {str(job) for job in (done, failed, held_up, apology)}
    assert found("") == every
    assert found("state=failed") == found("error_class=content_filter") == {str(failed)}
    assert found("state=pending") == {str(held_up)}
    assert found("state=done&type=autoreply") == {str(done)}
    assert found("type=send_message") == {str(apology)}
    assert found("phone=06-12345622") == {str(failed), str(apology)}
    assert found(f"sid={sids[False]}") == found(f"sid={sids[True]}") == {str(done)}
    assert found("since=2020-01-01&until=2999-01-01") == every
    assert found("since=2999-01-01") == found("until=2020-01-01") == found("sid=x") == found("type=%27%00") == set()
    page = hr.get("/jobs?state=failed&phone=06-12345622&error_class=made_up").text
    assert 'value="06-12345622"' in page
    assert '<option value="made_up" selected>' in page
    assert "Geen taken gevonden" in page
    for wrong in ("state=x", "since=yesterday", "before=x", "before=" + "9" * 30, "until=9999-12-31"):
        assert hr.get(f"/jobs?{wrong}").status_code == 400, wrong


def test_a_job_tells_for_whom_or_what_it_is(world: World, hr: Visitor) -> None:
    document = world.value("SELECT id FROM documents")
    for payload in (
        {"type": "embed_record", "record": "document", "id": str(document)},
        {"type": "embed_record", "record": "document", "id": "not an id"},
        {"type": "import_people"},
    ):
        world.execute("INSERT INTO ai_jobs (payload, status) VALUES (%(payload)s, 'done')", payload=Jsonb(payload))
    asks(world, "+31612345691", ProfileName="Noor")
    page = hr.get("/jobs").text
    assert len(jobs_in(page)) == 4
    assert f'<a href="/api/ops/documents/{document}"><bdi>Personeelshandboek</bdi></a>' in page
    assert re.search(r'<a href="/api/ops/conversations/[0-9a-f-]{36}"><bdi>Noor</bdi></a>', page)


def test_a_long_list_comes_in_pages(world: World, hr: Visitor) -> None:
    world.execute("INSERT INTO ai_jobs (payload, status) SELECT jsonb_build_object('type', 'autoreply'), 'done'"
                  " FROM generate_series(1, 120)")  # fmt: skip
    seen: list[str] = []
    address = "/jobs?state=done"
    for size in (50, 50, 20):
        page = hr.get(address).text
        assert len(jobs_in(page)) == size
        seen += jobs_in(page)
        older = re.search(r'<a href="/api/ops([^"]+)" rel="next">', page)
        address = older[1].replace("&amp;", "&") if older else ""
    assert not address
    assert len(set(seen)) == 120


def test_one_job_is_told_in_words_and_keeps_its_details_folded(world: World, hr: Visitor) -> None:
    job = dies(world, "+31612345631", TransientError("throttled", "RateLimitError: Error code: 429"))
    world.execute("UPDATE job_attempts SET http_status = 429, started = now() + (claim - 1) * interval '10 seconds',"
                  " ended = now() + (claim - 1) * interval '10 seconds'")  # fmt: skip
    page = hr.get(f"/jobs/{job}").text
    words = words_of(page)
    assert "Eerste poging: het model had het te druk (429)" in words
    assert "Tweede poging, 10 s later: het model had het te druk (429)" in words
    assert "Dit gaat meestal vanzelf over: voer het opnieuw uit." in words
    assert re.search(r'<details class="raw card" id="job-raw">', page)
    assert "RateLimitError: Error code: 429" in page
    english = words_of(Visitor(world.app, language="en").get(f"/jobs/{job}").text)
    assert "Second try, 10 s later: the model was too busy (429)" in english


def test_a_dead_job_is_run_again_and_the_worker_is_told(world: World, hr: Visitor) -> None:
    job = dies(world, "+31612345641", PermanentError("rejected", "no"))
    world.wake.delays.clear()
    page = hr.follow(hr.post(f"/jobs/{job}/restart"))
    assert "De taak wordt opnieuw uitgevoerd." in words_of(page.text)
    assert world.wake.delays
    world.run()
    assert state_of(world, job) == "done"
    assert "Niet opnieuw uitgevoerd" in words_of(hr.follow(hr.post(f"/jobs/{job}/restart")).text)
    assert "Opnieuw uitgevoerd (ronde 2)" in words_of(hr.get(f"/jobs/{job}").text)
    assert world.rows("SELECT who, what FROM audit_log") == [("console:local", "restart_job")]


def test_a_waiting_job_is_cancelled(world: World, hr: Visitor) -> None:
    job = asks(world, "+31612345651")
    assert "De taak is geannuleerd." in words_of(hr.follow(hr.post(f"/jobs/{job}/cancel")).text)
    assert state_of(world, job) == "closed"
    assert "geannuleerd" in words_of(hr.get(f"/jobs/{job}").text)
    assert "wachtte niet meer" in words_of(hr.follow(hr.post(f"/jobs/{job}/cancel")).text)
    world.run()
    assert world.sent_to("+31612345651") == []


def test_a_dead_job_is_closed_with_a_reason_only(world: World, hr: Visitor) -> None:
    job = dies(world, "+31612345661", PermanentError("rejected", "no"))
    for reason, words in (("", "Geef een reden"), (" \n ", "Geef een reden"), ("x" * 501, "langer dan 500")):
        answer = hr.post(f"/jobs/{job}/close", reason=reason)
        assert (answer.status_code, words in words_of(answer.text)) == (409, True)
        assert state_of(world, job) == "failed"
    job = dies(world, "+31612345662", PermanentError("rejected", "no"))
    assert "De taak is gesloten." in words_of(hr.follow(hr.post(f"/jobs/{job}/close", reason=HOSTILE)).text)
    assert str(job) not in jobs_in(hr.get("/jobs?state=failed").text)
    assert str(job) in jobs_in(hr.get("/jobs?state=closed").text)
    page = hr.get(f"/jobs/{job}").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert hr.post("/jobs/00000000-0000-0000-0000-000000000000/close", reason="x").status_code == 404


def test_the_filtered_ones_are_run_again_less_those_that_may_have_arrived(world: World, hr: Visitor) -> None:
    busy = [dies(world, f"+3161234567{n}", TransientError("throttled", "busy")) for n in range(3)]
    other = dies(world, "+31612345679", PermanentError("rejected", "no"))
    held = asks(world, "+31612345678")
    world.line.before = may_arrive
    world.run()
    world.line.before = lambda _: None
    world.force("UPDATE messages SET status = 'held', held_reason = 'x' WHERE status = 'sending'")
    world.force("UPDATE ai_jobs SET status = 'failed', error_class = 'held' WHERE id = %(id)s", id=held)
    listed = hr.get("/jobs?state=failed&type=autoreply").text
    assert 'href="/api/ops/jobs/restart?state=failed&amp;type=autoreply"' in listed
    question = words_of(hr.get("/jobs/restart?state=failed&error_class=throttled").text)
    assert "3 mislukte taken worden opnieuw uitgevoerd" in question
    assert "Probleem te druk" in question
    assert "5 per seconde: duurt minder dan 1 s" in question
    assert "12 per minuut: duurt 15 s" in question
    every = words_of(hr.get("/jobs/restart?state=failed").text)
    assert "4 mislukte taken worden opnieuw uitgevoerd. 1 taak blijft buiten beschouwing" in every
    assert "Automatisch antwoord te druk 3 Automatisch antwoord misschien verstuurd 1 1" in every
    assert "geweigerd" in words_of(hr.get("/jobs/restart?state=failed&error=NO").text)
    assert {state_of(world, job) for job in (*busy, other, held)} == {"failed"}, "looking does nothing"

    refused = hr.post("/jobs/restart", state="failed", error_class="throttled", rate="20", reason=" ")
    assert refused.status_code == 409
    assert "Geef een reden" in words_of(refused.text)
    assert '<option value="20" selected>' in refused.text
    world.wake.delays.clear()
    began = hr.follow(
        hr.post("/jobs/restart", state="failed", error_class="throttled", rate="100", reason="het werkt <b>")
    )
    assert "Begonnen." in words_of(began.text)
    assert "&lt;b&gt;" in began.text
    assert world.wake.delays == [0.0], "a worker is told"
    carry_on(world)
    (replay,) = world.rows("SELECT id, state FROM replays")
    page = words_of(hr.get(f"/jobs/replays/{replay[0]}").text)
    assert "klaar duurde" in page
    assert "3 van 3 gedaan 3 Opnieuw gestart" in page
    assert "Beheerder op deze computer" in page
    assert "Gekozen op probleem te druk" in page
    assert "Opnieuw uitgevoerd (ronde 2) als deel van: het werkt" in words_of(hr.get(f"/jobs/{busy[0]}").text)
    listed = words_of(hr.get("/jobs/replays").text)
    assert "het werkt <b> Beheerder op deze computer klaar 3 van 3 3 0 100 per seconde zojuist" in listed

    hr.post("/jobs/restart", state="failed", rate="5", reason="alles")
    carry_on(world)
    newest = world.value("SELECT id FROM replays ORDER BY created_at DESC LIMIT 1")
    page = words_of(hr.get(f"/jobs/replays/{newest}").text)
    assert "1 Opnieuw gestart 1 Buiten beschouwing gebleven" in page
    assert "1 taak blijft buiten beschouwing" in page
    assert state_of(world, held) == "failed"
    world.run()
    assert world.sent_to("+31612345678") == []
    nothing = hr.get("/jobs/restart?state=failed").text
    assert "Er is niets om opnieuw uit te voeren." in words_of(nothing)
    assert 'name="rate"' not in nothing
    said = words_of(hr.get("/audit").text)
    assert "Begon mislukte taken opnieuw uit te voeren: alles" in said
    assert "Klaar met opnieuw uitvoeren: alles" in said
    wrongs: list[dict[str, Any]] = [
        {"state": "done"},
        {},
        {"state": "failed", "sid": "SM1"},
        {"state": "failed", "since": "x"},
        {"state": "failed", "rate": "1e9"},
    ]
    for wrong in wrongs:
        assert hr.post("/jobs/restart", **{"reason": "x"} | wrong).status_code == 409, wrong


def test_a_replay_says_what_it_leaves_out_as_its_kind_is_paused(world: World, hr: Visitor) -> None:
    world.execute(
        "INSERT INTO ai_jobs (payload, status, error_class) SELECT '{\"type\": \"embed_record\"}', 'failed', 'timeout'"
        " FROM generate_series(1, 3)"
    )
    world.execute("UPDATE job_types SET paused = true WHERE type = 'embed_record'")
    kind = "3 taken blijven buiten beschouwing: de soort is gepauzeerd of onbekend ("
    assert kind in words_of(hr.get("/jobs/restart?state=failed").text)
    began = hr.post("/jobs/restart", state="failed", rate="100", reason="proef")
    carry_on(world)
    page = words_of(hr.follow(began).text)
    assert "3 van 3" in page
    assert kind in page
    world.execute("UPDATE job_types SET paused = false")
    world.execute("DELETE FROM ai_jobs")


def test_deliveries_are_replayed_to_another_endpoint_and_what_is_none_is_left_out(world: World, hr: Visitor) -> None:
    world.execute("INSERT INTO ai_jobs (payload, status) VALUES ('{\"type\": \"suggest\"}', 'failed')")
    assert 'name="to"' not in hr.get("/jobs/restart?state=failed").text, "nothing here could go there"
    delivery, _ = add_delivery(world, add_endpoint(world, "billing"))
    archive = add_endpoint(world, "archive")
    assert "<option>archive</option>" in hr.get("/jobs/restart?state=failed").text
    wrong = hr.post("/jobs/restart", state="failed", rate="100", reason="verhuisd", to="nowhere")
    assert (wrong.status_code, world.value("SELECT count(*)::int FROM replays")) == (409, 0)
    began = hr.post("/jobs/restart", state="failed", rate="100", reason="verhuisd", to="archive")
    carry_on(world)
    page = words_of(hr.follow(began).text)
    assert "2 van 2" in page
    assert "Naar archive" in page
    assert "1 taak blijft staan: ze is geen bezorging" in page
    assert world.rows("SELECT endpoint_id, replay_of FROM webhook_deliveries WHERE state = 'waiting'") == [
        (archive, delivery)
    ]
    assert "geen bezorging: 1" in words_of(hr.get("/audit").text)
    forget_deliveries(world)


def test_a_replay_is_stopped_and_goes_on(world: World, hr: Visitor) -> None:
    world.execute("INSERT INTO job_types (type) VALUES ('noop') ON CONFLICT DO NOTHING")
    world.execute(
        "INSERT INTO ai_jobs (payload, status, error_class) SELECT '{\"type\": \"noop\"}', 'failed', 'timeout'"
        " FROM generate_series(1, 40)"
    )
    began = hr.post("/jobs/restart", state="failed", rate="0.2", reason="proef")
    path = began.headers["location"].removeprefix("/api/ops").partition("?")[0]
    carry_on(world)
    page = hr.get(path).text
    assert re.search(r'<progress id="progress" value="[1-5]" max="40">', page)
    assert "bezig 12 per minuut, klaar over" in words_of(page)
    assert 'hx-get="/api/ops/live' + path in page, "it refreshes itself"
    assert "wordt niets meer opnieuw gestart" in words_of(hr.follow(hr.post(f"{path}/stop")).text)
    stopped = words_of(hr.get(path).text)
    assert "gestopt door Beheerder op deze computer; wat al gestart was, loopt door." in stopped
    assert "gaat verder waar het was" in words_of(hr.follow(hr.post(f"{path}/resume")).text)
    world.execute("UPDATE replays SET state = 'done', ended_at = now()")
    for action in ("stop", "resume"):
        assert hr.post(f"{path}/{action}").status_code == 409
        assert hr.post(f"/jobs/replays/{UUID(int=7)}/{action}").status_code == 404
    assert hr.get(f"/jobs/replays/{UUID(int=7)}").status_code == 404
    whats = [what for (what,) in world.rows("SELECT what FROM audit_log WHERE target_type = 'replay' ORDER BY id")]
    assert [what for what in whats if what != "replay_jobs"] == ["start_replay", "stop_replay", "resume_replay"]
    world.execute("DELETE FROM ai_jobs")


def test_what_waits_says_when_and_which_try_it_will_be(world: World, hr: Visitor) -> None:
    job = asks(world, "+31612345695")
    assert "zodra er plaats is : eerste poging." in words_of(hr.get(f"/jobs/{job}").text)
    world.force("UPDATE ai_jobs SET attempts = 2, next_run_at = now() + interval '40 seconds'")
    assert re.search(
        r"Wordt uitgevoerd over (40|[1-3]\d) s : derde en laatste poging\.", words_of(hr.get(f"/jobs/{job}").text)
    )
    english = words_of(Visitor(world.app, language="en").get(f"/jobs/{job}").text)
    assert re.search(r"Runs in (40|[1-3]\d) s : third and last try\.", english)
    assert "zo meteen , derde en laatste poging" in words_of(hr.get("/jobs").text)
    world.force("UPDATE ai_jobs SET attempts = 7, max_attempts = 9")
    assert "poging 8." in words_of(hr.get(f"/jobs/{job}").text)


def test_hostile_text_harms_no_page(world: World, hr: Visitor) -> None:
    long_name = HOSTILE + "x" * 50_000
    job = dies(world, "+31612345681", TransientError("throttled", HOSTILE), ProfileName=HOSTILE)
    world.execute("UPDATE conversations SET profile_name = %(name)s", name=long_name)
    world.execute("UPDATE ai_jobs SET error_class = %(x)s, last_error = %(long)s,"
                  " payload = payload || jsonb_build_object('x', %(x)s::text) WHERE id = %(id)s",
                  x=HOSTILE, long=long_name, id=job)  # fmt: skip
    world.execute("UPDATE job_attempts SET error_class = %(x)s, error = %(x)s", x=HOSTILE)
    world.execute("UPDATE conversations SET needs_person_reason = %(x)s", x=HOSTILE)
    world.execute(
        "INSERT INTO ai_jobs (payload, status) VALUES (jsonb_build_object('type', %(x)s::text), 'pending')", x=HOSTILE
    )
    world.execute("UPDATE job_types SET resting_until = now() + interval '1 hour', resting_reason = %(x)s", x=HOSTILE)
    try:
        query = {
            "type": HOSTILE,
            "phone": HOSTILE,
            "error_class": HOSTILE,
            "sid": HOSTILE,
            "notice": HOSTILE,
            "n": HOSTILE,
        }
        pages = [hr.get(path).text for path in ("", "/jobs", f"/jobs/{job}", "/jobs/restart?state=failed")]
        pages += [hr.client.get("/api/ops/jobs", params=query).text, hr.client.get(f"/api/ops/{HOSTILE[:20]}").text]
        pages.append(hr.client.get("/api/ops/jobs/restart", params={"state": "failed", "type": HOSTILE}).text)
    finally:
        world.execute("UPDATE job_types SET resting_until = NULL, resting_reason = NULL")
    for page in pages:
        assert "<script>" not in page
        assert page.count("<script") == 2
        assert "<b onclick" not in page
        for tag in re.findall(
            r"<[^>]*>", page
        ):  # between tags <bdi> ends it; in a value of a field it is what was typed
            assert "\u202e" not in re.sub(r' value="[^"]*"', "", tag), tag
        for opened in re.findall(r"<([a-z]+)[^>]*>[^<]*\u202e", page):
            assert opened in ("bdi", "div", "span"), opened
    assert len(pages[0]) < 60_000
    assert len(pages[1]) < 60_000
    assert "toon alles" in pages[2]
    assert "{{ 7*7 }}{0}%s" in pages[2]
