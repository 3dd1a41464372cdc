"""The main job in a real browser, against `up` itself: questions, ticks, sources, faults, retries, a killed host; and webhooks.

With ANTWOORD_SCREENSHOTS=1 it also writes the README's pictures to docs/images/.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
import requests
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser import chromium
from tests.e2e.gateway_page import GatewayPage
from tests.e2e.phone_page import DESKTOP, PHONE, PhonePage, Screen, appears
from tests.e2e.up_process import QUICK, UpProcess
from tests.fakes.eventually import eventually

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
PICTURE_BYTES_AT_MOST = 150_000
BOTH = pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=lambda screen: screen.name)
HOLIDAY = ("Hoeveel vakantie-uren heb ik?", "200 vakantie-uren")
BICYCLE = ("How does the bike plan work?", "bicycle")
PAUSE_ANSWERS = "UPDATE job_types SET paused = %(paused)s WHERE type = 'autoreply'"
ACTIVE = "SELECT id FROM ai_jobs WHERE status IN ('pending', 'processing')"

HOSTILE = [
    "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script><h1>**groot**</h1> &amp; [1]",
    "betaal \u202e000.1 €\u202c niet \u2066\u2067 \u202e",
    "x" * 2000,
    "https://voorbeeld.example/" + "pad/" * 300,
    "Z\u0351\u036b\u0343" * 40 + "\n" * 30 + "🧑\u200d🧑\u200d🧒" * 60,
]

Visit = Callable[[Screen, str], PhonePage]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    with UpProcess(tmp_path_factory.mktemp("antwoord-phone-page"), **QUICK | {"SETTLE_SECONDS": "0.3"}) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def pages(up: UpProcess, browser: Browser) -> Iterator[dict[Screen, PhonePage]]:
    """One open page a screen."""
    opened = {screen: PhonePage(browser, up.page_url, screen) for screen in (PHONE, DESKTOP)}
    yield opened
    for page in opened.values():
        page.close()


@pytest.fixture
def visit(up: UpProcess, pages: dict[Screen, PhonePage]) -> Iterator[Visit]:
    """Take somebody's phone on a screen. At the end every fault is off again, and no page may have said an error."""

    def visited(screen: Screen, name: str) -> PhonePage:
        pages[screen].hold(name)
        return pages[screen]

    yield visited
    requests.delete(f"{up.page_url}faults", json={}, timeout=5).raise_for_status()
    requests.delete(f"{up.twilio_url}/_conditions", timeout=5).raise_for_status()
    for page in pages.values():
        page.check()


def picture(page: PhonePage, name: str) -> None:
    """Write a picture for the README, if that was asked for."""
    if os.environ.get("ANTWOORD_SCREENSHOTS") == "1":
        IMAGES.mkdir(parents=True, exist_ok=True)
        path = IMAGES / f"{name}.png"
        page.picture(path)
        assert path.stat().st_size < PICTURE_BYTES_AT_MOST


def is_quiet(up: UpProcess) -> bool:
    """Whether no job is left, also of what earlier tests asked."""
    return up.database.rows(ACTIVE) == []


@pytest.mark.parametrize(
    ("screen", "name", "question", "answer", "source"),
    [
        (PHONE, "Aisha Bennani", *HOLIDAY, "Bron: [1] Personeelshandboek › "),
        (DESKTOP, "Chloe Walker", *BICYCLE, "Source: [1] Employee handbook › "),
    ],
    ids=["dutch-phone", "english-desktop"],
)
def test_a_question_its_ticks_and_the_answer_with_its_source(
    visit: Visit, up: UpProcess, screen: Screen, name: str, question: str, answer: str, source: str
) -> None:
    page = visit(screen, name)
    # Nobody reads it before the page has said that it arrived: a busy machine would tell of both at once.
    up.database.execute(PAUSE_ANSWERS, paused=True)
    page.ask(question)
    page.gets_status("delivered")
    up.database.execute(PAUSE_ANSWERS, paused=False)
    page.gets(answer)
    expect(page.source).to_contain_text(source)
    expect(page.typing).to_have_count(0)
    assert page.seen[:5] == ["mine sent", "mine delivered", "mine read", "typing", "theirs sent"]
    assert page.sticks_out() == []
    if screen is PHONE:
        picture(page, "phone")


