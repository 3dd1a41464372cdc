"""The console's pages about endpoints and sources of webhooks over HTTP, and their figures."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any
from uuid import uuid4

import pytest

from shared.db.pool import Database
from shared.signature import verify_standard
from tests.e2e.talks import live_address, notice
from tests.fakes.faulty_server import answer
from tests.fakes.gateway import SECRET, Gateway, Receiver
from tests.fakes.visitor import HERE, Visitor
from tests.fakes.webhook_pages import (
    ENDPOINT,
    HOSTILE,
    audited,
    event_of,
    fresh_gateway,
    says,
    secret_in,
    words_of,
)

TOOK = r"(?:\d+ ms|[\d.]+ s)"  # however busy this machine is
RETRY_LATER = "UPDATE ai_jobs SET next_run_at = now() + interval '1 hour' WHERE status = 'pending' AND attempts > 0"
SOURCE: dict[str, Any] = {"name": "openai", "scheme": "standard", "id_from": "header", "normaliser": "openai"}


@pytest.fixture
def world(database: Database) -> Gateway:
    return fresh_gateway(database)


@pytest.fixture
def hr(world: Gateway) -> Visitor:
    return Visitor(world.app, language="en")


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
        ({"url": "https://💩.example/"}, "Dit adres kan niet bestaan", "url"),
        ({"url": "javascript:alert(1)"}, "Naar dit adres mag niets verstuurd worden.", "url"),
        ({"events": "a*b"}, "Een van de soorten klopt niet", "events"),
        ({"rate": "snel"}, "“Hooguit per seconde” is een getal van 0,0003 tot 1000, of leeg.", "rate"),
        ({"rate": "inf"}, "“Hooguit per seconde” is een getal van 0,0003 tot 1000, of leeg.", "rate"),
        ({"concurrency": "65"}, "“Tegelijk” is een heel getal van 1 tot 64.", "concurrency"),
        ({"concurrency": "²"}, "“Tegelijk” is een heel getal van 1 tot 64.", "concurrency"),
        ({"timeout": "0"}, "“Wacht” is 0,1 tot 50 seconden.", "timeout"),
        ({"signature_header": "content-type"}, "De header van de handtekening kan niet zo heten.", "signature_header"),
    ],
    ids=["name", "private", "emoji", "script", "types", "words", "infinite", "many", "square", "no-time", "header"],
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
    old = hr.post(f"{path}/change", **wanted | {"timeout": "x"}, seen=seen)
    assert f'name="seen" value="{seen}"' in old.text, "put right, it still undoes nobody's change"
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
            world.execute(RETRY_LATER)  # behind the others, however slow those are
        world.all_due()
        world.run()
    row = re.search(rf'<tr id="endpoint-{endpoint}">.*?</tr>', hr.get("/webhooks/endpoints").text, re.DOTALL)
    assert row
    assert re.search(rf"75% {TOOK} 0 1$", words_of(row[0])), words_of(row[0])
    page = hr.get("/webhooks/figures?period=hour")
    told = words_of(page.text)
    assert "75% right at the first try of 4 deliveries" in told
    assert "1.00 tries on average at most 1; 0 wait for another" in told
    assert "1 not delivered 0.0" in told
    assert re.search(f"{TOOK} for 95 of 100 half within {TOOK}, 99 of 100 within {TOOK}", told)
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


def change_form(page: str) -> dict[str, Any]:
    """What stands in a source's form, as a browser would send it."""
    form = page.partition('/change"')[2].partition("</form>")[0]
    typed = dict(re.findall(r'<input [^>]*?name="(\w+)"[^>]*? value="([^"]*)"', form))
    places = re.search(r"<textarea[^>]*>([^<]*)", form)
    chosen = re.search(r'<option value="(\w+)" selected', form)
    assert places
    assert chosen
    return {key: unescape(value) for key, value in typed.items() if key != "csrf"} | {
        "paths": unescape(places[1]),
        "normaliser": chosen[1],
    }


PLANNER: dict[str, Any] = {
    "name": "planner", "scheme": "t-v1", "normaliser": "json", "id_from": "pointer:/id", "signature_header": "X-Sig",
    "paths": "type=/kind\ntext=/answer", "tolerance": "60", "size_limit": "2048",
}  # fmt: skip


