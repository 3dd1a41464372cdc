"""The console's pages about events: an event's way, and what a person does about it."""

from __future__ import annotations

import json
import re
from uuid import uuid4

import pytest

from shared.db.pool import Database
from shared.queue import replays, replays_drive
from shared.queue.dead_letters import Filter
from tests.e2e.talks import live_address, notice
from tests.fakes.faulty_server import answer
from tests.fakes.gateway import Gateway, Receiver
from tests.fakes.visitor import Visitor
from tests.fakes.webhook_pages import (
    ENDPOINT,
    HOSTILE,
    audited,
    event_of,
    fresh_gateway,
    name_of,
    says,
    words_of,
)


@pytest.fixture
def world(database: Database) -> Gateway:
    return fresh_gateway(database)


@pytest.fixture
def hr(world: Gateway) -> Visitor:
    return Visitor(world.app, language="en")


def test_an_events_way_is_told_try_by_try_until_it_arrives(world: Gateway, hr: Visitor) -> None:
    left = [answer(503, b"down for " + HOSTILE.encode()), answer(200, b"thank you")]
    with Receiver(lambda seen: left.pop(0)) as receiver:
        endpoint = world.endpoint(receiver.url)
        (delivery,) = world.deliveries(endpoint)
        path = event_of(world, delivery)
        assert "First try: as soon as there is room." in says(hr, path)
        world.run()
        world.execute("UPDATE ai_jobs SET next_run_at = now() + interval '25.5 minutes'")
        page = hr.get(path).text
        told = words_of(page)
        assert "Recorded by Antwoord itself" in told
        assert f"To {name_of(world, endpoint)} on its way" in told
        assert re.search(
            r"First try: failed with 503 after (\d+ ms|[\d.]+ s) down for <img src=x onerror=\"alert\(1\)\">", told
        )
        assert "Next try about in 25 min: number 2 of at most 8." in told
        assert "Send again, here" not in told, "it is on its way"
        world.all_due()
        world.run()
        part = hr.get(live_address(page))
        assert part.status_code == 200
        assert re.search(
            r"Second try, (at once|under 1 s later|[\d.]+ s later): accepted \(200\) after", words_of(part.text)
        )
        assert "delivered" in words_of(part.text)
    assert hr.get(live_address(page), **{"X-Seen": re.findall('X-Seen":"([^"]+)"', part.text)[0]}).status_code == 204


def test_in_dutch_too(world: Gateway) -> None:
    with Receiver(answer(503)) as receiver:
        (delivery,) = world.deliveries(world.endpoint(receiver.url))
        world.run()
        world.execute("UPDATE ai_jobs SET next_run_at = now() + interval '25.5 minutes'")
    told = words_of(Visitor(world.app, language="nl").get(event_of(world, delivery)).text)
    assert re.search(r"Eerste poging: mislukt met 503 na (\d+ ms|[\d,]+ s)", told)
    assert "Volgende poging ongeveer over 25 min: nummer 2 van hooguit 8." in told


def test_a_dead_one_says_so_and_is_sent_again_with_who_and_why(world: Gateway, hr: Visitor) -> None:
    with Receiver(answer(422, b"no such person")) as receiver, Receiver() as other:
        endpoint, second = world.endpoint(receiver.url), world.endpoint(other.url)
        (delivery,) = world.deliveries(endpoint)
        path = event_of(world, delivery)
        world.run()
        told = says(hr, path)
        assert "First try: failed with 422 after" in told
        assert "no such person" in told
        assert "Given up: it was not delivered. The reason: refused." in told
        listed = says(hr, "/jobs?state=failed&type=deliver_event")
        assert f"response.completed → {name_of(world, endpoint)}" in listed
        assert f'href="/api/ops{path}"' in hr.get("/jobs?state=failed").text, "dead letters lead to their event"

        resend = f"/webhooks/deliveries/{delivery}/resend"
        assert "Give a reason" in words_of(hr.post(resend, reason=" ").text)
        receiver.says = answer(200)
        world.wake.delays.clear()
        assert notice(hr, hr.post(resend, reason=f"it was mended {HOSTILE}")) == "It is being sent again."
        assert world.wake.delays == [0.0]
        world.run()
        told = says(hr, path)
        assert f"Run again (round 2) by Administrator on this machine: it was mended {HOSTILE}" in told
        assert "First try: accepted (200)" in told

        hr.post(resend, to=name_of(world, second), reason="they want it too")
        world.run()
        told = says(hr, path)
        assert re.search(r"Sent by Administrator on this machine, .*: they want it too", told)
        assert f"To {name_of(world, second)} delivered" in told
        assert re.search(
            rf"Sent again to {name_of(world, second)} by Administrator on this machine, .*: they want it too", told
        )
        assert len(other.arrivals) == 1
    assert audited(world).count("resend_delivery") == 2
    log = says(hr, "/audit")
    assert f"Had a delivery sent again: response.completed → {name_of(world, endpoint)}" in log
    assert hr.get(f"/webhooks/deliveries/{delivery}").headers["location"] == f"/api/ops{path}"