def test_a_model_that_is_down_costs_an_attempt_and_is_tried_again(visit: Visit, up: UpProcess) -> None:
    page = visit(DESKTOP, "Grace Mensah")
    page.ask("When is my holiday allowance paid?")
    page.gets("paid in May")
    page.switch("model_down", on=True)
    page.ask(BICYCLE[0])
    job = page.job_gets("Grace Mensah", "waiting")
    expect(job).to_contain_text("attempt 1 of 3")
    assert 0 < page.seconds_left("Grace Mensah") <= 10
    page.close_groups()
    picture(page, "retry")
    eventually(lambda: up.put_off("autoreply"), what="the wait, which is now long enough for all that follows")
    expect(job.locator("[data-outcome=retry]").first).to_contain_text("Failed, again later: service unavailable (503)")
    expect(job.locator(".countdown")).to_contain_text("Next try in")
    page.switch("model_down", on=False)
    up.hurry()
    page.gets(BICYCLE[1])
    page.job_gets("Grace Mensah", "done")
    expect(job).to_contain_text("attempt 2 of 3")
    expect(job.locator("[data-outcome]")).to_have_count(2)


def test_an_answer_that_twilio_accepted_before_the_line_fell_arrives_once(visit: Visit, up: UpProcess) -> None:
    page = visit(DESKTOP, "Emeka Okafor")
    # Late enough for the host to have noted that the line fell, and sooner than it looks for itself.
    late = {"callbacks": "late", "callback_delay": 2.0}
    requests.post(f"{up.twilio_url}/_conditions", json=late, timeout=5).raise_for_status()
    page.switch("twilio_drop", on=True)
    page.ask(BICYCLE[0])
    page.gets(BICYCLE[1])
    page.switch("twilio_drop", on=False)
    sent = page.message_gets("Emeka Okafor", "read")
    expect(sent).to_contain_text("Read · status report")
    expect(sent).to_contain_text("broken off")
    up.hurry()
    page.job_gets("Emeka Okafor", "done")
    assert up.sends_to("+319700000005") == 1


def test_without_callbacks_a_look_at_twilio_finds_it(visit: Visit, up: UpProcess) -> None:
    page = visit(DESKTOP, "Tom O'Brien")
    page.ask("When is my holiday allowance paid?")
    page.gets("paid in May")
    page.switch("callback_lost", on=True)
    page.switch("twilio_drop", on=True)
    page.ask(BICYCLE[0])
    page.gets(BICYCLE[1])
    expect(page.message_gets("Tom O'Brien", "doubt")).to_contain_text("Unsure whether it arrived")
    expect(page.job("Tom O'Brien").first.locator(".countdown")).to_contain_text("Next try in")
    page.switch("twilio_drop", on=False)
    up.hurry()
    job = page.job_gets("Tom O'Brien", "done")
    expect(job.get_by_test_id("sent")).to_contain_text("found in Twilio's list")
    expect(job.get_by_test_id("sent")).to_contain_text("broken off → found")
    page.all_off()
    assert page.theirs.count() == 2


def test_what_nobody_can_tell_is_held_for_a_person(visit: Visit, up: UpProcess) -> None:
    page = visit(DESKTOP, "Milan Petrović")
    page.ask("How much may the bike cost?")
    page.gets("€1,800")
    page.switch("lookup_foreign", on=True)
    page.switch("twilio_drop_before", on=True)
    page.ask(BICYCLE[0])
    page.message_gets("Milan Petrović", "doubt")
    up.hurry()
    page.gets("door een ander systeem verstuurd")
    job = page.job_gets("Milan Petrović", "held")
    expect(job.get_by_test_id("sent")).to_contain_text("Held: a person decides")
    expect(job.get_by_test_id("sent")).to_contain_text("foreign message → held")
    assert page.sticks_out() == []
    page.close_groups()
    picture(page, "held")
    page.all_off()


