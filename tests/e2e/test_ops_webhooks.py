"""The console's pages about webhooks over HTTP: an event's way and what a person does about it, endpoints, sources, figures."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.db.pool import Database
from shared.queue import replays
from shared.queue.dead_letters import Filter
from shared.signature import verify_standard
from tests.e2e.talks import live_address, notice
from tests.fakes.faulty_server import answer
from tests.fakes.gateway import SECRET, Gateway, Receiver
from tests.fakes.visitor import HERE, Visitor
from tests.fakes.visitor import words_of as spaced

HOSTILE = '<img src=x onerror="alert(1)">'
ENDPOINT: dict[str, Any] = {
    "name": "payroll", "url": "http://127.0.0.1:9/hook", "events": "response.* batch.completed", "rate": "2,5",
    "concurrency": "3", "timeout": "5", "schedule": "decorrelated", "signature_header": "X-Sig",
}  # fmt: skip
SOURCE: dict[str, Any] = {"name": "openai", "scheme": "standard", "id_from": "header", "normaliser": "openai"}


@pytest.fixture
def world(database: Database) -> Gateway:
    found = Gateway(database, OPS_AUTH="local", PUBLIC_BASE_URL=HERE)
    found.execute("TRUNCATE audit_log")
    return found


@pytest.fixture
def hr(world: Gateway) -> Visitor:
    return Visitor(world.app, language="en")


def words_of(page: str) -> str:
    """What a page says, without the spaces that taking out tags leaves before a full stop."""
    return re.sub(r" ([.,:;])", r"\1", spaced(page))


def event_of(world: Gateway, delivery: UUID) -> str:
    return f"/webhooks/events/{world.value('SELECT event_id FROM webhook_deliveries WHERE id = %(id)s', id=delivery)}"


def name_of(world: Gateway, endpoint: UUID) -> str:
    return str(world.state(endpoint, "name"))


def says(hr: Visitor, path: str) -> str:
    page = hr.get(path)
    assert page.status_code == 200, page.text
    assert "<img" not in page.text, "what others wrote is escaped"
    return words_of(page.text)


def audited(world: Gateway) -> list[str]:
    return [what for (what,) in world.rows("SELECT what FROM audit_log ORDER BY id")]


def secret_in(page: str) -> str:
    found = re.search(r'id="shown-secret" class="mono" value="([^"]+)"', page)
    assert found, words_of(page)
    return found[1]


# ---- an event


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
            r"First try: failed with 503 after (\d+ ms|0\.\d s) down for <img src=x onerror=\"alert\(1\)\">", told
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
    assert re.search(r"Eerste poging: mislukt met 503 na (\d+ ms|0,\d s)", told)
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
            replays.drive(world.database, lambda due_in: None)
            world.all_due()
            world.run()
    told = says(hr, event_of(world, delivery))
    assert "Run again (round 2) by anna: the outage is over See the replay" in told
    assert f'href="/api/ops/jobs/replays/{plan.id}"' in hr.get(event_of(world, delivery)).text


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


# ---- endpoints


def test_an_endpoint_is_added_and_its_secret_is_shown_once(world: Gateway, hr: Visitor) -> None:
    assert "There are no endpoints yet." in says(hr, "/webhooks/endpoints")
    made = hr.post("/webhooks/endpoints/new", **ENDPOINT, headers_="", headers={"Accept": "text/html"})
    assert made.status_code == 200
    secret = secret_in(made.text)
    assert "no-store" in made.headers["cache-control"]
    assert "shown this once only" in words_of(made.text)
    (row,) = world.rows(
        "SELECT id, events, rate, concurrency, timeout_seconds, schedule, signature_header FROM webhook_endpoints"
    )
    assert row[1:] == (["response.*", "batch.completed"], 2.5, 3, 5.0, "decorrelated", "X-Sig")
    for path in (f"/webhooks/endpoints/{row[0]}", "/webhooks/endpoints", "/audit"):
        assert secret not in hr.get(path).text
        assert "payroll" in hr.get(path).text
    told = says(hr, f"/webhooks/endpoints/{row[0]}")
    assert "well Its last answer was good." in told
    assert "at most 2.5 a second, 3 at once" in told
    assert "Added an endpoint: payroll" in says(hr, "/audit")
    assert hr.post("/webhooks/endpoints/new", **ENDPOINT).status_code == 409


@pytest.mark.parametrize(
    ("typed", "sentence", "field"),
    [
        ({"name": "Loon!"}, "De naam is 1 tot 63 kleine letters", "name"),
        ({"url": "http://10.0.0.1/x"}, "Naar dit adres mag niets verstuurd worden.", "url"),
        ({"url": "javascript:alert(1)"}, "Naar dit adres mag niets verstuurd worden.", "url"),
        ({"events": "a*b"}, "Een van de soorten klopt niet", "events"),
        ({"rate": "snel"}, "“Hooguit per seconde” is een getal van 0,0003 tot 1000, of leeg.", "rate"),
        ({"rate": "inf"}, "“Hooguit per seconde” is een getal van 0,0003 tot 1000, of leeg.", "rate"),
        ({"concurrency": "65"}, "“Tegelijk” is een heel getal van 1 tot 64.", "concurrency"),
        ({"concurrency": "²"}, "“Tegelijk” is een heel getal van 1 tot 64.", "concurrency"),
        ({"timeout": "0"}, "“Wacht” is 0,1 tot 50 seconden.", "timeout"),
        ({"signature_header": "content-type"}, "De header van de handtekening kan niet zo heten.", "signature_header"),
    ],
    ids=["name", "private", "script", "types", "words", "infinite", "many", "superscript", "no-time", "header"],
)
def test_what_cannot_be_is_said_in_words_and_what_was_typed_is_kept(
    world: Gateway, typed: dict[str, str], sentence: str, field: str
) -> None:
    hr = Visitor(world.app, language="nl")
    refused = hr.post("/webhooks/endpoints/new", **ENDPOINT | typed)
    assert refused.status_code == 409
    assert sentence in words_of(refused.text)
    assert re.search(rf'id="{field}"[^>]* aria-invalid="true"', refused.text)
    assert f'value="{typed.get("url", ENDPOINT["url"])}"' in refused.text
    assert world.value("SELECT count(*) FROM webhook_endpoints") == 0


def test_the_values_of_headers_and_secrets_never_come_back(world: Gateway, hr: Visitor) -> None:
    refused = world_post(
        hr, ENDPOINT | {"name": "A", "headers": "X-Token: hush-hush-123", "secret": "my-own-secret-0123456789"}
    )
    assert refused.status_code == 409
    assert "hush" not in refused.text
    assert "my-own-secret" not in refused.text
    broken = world_post(hr, ENDPOINT | {"headers": "X-Token hush-hush-123"})
    assert "Each line of the extra headers is a name, a colon and a value." in words_of(broken.text)
    made = world_post(
        hr, ENDPOINT | {"headers": "X-Token: hush-hush-123\nX-Tenant: 12", "secret": "my-own-secret-0123456789"}
    )
    assert secret_in(made.text) == "my-own-secret-0123456789"
    (endpoint,) = world.rows("SELECT id, header_names, version FROM webhook_endpoints")
    assert endpoint[1] == ["X-Token", "X-Tenant"]
    path = f"/webhooks/endpoints/{endpoint[0]}"
    page = hr.get(path)
    assert "There are: X-Token, X-Tenant." in words_of(page.text)
    assert "hush" not in page.text + hr.get("/audit").text
    kept = hr.client.post(f"/api/ops{path}/change", data=form(hr, ENDPOINT | {"seen": endpoint[2]}), headers=SENT)
    assert kept.status_code == 303
    assert world.value("SELECT header_names FROM webhook_endpoints") == ["X-Token", "X-Tenant"]
    seen = world.value("SELECT version FROM webhook_endpoints")
    dropped = hr.client.post(
        f"/api/ops{path}/change", data=form(hr, ENDPOINT | {"seen": seen, "drops_headers": "1"}), headers=SENT
    )
    assert dropped.status_code == 303
    assert world.value("SELECT header_names FROM webhook_endpoints") == []


SENT = {"Origin": "null", "Sec-Fetch-Site": "same-origin"}


def form(hr: Visitor, fields: dict[str, Any]) -> dict[str, Any]:
    return {"csrf": hr.csrf} | fields


def world_post(hr: Visitor, fields: dict[str, Any]) -> Any:
    """Post the form of a new endpoint; `headers` is one of its fields."""
    return hr.client.post("/api/ops/webhooks/endpoints/new", data=form(hr, fields), headers=SENT)


def test_an_endpoint_is_changed_from_what_was_seen(world: Gateway, hr: Visitor) -> None:
    endpoint = world.endpoint("http://127.0.0.1:9/")
    path, seen = f"/webhooks/endpoints/{endpoint}", world.state(endpoint, "version")
    wanted = {key: value for key, value in ENDPOINT.items() if key != "name"}
    assert notice(hr, hr.post(f"{path}/change", **wanted, seen=seen)) == "Saved; it counts from the next delivery on."
    assert world.state(endpoint, "concurrency") == "3"
    stale = hr.post(f"{path}/change", **wanted | {"concurrency": "9"}, seen=seen)
    assert stale.status_code == 409
    assert "Somebody else has changed this meanwhile" in words_of(stale.text)
    assert 'id="concurrency" name="concurrency" value="3"' in stale.text, "the form shows how it is now"
    wrong = hr.post(f"{path}/change", **wanted | {"timeout": "x"}, seen=world.state(endpoint, "version"))
    assert 'value="x"' in wrong.text
    assert "Changed an endpoint" in says(hr, "/audit")


def test_a_test_shows_what_the_endpoint_answered(world: Gateway, hr: Visitor) -> None:
    with Receiver(answer(401, f"who are you {HOSTILE}".encode())) as receiver:
        endpoint = world.endpoint(receiver.url)
        path = f"/webhooks/endpoints/{endpoint}"
        told = hr.post(f"{path}/test")
        assert told.status_code == 200
        assert "<img" not in told.text
        assert re.search(
            r"Test does not work failed with 401 after .* It answered: who are you <img", words_of(told.text)
        )
        receiver.says = answer(204)
        told = hr.post(f"{path}/test")
        assert re.search(r"Test works accepted \(204\) after .* It answered: nothing", words_of(told.text))
        seen = receiver.arrivals[-1].seen
        assert json.loads(seen.body)["type"] == "ping"
        verify_standard(
            message_id=seen.headers["webhook-id"], timestamp=seen.headers["webhook-timestamp"],
            signature=seen.headers["webhook-signature"], body=seen.body, secrets=[SECRET],
            now=float(seen.headers["webhook-timestamp"]),
        )  # fmt: skip
    world.execute("UPDATE webhook_endpoints SET url = 'http://127.0.0.1:9/'")
    told = hr.post(f"{path}/test")
    assert "no connection could be made to the other side" in words_of(told.text)
    assert audited(world).count("test_endpoint") == 3
    assert "Tested an endpoint" in says(hr, "/audit")


def test_a_rotation_shows_the_new_secret_once_and_both_sign_for_a_while(world: Gateway, hr: Visitor) -> None:
    endpoint = world.endpoint("http://127.0.0.1:9/")
    path = f"/webhooks/endpoints/{endpoint}"
    made = hr.post(f"{path}/rotate", overlap="168")
    secret = secret_in(made.text)
    assert "The old secret stays good for 7 days." in words_of(made.text)
    assert secret not in hr.get(path).text
    assert "Two secrets sign until" in says(hr, path)
    again = hr.post(f"{path}/rotate", overlap="24")
    assert again.status_code == 409
    assert "Two secrets sign already" in words_of(again.text)
    last = hr.post(f"{path}/rotate", overlap="0")
    assert secret_in(last.text) not in (secret, SECRET)
    assert "The old secret is not good any more." in words_of(last.text)
    assert audited(world).count("rotate_endpoint") == 2


def test_an_endpoint_is_disabled_with_a_reason_and_enabled(world: Gateway, hr: Visitor) -> None:
    endpoint = world.endpoint("http://127.0.0.1:9/")
    path = f"/webhooks/endpoints/{endpoint}"
    (delivery,) = world.deliveries(endpoint)
    assert "nothing is delivered" in notice(hr, hr.post(f"{path}/disable", reason=f"moved {HOSTILE}"))
    told = says(hr, path)
    assert f"moved {HOSTILE}" in told
    assert "disabled Nothing is delivered to it." in told
    assert "This endpoint is disabled: it will be given up" in says(hr, event_of(world, delivery))
    assert "It was disabled already." in words_of(hr.post(f"{path}/disable", reason="x").text)
    world.run()
    assert "The reason: endpoint disabled." in says(hr, event_of(world, delivery))
    assert notice(hr, hr.post(f"{path}/enable")) == "It is delivered to again."
    assert "It was enabled already" in words_of(hr.post(f"{path}/enable").text)
    assert audited(world)[-2:] == ["disable_endpoint", "enable_endpoint"]


def test_without_the_key_no_secret_can_be_made(database: Database) -> None:
    world = Gateway(database, OPS_AUTH="local", PUBLIC_BASE_URL=HERE, SECRETS_KEY="")
    hr = Visitor(world.app, language="en")
    for path, fields in (("endpoints", ENDPOINT), ("sources", SOURCE)):
        refused = hr.post(f"/webhooks/{path}/new", **fields)
        assert refused.status_code == 409
        assert "SECRETS_KEY is not set, so secrets cannot be stored." in words_of(refused.text)


def test_health_and_figures_stand_beside_each_endpoint(world: Gateway, hr: Visitor) -> None:
    left = [answer(500), answer(200), answer(200), answer(200), answer(400)]
    with Receiver(lambda seen: left.pop(0)) as receiver:
        endpoint = world.endpoint(receiver.url, concurrency=1)
        world.deliveries(endpoint, 4)
        for _ in range(4):
            world.app.worker.poll_once(1)
        world.all_due()
        world.run()
    row = re.search(rf'<tr id="endpoint-{endpoint}">.*?</tr>', hr.get("/webhooks/endpoints").text, re.DOTALL)
    assert row
    assert re.search(r"75% \d+ ms 0 1$", words_of(row[0])), words_of(row[0])
    page = hr.get("/webhooks/figures?period=hour")
    told = words_of(page.text)
    assert "75% right at the first try of 4 deliveries" in told
    assert "1.00 tries on average at most 1; 0 wait for another" in told
    assert "1 not delivered 0.0" in told
    assert re.search(r"\d+ ms for 95 of 100 half within \d+ ms, 99 of 100 within \d+ ms", told)
    assert page.text.count('<svg class="chart"') == 4
    assert "style=" not in page.text
    alone = words_of(hr.get(f"/webhooks/figures?endpoint={endpoint}&period=hour").text)
    assert "75% right at the first try of 4 deliveries" in alone
    nothing = words_of(hr.get("/webhooks/figures?since=2020-01-01&until=2020-01-31").text)
    assert "– right at the first try of 0 deliveries" in nothing
    assert hr.get(live_address(page.text)).status_code in (200, 204)


def test_figures_of_any_period_and_of_none(world: Gateway, hr: Visitor) -> None:
    for query in ("", "?period=week", "?period=month", "?since=2026-01-01", "?until=2026-01-31", f"?endpoint={uuid4()}",
                  "?since=0001-01-01&until=9999-12-30", "?since=2019-01-01"):  # fmt: skip
        assert hr.get(f"/webhooks/figures{query}").status_code == 200, query
    for query in ("?period=x", "?since=2026-02-01&until=2026-01-01", "?since=x", "?until=9999-12-31", "?endpoint=x"):
        assert hr.get(f"/webhooks/figures{query}").status_code == 400, query


# ---- sources


def test_a_source_is_added_rotated_disabled_and_enabled(world: Gateway, hr: Visitor) -> None:
    assert "There are no sources yet." in says(hr, "/webhooks/sources")
    made = hr.post("/webhooks/sources/new", **SOURCE)
    secret = secret_in(made.text)
    assert f'value="{HERE}/api/events/openai"' in made.text
    path = f"/webhooks/sources/{world.value('SELECT id FROM webhook_sources')}"
    page = hr.get(path)
    assert secret not in page.text + hr.get("/audit").text + hr.get("/webhooks/sources").text
    assert "Standard Webhooks (OpenAI, Azure OpenAI)" in words_of(page.text)
    assert f"{HERE}/api/events/openai" in says(hr, "/webhooks/sources")

    own = hr.post(f"{path}/rotate", overlap="24", secret="whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
    assert secret_in(own.text) == SECRET
    assert "Two secrets are good until" in says(hr, path)
    assert "Two secrets are good already" in words_of(hr.post(f"{path}/rotate", overlap="1").text)
    assert "whsec_ and base64" in words_of(hr.post(f"{path}/rotate", overlap="0", secret="whsec_&&&").text)
    assert secret_in(hr.post(f"{path}/rotate", overlap="0").text).startswith("whsec_")

    assert "nothing is taken in" in notice(hr, hr.post(f"{path}/disable", reason="not used"))
    assert "Since" in says(hr, path)
    assert "It was disabled already." in words_of(hr.post(f"{path}/disable", reason="x").text)
    assert "taken in from it again" in notice(hr, hr.post(f"{path}/enable"))
    assert audited(world) == ["add_source", "rotate_source", "rotate_source", "disable_source", "enable_source"]
    log = says(hr, "/audit")
    assert "Gave a source a new secret: openai" in log


@pytest.mark.parametrize(
    ("typed", "sentence", "field"),
    [
        ({"name": "Open AI"}, "The name is 1 to 63 small letters", "name"),
        ({"id_from": "somewhere"}, "The id is in header", "id_from"),
        ({"signature_header": "X-Sig"}, "only possible with t=…,v1=…", "signature_header"),
        ({"paths": "type=/a"}, "or it is not read as any JSON", "paths"),
        ({"paths": "type", "normaliser": "json"}, "Each line is a name, = and a place.", "paths"),
        ({"secret": "whsec_&"}, "whsec_ and base64", "secret"),
    ],
    ids=["name", "id", "header", "places", "line", "secret"],
)
def test_a_source_that_cannot_be_is_refused_in_words(
    world: Gateway, hr: Visitor, typed: dict[str, str], sentence: str, field: str
) -> None:
    refused = hr.post("/webhooks/sources/new", **SOURCE | typed)
    assert refused.status_code == 409
    assert sentence in words_of(refused.text)
    assert re.search(rf'id="{field}"[^>]* aria-invalid="true"', refused.text)
    assert "whsec_&amp;" not in refused.text
    assert world.value("SELECT count(*) FROM webhook_sources") == 0


def test_a_source_of_any_json_names_its_places(world: Gateway, hr: Visitor) -> None:
    made = hr.post("/webhooks/sources/new", **SOURCE | {
        "name": "planner", "scheme": "t-v1", "normaliser": "json", "id_from": "pointer:/id", "signature_header": "X-Sig",
        "paths": "type=/kind\r\ntext=/answer\r\n",
    })  # fmt: skip
    assert secret_in(made.text)
    assert world.value("SELECT paths FROM webhook_sources") == {"type": "/kind", "text": "/answer"}
    path = f"/webhooks/sources/{world.value('SELECT id FROM webhook_sources')}"
    assert "text = /answer" in says(hr, path)
    assert "pointer:/id" in says(hr, path)