def test_a_replay_is_told_with_its_reason_too(world: Gateway, hr: Visitor) -> None:
    with Receiver(answer(400)) as receiver:
        (delivery,) = world.deliveries(world.endpoint(receiver.url))
        world.run()
        receiver.says = answer(200)
        with world.database.connection() as connection:
            plan = replays.start(connection, Filter(), who="anna", reason="the outage is over", rate=100.0)
        for _ in range(3):
            replays_drive.drive(world.database, lambda due_in: None)
            world.all_due()
            world.run()
    told = says(hr, event_of(world, delivery))
    assert "Run again (round 2) by anna: the outage is over See the replay" in told
    assert f'href="/api/ops/jobs/replays/{plan.id}"' in hr.get(event_of(world, delivery)).text


def test_one_that_was_replayed_elsewhere_says_where_to_and_leads_there(world: Gateway, hr: Visitor) -> None:
    with Receiver(answer(400)) as receiver, Receiver() as other:
        endpoint, second = world.endpoint(receiver.url), world.endpoint(other.url)
        (delivery,) = world.deliveries(endpoint)
        world.run()
        with world.database.connection() as connection:
            replays.start(
                connection, Filter(), who="anna", reason="billing has moved", rate=100.0, to=name_of(world, second)
            )
        replays_drive.drive(world.database, lambda due_in: None)
        world.all_due()
        world.run()
    page, told = hr.get(event_of(world, delivery)).text, says(hr, event_of(world, delivery))
    assert f"To {name_of(world, endpoint)} sent elsewhere" in told
    assert re.search(rf"Sent again to {name_of(world, second)} by anna, .*: billing has moved See how that went", told)
    new = world.value("SELECT id FROM webhook_deliveries WHERE replay_of = %(id)s", id=delivery)
    assert f'href="#way-{new}"' in page
    assert f'id="way-{new}"' in page
    assert "There are no such events." in says(hr, "/webhooks?show=dead")
    assert "sent elsewhere" in says(hr, "/webhooks")


def test_a_resting_endpoint_is_explained_and_shows_on_the_overview(world: Gateway, hr: Visitor) -> None:
    endpoint = world.endpoint("http://127.0.0.1:9/")
    (delivery,) = world.deliveries(endpoint)
    world.execute("UPDATE webhook_endpoints SET failures_in_row = 5, open_until = now() + interval '5 minutes'")
    assert "This endpoint does not answer well. One delivery at a time is tried" in says(hr, event_of(world, delivery))
    assert f"The endpoint {name_of(world, endpoint)} does not answer well" in says(hr, "")
    assert "resting It failed 5 times in a row" in says(hr, f"/webhooks/endpoints/{endpoint}")
    world.execute("UPDATE job_types SET paused = true WHERE type = 'deliver_event'")
    assert "This kind of job is paused" in says(hr, event_of(world, delivery))
    world.execute("UPDATE job_types SET paused = false")


def held(world: Gateway) -> str:
    event, endpoint = uuid4(), world.endpoint("http://127.0.0.1:9/")
    world.execute(
        "INSERT INTO webhook_events (id, type, data, body, held_reason) VALUES (%(id)s, 'response.completed', %(data)s, '{}',"
        " '1.234 is in no source')", id=event, data=json.dumps({"text": HOSTILE}),
    )  # fmt: skip
    world.execute(
        "INSERT INTO webhook_deliveries (id, event_id, endpoint_id, state) VALUES (gen_random_uuid(), %(event)s, %(endpoint)s,"
        " 'held')", event=event, endpoint=endpoint,
    )  # fmt: skip
    return f"/webhooks/events/{event}"