def test_a_retry_comes_by_itself_even_after_the_host_was_killed_in_the_middle_of_another_answer(
    visit: Visit, up: UpProcess
) -> None:
    waiting, running = visit(PHONE, "Bram de Wit"), visit(DESKTOP, "Ines Ferreira")
    waiting.open_drawer()
    waiting.switch("model_throttle", on=True)
    waiting.close_drawer()
    waiting.ask(HOLIDAY[0])
    waiting.open_drawer()
    throttled = waiting.job_gets("Bram de Wit", "waiting")
    expect(throttled.locator("[data-outcome=snoozed]").first).to_contain_text("Wacht even: te druk (429)")
    expect(throttled.locator(".countdown")).to_contain_text("Volgende poging over")
    left = eventually(lambda: waiting.seconds_left("Bram de Wit"))  # between two tries there is none
    assert left <= 5  # the seconds that the model asked for
    waiting.switch("model_throttle", on=False)

    running.switch("model_slow", on=True)
    running.ask(BICYCLE[0])
    appears(running.typing, "the typing bubble")
    running.ask("And how much may the bike cost?")
    running.gets_status("delivered")
    running.kill()
    running.switch("model_slow", on=False)
    eventually(lambda: "starting it again" in up.logged(), what="the end of the host")
    running.gets("€1,800")
    broken_off = running.job_gets("Ines Ferreira", "done")
    expect(broken_off.locator("[data-outcome=crashed]").first).to_contain_text("Broken off, taken up again")

    waiting.job_gets("Bram de Wit", "done")
    expect(throttled.locator("[data-outcome=done]")).to_contain_text("Gelukt")
    waiting.close_drawer()
    waiting.gets(HOLIDAY[1])
    eventually(lambda: is_quiet(up), what="the end of all jobs")
    assert (waiting.theirs.count(), running.theirs.count()) == (1, 1)
    assert (up.sends_to("+319700000002"), up.sends_to("+319700000009")) == (1, 1)


@BOTH
def test_the_keyboard_is_enough(visit: Visit, screen: Screen) -> None:
    page = visit(screen, {PHONE: "Fatma Yildiz", DESKTOP: "Hugo Janssen"}[screen])
    page.again()
    stops: list[str] = []
    while not stops or stops[-1] != "composer":
        page.page.keyboard.press("Tab")
        stops.append(page.focus())
        assert len(stops) < 40, stops
    assert stops[0] == "skip"
    page.page.keyboard.type("Hoe laat moet ik bellen")
    page.page.keyboard.press("Shift+Enter")
    page.page.keyboard.type("als ik ziek ben?")
    page.page.keyboard.press("Enter")
    expect(page.mine.locator(".text")).to_have_text("Hoe laat moet ik bellen\nals ik ziek ben?")
    page.gets_status("delivered")


@BOTH
def test_hostile_text_is_text_and_breaks_nothing(visit: Visit, screen: Screen) -> None:
    page = visit(screen, {PHONE: "Joris Bakker", DESKTOP: "Katarzyna Nowak"}[screen])
    title = page.page.title()
    for text in HOSTILE:
        page.ask(text)
        shown = page.mine.last.locator(".text")
        expect(shown).to_have_text(text)
        assert shown.text_content() == text
        assert page.sticks_out() == []
    expect(page.page.locator("[data-direction=mine][data-status=sent]")).to_have_count(0)  # the host has them all
    expect(page.page.locator("[data-direction=mine][data-status=failed]")).to_have_count(0)
    assert page.page.title() == title


@pytest.mark.parametrize(("screen", "colours"), [(PHONE, "dark"), (DESKTOP, "light")], ids=["phone", "desktop"])
def test_there_is_nothing_that_axe_calls_serious(
    visit: Visit, screen: Screen, colours: Literal["light", "dark"]
) -> None:
    page = visit(screen, "Priya Sharma")
    page.page.emulate_media(color_scheme=colours)
    page.ask(BICYCLE[0])
    appears(page.source, "an answer")
    assert serious_violations(page.page) == []
    if screen is PHONE:
        page.open_drawer()
        expect(page.job("Priya Sharma").first).to_be_visible()
        assert serious_violations(page.page) == []


