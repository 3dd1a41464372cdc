"""The phone page in a real browser, with the Twilio stand-in and a small application that answers."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from local.phone.people import Person
from local.phone.server import phone_routes
from local.standins.azure_openai import OpenAIStandIn
from local.standins.twilio import TwilioStandIn
from local.standins.twilio_callbacks import Step
from tests.e2e.browser import chromium
from tests.e2e.receiver import Received, Receiver
from tests.e2e.twilio_client import client_of
from tests.fakes.eventually import eventually

PEOPLE = [Person("Sam de Boer", "+319700000001", "nl"), Person("Robin Hill", "+319700000002", "en")]
ANSWER = "Bel vóór <b>8:30</b> uur. [1]\n\nBron: [1] Personeelshandboek › Ziekte"


class Application(Receiver):
    """Answers the first person with typing and one answer, each when `go_on` allows it."""

    def __init__(self) -> None:
        super().__init__(on_inbound=self._answer_later)
        self.go_on = threading.Event()
        self.jobs: list[dict[str, Any]] = []
        self.kills = 0
        self.twilio = TwilioStandIn(steps=(Step("sent", 0.01), Step("delivered", 0.01)))
        self.openai = OpenAIStandIn()

    def kill(self) -> None:
        self.kills += 1

    def _answer_later(self, received: Received) -> None:
        if received.form["From"] == f"whatsapp:{PEOPLE[0].phone}":
            threading.Thread(target=self._answer, args=(received.form,), daemon=True).start()

    def _answer(self, form: dict[str, str]) -> None:
        client = client_of(self.twilio.url, self.twilio.account_sid, self.twilio.auth_token)
        self.go_on.wait(60)
        client.messaging.v2.typing_indicator.create(channel="whatsapp", message_id=form["MessageSid"])
        self.go_on.clear()
        self.go_on.wait(60)
        client.messages.create(to=form["From"], from_=form["To"], body=ANSWER)


@pytest.fixture(scope="module")
def application() -> Iterator[Application]:
    app = Application()
    app.twilio.add_routes(phone_routes(app.twilio, app.openai, PEOPLE, lambda: app.jobs, app.kill))
    with app, app.twilio, app.openai:
        app.twilio.webhook_url = app.inbound_url
        yield app


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser: Browser, application: Application) -> Iterator[Page]:
    application.go_on.clear()
    context = browser.new_context(viewport={"width": 360, "height": 740}, locale="nl-NL")
    context.set_default_timeout(30_000)
    shown = context.new_page()
    problems: list[str] = []
    shown.on("pageerror", lambda error: problems.append(str(error)))
    shown.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    shown.goto(f"{application.twilio.url}/")
    shown.get_by_test_id("chip").first.wait_for()
    yield shown
    context.close()
    assert problems == []


def test_a_question_its_ticks_typing_and_the_answer(page: Page, application: Application) -> None:
    page.get_by_test_id("composer").fill("Hoe laat <i>bellen</i>?")
    page.get_by_test_id("composer").press("Enter")
    mine = page.locator("[data-direction=mine]")
    expect(mine).to_contain_text("Hoe laat <i>bellen</i>?")
    expect(mine).to_have_attribute("data-status", "delivered")
    expect(page.get_by_test_id("typing")).to_have_count(0)
    application.go_on.set()
    expect(page.get_by_test_id("typing")).to_be_visible()
    expect(mine).to_have_attribute("data-status", "read")
    eventually(lambda: not application.go_on.is_set())
    application.go_on.set()
    theirs = page.locator("[data-direction=theirs]")
    expect(theirs).to_contain_text("Bel vóór <b>8:30</b> uur.")
    expect(theirs.get_by_test_id("source")).to_have_text("Bron: [1] Personeelshandboek › Ziekte")
    expect(page.get_by_test_id("typing")).to_have_count(0)
    expect(page.locator("#live")).to_contain_text("Antwoord aan Sam de Boer")
    assert page.evaluate("document.documentElement.scrollWidth") == 360, "nothing sticks out"


def test_a_photo_an_unknown_number_and_the_other_language(page: Page, application: Application) -> None:
    page.get_by_test_id("show-people").click()
    page.get_by_test_id("new-number").fill("+31 6 1234 5678")
    page.get_by_test_id("add-number").click()
    expect(page.locator("#presence")).to_have_text("als +31612345678")
    page.get_by_test_id("language-en").click()
    expect(page.locator("#presence")).to_have_text("as +31612345678")
    page.get_by_test_id("attach").click()
    expect(page.locator("[data-direction=mine] img")).to_be_visible()
    eventually(lambda: application.inbox.inbound[-1].form["NumMedia"] == "1")
    form = application.inbox.inbound[-1].form
    assert (form["From"], form["Body"]) == ("whatsapp:+31612345678", "")
    assert "ProfileName" not in form


def test_a_refused_webhook_shows(page: Page, application: Application) -> None:
    application.answers[:] = [403]
    page.get_by_test_id("show-people").click()
    page.locator("[data-phone='+319700000002']").click()
    page.get_by_test_id("chip").first.click()
    expect(page.locator("[data-direction=mine]")).to_have_attribute("data-status", "failed")
    expect(page.locator("[data-direction=mine]")).to_contain_text("Niet aangekomen")


def test_an_answer_on_another_phone_is_counted(page: Page, application: Application) -> None:
    application.twilio.messages.add(
        sender=application.twilio.whatsapp_from, to="whatsapp:+319700000002", body="Hi", direction="x", status="sent"
    )
    expect(page.locator("#people-dot")).to_be_visible()
    page.get_by_test_id("show-people").click()
    expect(page.locator("[data-phone='+319700000002'] .count")).to_have_text("1")
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("show-people")).to_be_focused()


def test_switches_jobs_and_the_kill_button(page: Page, application: Application) -> None:
    page.get_by_test_id("show-drawer").click()
    page.locator("[data-group=model] summary").click()
    switch = page.locator("[data-fault=model_throttle]")
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "true")
    rule = eventually(application.openai.faults.rules)[0]  # the page shows it before the server has heard of it
    assert (rule.where, rule.status, rule.headers) == ("chat", 429, {"Retry-After": "5"})
    now = dt.datetime.now(dt.UTC)
    attempt = {
        "started": now, "ended": now, "outcome": "retry", "error_class": "throttled", "http_status": 429, "error": "429",
    }  # fmt: skip
    job = {
        "id": "1", "type": "autoreply", "status": "pending", "conversation_address": "whatsapp:+319700000001",
        "attempts": 1, "max_attempts": 3, "next_run_in_seconds": 9.5, "last_error": "429", "error_class": "throttled",
        "attempts_list": [attempt],
    }  # fmt: skip
    application.jobs = [job]
    card = page.get_by_test_id("job")
    expect(card).to_have_attribute("data-job-status", "pending")
    expect(card).to_contain_text("Sam de Boer · poging 1 van 3")
    expect(card).to_contain_text("Volgende poging over")
    expect(card).to_contain_text("te druk (429)")
    application.jobs = [job | {"status": "done", "next_run_in_seconds": None}]
    expect(card).to_have_attribute("data-job-status", "done")
    application.openai.faults.clear()
    expect(switch).to_have_attribute("aria-checked", "false")
    page.locator("[data-fault=kill_host]").click()
    eventually(lambda: application.kills == 1)


def test_the_server_refuses_what_is_not_for_it(application: Application) -> None:
    url = application.twilio.url
    assert requests.get(url, timeout=5, allow_redirects=False).headers["location"] == "/phone/"
    assert "script-src 'self'" in requests.get(f"{url}/phone/", timeout=5).headers["content-security-policy"]
    for path in ("faults", "people", "kill", "messages"):
        assert requests.post(f"{url}/phone/{path}", data="{}", timeout=5).status_code == 415
    assert requests.delete(f"{url}/phone/faults", timeout=5).status_code == 415
    assert requests.post(f"{url}/phone/faults", json={"name": "moon", "on": True}, timeout=5).status_code == 400
    assert requests.post(f"{url}/phone/people", json={"phone": "hello"}, timeout=5).status_code == 400
    for name in ("nothing.js", "..%2fserver.py", "%2e%2e%2fserver.py"):
        assert requests.get(f"{url}/phone/static/{name}", timeout=5).status_code == 404