def test_a_source_is_changed_from_what_was_seen(world: Gateway, hr: Visitor) -> None:
    secret = secret_in(hr.post("/webhooks/sources/new", **PLANNER).text)
    source, sealed = world.rows("SELECT id, secret FROM webhook_sources")[0]
    path = f"/webhooks/sources/{source}"
    first = hr.get(path)
    typed = change_form(first.text)
    assert {key: typed[key] for key in ("id_from", "signature_header", "tolerance", "size_limit", "normaliser")} == {
        key: PLANNER[key] for key in ("id_from", "signature_header", "tolerance", "size_limit", "normaliser")
    }
    assert typed["paths"].splitlines() == ["text=/answer", "type=/kind"]
    assert "2,048 bytes; signed at most" in words_of(first.text)
    assert "counts as new when the sender repeats it" in words_of(first.text)

    sent = hr.post(f"{path}/change", **typed | {"tolerance": "90", "id_from": "header:X-Id", "paths": ""})
    assert notice(hr, sent) == "Saved; it counts within five seconds."
    assert world.rows(
        "SELECT tolerance_seconds, id_from, paths, size_limit, signature_header, normaliser, secret FROM webhook_sources"
    ) == [(90, "header:X-Id", {}, 2048, "X-Sig", "json", sealed)]
    stale = hr.post(f"{path}/change", **typed | {"size_limit": "4096"})
    assert stale.status_code == 409
    assert "Somebody else has changed this meanwhile" in words_of(stale.text)
    assert change_form(stale.text)["tolerance"] == "90", "the form shows how it is now"
    assert world.value("SELECT size_limit FROM webhook_sources") == 2048
    assert audited(world) == ["add_source", "change_source"]
    line = says(hr, "/audit")
    assert "Changed a source: planner id from: pointer:/id → header:X-Id · tolerance (s): 60 → 90" in line
    assert secret not in line + hr.get(path).text


@pytest.mark.parametrize(
    ("wrong", "sentence", "field"),
    [
        ({"tolerance": "soon"}, "De speling is 1 tot 86.400 seconden.", "tolerance"),
        ({"size_limit": "99999999"}, "De grens is 1 byte tot 10 MB.", "size_limit"),
        ({"id_from": "somewhere"}, "Het id staat in header", "id_from"),
        ({"signature_header": "X Sig"}, "De header van de handtekening is de naam", "signature_header"),
        ({"normaliser": "openai"}, "of ze wordt niet als willekeurige JSON gelezen", "paths"),
        ({"paths": "type"}, "Elke regel is een naam", "paths"),
    ],
    ids=["tolerance", "size", "id", "header", "places", "line"],
)
def test_a_change_that_cannot_be_comes_back_as_it_was_typed(
    world: Gateway, wrong: dict[str, str], sentence: str, field: str
) -> None:
    hr = Visitor(world.app, language="nl")
    hr.post("/webhooks/sources/new", **PLANNER)
    path = f"/webhooks/sources/{world.value('SELECT id FROM webhook_sources')}"
    typed = change_form(hr.get(path).text) | wrong
    refused = hr.post(f"{path}/change", **typed)
    assert refused.status_code == 409
    assert sentence in words_of(refused.text)
    assert re.search(rf'id="{field}"[^>]* aria-invalid="true"', refused.text)
    again = change_form(refused.text)
    assert again.pop("paths").splitlines() == typed.pop("paths").splitlines()
    assert again == typed
    assert audited(world) == ["add_source"]


def test_a_form_that_is_mended_still_knows_what_it_was_filled_in_over(world: Gateway, hr: Visitor) -> None:
    hr.post("/webhooks/sources/new", **PLANNER)
    path = f"/webhooks/sources/{world.value('SELECT id FROM webhook_sources')}"
    typed = change_form(hr.get(path).text)
    world.execute("UPDATE webhook_sources SET size_limit = 4096")
    refused = hr.post(f"{path}/change", **typed | {"tolerance": "soon"})
    assert "The tolerance is 1 to 86,400 seconds." in words_of(refused.text)
    mended = hr.post(f"{path}/change", **change_form(refused.text) | {"tolerance": "90"})
    assert "Somebody else has changed this meanwhile" in words_of(mended.text)
    assert world.value("SELECT size_limit FROM webhook_sources") == 4096


def test_a_source_that_is_not_there_cannot_be_changed(world: Gateway, hr: Visitor) -> None:
    assert hr.post(f"/webhooks/sources/{uuid4()}/change", tolerance="3").status_code == 404
    made = hr.post("/webhooks/sources/new", **SOURCE)
    assert secret_in(made.text)
    page = hr.get(f"/webhooks/sources/{world.value('SELECT id FROM webhook_sources')}").text
    assert "signature_header" not in change_form(page), "only t-v1 has one to choose"
    assert 'value=""' not in page.partition('id="normaliser"')[2].partition("</select>")[0]