def serious_violations(page: Page) -> list[str]:
    """What axe-core calls serious or critical on the page as it is now."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html']} {node['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


# The webhooks page


@pytest.fixture
def gateway(up: UpProcess, browser: Browser, request: pytest.FixtureRequest) -> Iterator[GatewayPage]:
    """The webhooks page on a screen. At the end the receiver works again, and the page may not have said an error."""
    page = GatewayPage(browser, up.gateway_url, request.param)
    yield page
    requests.delete(f"{up.gateway_url}faults", json={}, timeout=5).raise_for_status()
    page.check()
    page.close()


ON_A_PHONE = pytest.mark.parametrize("gateway", [PHONE], indirect=True, ids=["phone"])
ON_A_DESKTOP = pytest.mark.parametrize("gateway", [DESKTOP], indirect=True, ids=["desktop"])


@ON_A_DESKTOP
def test_an_event_arrives_fails_waits_dies_and_is_replayed(gateway: GatewayPage, up: UpProcess) -> None:
    eventually(lambda: is_quiet(up), what="the end of what earlier tests asked, which would be counted here")
    gateway.send("response.completed")
    gateway.answered("200")
    arrived = gateway.delivery_gets("response.completed", "delivered")
    expect(arrived.get_by_test_id("try")).to_contain_text("accepted (200)")
    acted = eventually(lambda: max(gateway.count("acted"), 0))

    gateway.switch("drop_after", on=True)
    gateway.send("batch.completed")
    waits = gateway.delivery_gets("batch.completed", "waiting")
    eventually(lambda: up.put_off("deliver_event"), what="the wait, which is now long enough for all that follows")
    expect(waits.get_by_test_id("try").first).to_contain_text("failed (connection lost)")
    expect(waits.locator(".countdown")).to_contain_text("Next try in")
    gateway.switch("drop_after", on=False)
    gateway.press(waits, "hurry")
    gateway.delivery_gets("batch.completed", "delivered")
    seen = eventually(lambda: max(gateway.count("seen"), 0), what="a duplicate that the receiver knew")
    assert gateway.count("acted") == acted + 1, "it acted once, although it was delivered twice"

    gateway.switch("refuses", on=True)
    gateway.send("batch.failed")
    gateway.delivery_gets("batch.failed", "dead")
    assert serious_violations(gateway.page) == []
    assert gateway.sticks_out() == []
    gateway.switch("refuses", on=False)
    gateway.press(gateway.page, "replay")
    gateway.delivery_gets("batch.failed", "delivered")
    gateway.press(gateway.delivery("batch.failed"), "again")
    eventually(lambda: gateway.count("seen") > seen, what="one that was sent again and known")
    link = gateway.page.locator("[data-type='batch.failed'] a").first.get_attribute("href")
    event = up.database.value("SELECT id FROM webhook_events WHERE type = 'batch.failed'")
    assert link == f"http://127.0.0.1:{up.port}/api/ops/webhooks/events/{event}"


@ON_A_PHONE
def test_what_vendors_and_strangers_send_by_mistake_is_answered_and_seen(gateway: GatewayPage, up: UpProcess) -> None:
    events = "SELECT count(*)::int FROM webhook_events WHERE type = %(type)s"
    gateway.send("fine_tuning.job.succeeded", "many")
    gateway.answered("200")
    gateway.delivery_gets("fine_tuning.job.succeeded", "delivered")
    assert up.database.value(events, type="fine_tuning.job.succeeded") == 1
    for how, answers in (("changed", ("200", "422")), ("forged", ("403",)), ("old", ("403",)), ("poison", ("400",))):
        gateway.send("audio.transcription.done", how)
        gateway.answered(*answers)
    expect(gateway.page.get_by_test_id("sent").first).to_contain_text("Vergiftigd")
    gateway.page.get_by_test_id("language-en").click()
    expect(gateway.page.get_by_test_id("sent").first).to_contain_text("Poisoned")
    gateway.page.emulate_media(color_scheme="dark")
    assert serious_violations(gateway.page) == []
    assert gateway.sticks_out() == []


@ON_A_DESKTOP
def test_an_endpoint_that_is_gone_is_said_and_enabled_again(gateway: GatewayPage) -> None:
    gateway.switch("gone", on=True)
    gateway.send("response.failed")
    gateway.delivery_gets("response.failed", "dead")
    health = gateway.page.get_by_test_id("health")
    expect(health).to_contain_text("Disabled (answered 410)")
    gateway.switch("gone", on=False)
    gateway.press(gateway.page, "enable")
    expect(health).to_contain_text("Takes deliveries")
    gateway.press(gateway.delivery("response.failed"), "again")
    gateway.delivery_gets("response.failed", "delivered")