@pytest.mark.parametrize(
    ("action", "said", "told", "state"),
    [
        ("release", "Released: it is being delivered.", "Released", "waiting"),
        ("reject", "Rejected: it goes nowhere.", "Rejected: it goes nowhere", "rejected"),
    ],
    ids=["release", "reject"],
)
def test_a_held_event_waits_for_a_person_who_decides_with_a_reason(
    world: Gateway, hr: Visitor, action: str, said: str, told: str, state: str
) -> None:
    path = held(world)
    assert "1 event waits for a person to decide. To the events" in says(hr, "")
    assert "response.completed Antwoord itself waits for a person" in says(hr, "/webhooks?show=held")
    page = says(hr, path)
    assert "Held: its text did not pass the check 1.234 is in no source" in page
    assert hr.get(f"{path}/{action}").status_code == 405
    assert "Give a reason" in words_of(hr.post(f"{path}/{action}", reason="").text)
    assert notice(hr, hr.post(f"{path}/{action}", reason="I have read it")) == said
    page = says(hr, path)
    assert re.search(rf"{told} .* by Administrator on this machine: I have read it", page)
    assert world.value("SELECT state FROM webhook_deliveries") == state
    assert "somebody else has decided" in words_of(hr.post(f"{path}/{action}", reason="again").text)
    assert audited(world)[1:] == [f"{action}_event"]
    assert f"{'Released' if action == 'release' else 'Rejected'} a held event: response.completed" in says(hr, "/audit")


def test_the_list_is_filtered_and_paged_and_survives_any_address(world: Gateway, hr: Visitor) -> None:
    assert "No events yet." in says(hr, "/webhooks")
    world.execute("INSERT INTO webhook_events (id, type, subject, data) SELECT gen_random_uuid(),"
                  " CASE WHEN n %% 2 = 0 THEN 'even' ELSE 'odd' END, %(subject)s, '{}' FROM generate_series(1, 60) n",
                  subject=HOSTILE)  # fmt: skip
    page = hr.get("/webhooks")
    assert page.text.count('<tr id="event-') == 50
    older = re.search(r'href="/api/ops(/webhooks\?before=\d+)" rel="next"', page.text)
    assert older
    assert hr.get(older[1]).text.count('<tr id="event-') == 10
    assert hr.get("/webhooks?type=even").text.count('<tr id="event-') == 30
    assert hr.get("/webhooks?source=antwoord&type=odd").text.count('<tr id="event-') == 30
    assert "There are no such events." in says(hr, "/webhooks?source=nobody")
    assert "goes nowhere" in says(hr, "/webhooks")
    for broken in ("?show=x", "?before=-1", "?type=%00", "?source=%ff", "?before=99999999999999999999"):
        assert hr.get(f"/webhooks{broken}").status_code in (200, 400), broken
        assert hr.get(f"/live/webhooks{broken}").status_code in (200, 400), broken
    for path in (f"/webhooks/events/{uuid4()}", f"/webhooks/deliveries/{uuid4()}", f"/webhooks/endpoints/{uuid4()}",
                 f"/webhooks/sources/{uuid4()}", "/webhooks/events/x", f"/live/webhooks/events/{uuid4()}"):  # fmt: skip
        assert hr.get(path).status_code == 404, path
    assert hr.post(f"/webhooks/deliveries/{uuid4()}/resend", reason="x").status_code == 404


def test_nothing_is_done_without_the_token(world: Gateway, hr: Visitor) -> None:
    endpoint = world.endpoint("http://127.0.0.1:9/")
    (delivery,) = world.deliveries(endpoint)
    before = audited(world)
    hr.csrf = "x"
    for path in ("endpoints/new", f"endpoints/{endpoint}/change", f"endpoints/{endpoint}/test", f"endpoints/{endpoint}/rotate",
                 f"endpoints/{endpoint}/disable", f"endpoints/{endpoint}/enable", "sources/new", f"sources/{uuid4()}/rotate",
                 f"deliveries/{delivery}/resend", f"events/{uuid4()}/release", f"events/{uuid4()}/reject"):  # fmt: skip
        assert hr.post(f"/webhooks/{path}", **ENDPOINT).status_code == 403, path
    assert audited(world) == before
