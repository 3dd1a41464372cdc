"""The console in a real browser, against `up` itself: what HR does there, in Dutch on a phone and in English at a desk.

With ANTWOORD_SCREENSHOTS=1 it also writes the pictures of docs/console.md to docs/images/console/.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, Locator, expect

from local.standins.azure_openai import OpenAIStandIn
from tests.e2e.browser import chromium
from tests.e2e.console_data import (
    ADD_DEAD,
    ADD_DELIVERED,
    ADD_STUCK,
    DOCUMENT,
    DOCUMENT_QUESTION,
    FIRST_OF_TABLE,
    HOLIDAY,
    OWN_WORDS,
    PERSON_PLEASE,
    SICK,
    TABLE,
    send_event,
)
from tests.e2e.console_page import LIVE_SECONDS, PICTURES, ConsolePage
from tests.e2e.employees import Employees
from tests.e2e.phone_page import DESKTOP, PHONE, Screen
from tests.e2e.up_process import QUICK, UpProcess
from tests.fakes.eventually import eventually
from tests.fakes.faulty_server import answer
from tests.fakes.gateway import Receiver

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images" / "console"
PICTURE_BYTES_AT_MOST = 150_000
WAITING = 400  # a replay that is not over before somebody stops it


@pytest.fixture(scope="module")
def model() -> Iterator[OpenAIStandIn]:
    """A model that does not think for as long as the one of `up`, which is to be seen typing."""
    with OpenAIStandIn() as found:
        yield found


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, model: OpenAIStandIn) -> Iterator[UpProcess]:
    settings = QUICK | {
        "JOB_LEASE_SECONDS": "30",  # nobody is killed here, and how many attempts there were is looked at
        "AZURE_OPENAI_ENDPOINT": model.url,
        "AZURE_OPENAI_API_KEY": "standin",
        "AZURE_OPENAI_CHAT_DEPLOYMENT": "standin-chat",
        "AZURE_OPENAI_EMBEDDING_DEPLOYMENT": "standin-embedding",
        "OUTBOUND_ALLOW_HOSTS": "127.0.0.1",
    }
    with UpProcess(tmp_path_factory.mktemp("antwoord-console"), **settings) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def windows(up: UpProcess, browser: Browser) -> Iterator[dict[Screen, ConsolePage]]:
    """One window a screen, signed in: with the link that `up` prints, and with another one."""
    links = {PHONE: up.console_link, DESKTOP: up.new_console_link()}
    opened = {screen: ConsolePage(browser, link, screen) for screen, link in links.items()}
    for window in opened.values():
        window.sign_in()
    yield opened
    for window in opened.values():
        window.close()


@pytest.fixture(params=[PHONE, DESKTOP], ids=["dutch-phone", "english-desktop"])
def console(
    request: pytest.FixtureRequest, windows: dict[Screen, ConsolePage], people: Employees
) -> Iterator[ConsolePage]:
    """The console on a screen. At the end every fault is off again, and no page may have said an error."""
    window = windows[request.param]
    yield window
    people.meet()
    window.check()


@pytest.fixture
def people(up: UpProcess, model: OpenAIStandIn) -> Employees:
    return Employees(up, model)


def picture(console: ConsolePage, screen: Screen, name: str, what: Locator | None = None) -> None:
    """Write a picture for docs/console.md, if that was asked for and this is the screen that it shows: from `what` on."""
    if PICTURES and console.screen is screen:
        IMAGES.mkdir(parents=True, exist_ok=True)
        path = IMAGES / f"{name}.png"
        console.picture(path, what)
        assert path.stat().st_size < PICTURE_BYTES_AT_MOST, path


def test_no_page_has_a_serious_flaw_or_sticks_out(console: ConsolePage, people: Employees, up: UpProcess) -> None:
    name = {PHONE: "Sanne Mulder", DESKTOP: "Aisha Bennani"}[console.screen]
    people.fail(HOLIDAY[console.screen].question, name)
    flaws: dict[str, list[str]] = {}

    def look(path: str) -> None:
        console.open(path)
        flaws[path] = console.flaws()
        if path in pictures:
            picture(console, PHONE, pictures[path])

    conversation = people.conversation(name)
    job = up.database.value("SELECT id FROM ai_jobs WHERE status = 'failed' ORDER BY seq DESC LIMIT 1")
    document = up.database.value("SELECT id FROM documents ORDER BY title LIMIT 1")
    person = up.database.value("SELECT id FROM people ORDER BY name LIMIT 1")
    pictures = {
        "/documents/new": "document-new", f"/documents/{document}/remove": "document-remove",
        f"/people/{person}": "person", "/people/imports": "imports", "/jobs/queue": "queue",
    }  # fmt: skip
    for path in (
        "", "/conversations", conversation, "/jobs?state=failed&type=autoreply", f"/jobs/{job}", "/jobs/restart?state=failed",
        "/jobs/queue", "/jobs/queue/autoreply", "/jobs/replays",
        "/documents", "/documents/new", f"/documents/{document}", f"/documents/{document}/remove", "/documents/search?q=verlof",
        "/people", f"/people/{person}", "/people/imports", "/people/imports/new",
        "/webhooks", "/webhooks/endpoints", "/webhooks/sources/new", "/webhooks/figures",
    ):  # fmt: skip
        look(path)
    console.open("/people/imports/new")
    chosen: FilePayload = {"name": "table.csv", "mimeType": "text/csv", "buffer": TABLE[console.screen].encode()}
    console.page.locator("#file").set_input_files(chosen)
    console.press("imports.look")
    flaws["preview"] = console.flaws()
    console.press("imports.try")
    console.appears(console.page.locator("#import-state .tag.good"), "the trial's end")
    flaws["import"] = console.flaws()
    look("/audit")
    console.open(f"/jobs/{job}")
    console.field("jobs.close_why").fill("-")
    console.press("jobs.close")
    assert {path: found for path, found in flaws.items() if found} == {}


def test_who_waits_for_a_person_is_on_the_overview_until_it_is_dealt_with(
    console: ConsolePage, people: Employees
) -> None:
    name = {PHONE: "Fatma Yildiz", DESKTOP: "Grace Mensah"}[console.screen]
    console.open()
    people.writes(name, PERSON_PLEASE[console.screen])
    line = console.page.locator(".items li").filter(has_text=name)
    console.appears(line, "the line of who waits")
    expect(line).to_contain_text(console.t.text("reason.asked"))
    console.follow(name)
    console.press("conversations.resolve")
    console.notices("resolved")
    expect(console.page.locator("#needs-person")).to_have_count(0)
    console.go("overview")
    expect(line).to_have_count(0)
    console.logged("resolve", about=name)


def test_a_failed_job_is_read_in_words_and_run_again(console: ConsolePage, people: Employees, up: UpProcess) -> None:
    page, t = console.page, console.t
    name, asked = {PHONE: "Bram de Wit", DESKTOP: "Emeka Okafor"}[console.screen], HOLIDAY[console.screen]
    people.meet("model_down")
    people.writes(name, asked.question)
    people.job_is(name, "pending", 1)
    people.meet("content_filter")
    up.hurry()
    people.job_is(name, "failed", 2)
    people.meet()

    console.go("jobs")
    console.follow(t.text("states.failed"))
    page.locator(".fold > summary").click()
    console.field("jobs.type").select_option("autoreply")
    console.field("jobs.phone").fill(people.phone(name))
    console.press("jobs.apply")
    assert {"state=failed", "type=autoreply"} <= set(page.url.partition("?")[2].split("&"))
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(t.text("class.content_filter"))
    picture(console, DESKTOP, "jobs")
    console.follow(t.text("type.autoreply"))
    steps, model = page.locator(".tries > li"), t.text("service.model")
    expect(steps.nth(0)).to_contain_text(f"{t.text('try.1')}: {t.text('went.unavailable', service=model)} (503)")
    expect(steps.nth(1)).to_contain_text(t.text("try.2"))
    expect(steps.nth(1)).to_contain_text(t.text("went.content_filter"))
    expect(console.has("advice.content_filter")).to_be_visible()
    payload = page.locator("#job-raw").get_by_text('"type": "autoreply"')
    expect(payload).to_be_hidden()
    picture(console, PHONE, "job")
    console.has("jobs.raw").click()
    expect(payload).to_be_visible()

    console.press("jobs.restart")
    console.notices("job_restarted")
    console.appears(page.locator("#job-facts .tag.good"), "the job's end")
    console.follow(name)
    console.appears(page.locator(".message.ai").filter(has_text=asked.answer), "the answer")
    console.logged("restart_job")


def test_failed_jobs_are_closed_with_a_reason_or_run_again_together(console: ConsolePage, people: Employees) -> None:
    page, t, asked = console.page, console.t, HOLIDAY[console.screen]
    closed, *again = {
        PHONE: ("Daan Visser", "Joris Bakker", "Lotte van den Berg"),
        DESKTOP: ("Ines Ferreira", "Katarzyna Nowak", "Milan Petrović"),
    }[console.screen]
    people.fail(asked.question, closed, *again)
    console.open("/jobs?state=failed")
    console.follow(page.locator("tbody tr").filter(has_text=closed).get_by_role("link").first)
    console.field("jobs.close_why").fill(OWN_WORDS[console.screen])
    console.press("jobs.close")
    console.notices("close_closed")
    expect(page.locator("#job-facts")).to_contain_text(OWN_WORDS[console.screen])
    console.logged("close_job", about=OWN_WORDS[console.screen])

    console.open("/jobs?state=failed&error_class=content_filter")
    console.follow(t.text("jobs.restart_these"))
    expect(page.locator(".lead")).to_have_text(t.text("restart.matching.other", n=2))
    picture(console, PHONE, "restart")
    console.field("restart.why").fill(OWN_WORDS[console.screen])
    console.press("restart.button.other", n=2)
    console.notices("replay_started")
    console.appears(page.locator("#replay-state .tag.good"), "the replay's end")
    expect(page.locator("#count-restarted b")).to_have_text("2")
    assert page.locator("#progress").evaluate("bar => bar.value / bar.max") == 1
    for name in again:
        people.job_is(name, "done", 1)
    console.follow(page.locator(".crumb a"))
    expect(page.locator("tbody tr").filter(has_text=OWN_WORDS[console.screen])).to_contain_text(
        t.text("replay.state.done")
    )
    console.open(people.conversation(again[0]))
    expect(page.locator(".message.ai").filter(has_text=asked.answer)).to_be_visible()
    console.logged("start_replay", "finish_replay", about=OWN_WORDS[console.screen])


def test_a_replay_shows_how_far_it_is_by_itself_and_is_stopped(
    console: ConsolePage, people: Employees, up: UpProcess
) -> None:
    page, kind = console.page, f"none-{console.t.language}"
    up.database.execute("INSERT INTO job_types (type) VALUES (%(kind)s)", kind=kind)
    up.database.execute(ADD_DEAD, kind=kind, count=WAITING)  # of a type that no worker knows: they only become due
    console.open(f"/jobs/restart?state=failed&type={kind}")
    page.locator("#rate").select_option("5")
    console.field("restart.why").fill(OWN_WORDS[console.screen])
    console.press("restart.button.other", n=WAITING)
    bar = page.locator("#progress")
    seen = bar.evaluate("bar => bar.value")

    def has_moved() -> bool:
        up.put_off(kind)  # due, and taken by nobody, they would hold the replay back
        return bool(bar.evaluate("bar => bar.value") > seen)

    eventually(has_moved, what="the bar that moves by the page's own timer")
    picture(console, PHONE, "replay")
    console.press("replay.stop")
    console.notices("replay_stopped")
    expect(page.locator("#replay-state .tag.wait")).to_be_visible()
    assert bar.evaluate("bar => bar.value") < WAITING
    console.logged("start_replay", "stop_replay", about=OWN_WORDS[console.screen])
    up.database.execute("UPDATE ai_jobs SET status = 'failed', closed_at = now(), closed_by = 'test', closed_reason = 'test'"
                        " WHERE type = %(kind)s AND closed_at IS NULL", kind=kind)  # fmt: skip
    up.database.execute("DELETE FROM job_types WHERE type = %(kind)s", kind=kind)


def test_a_message_that_is_stuck_is_looked_up_sent_after_all_or_closed(
    console: ConsolePage, people: Employees, up: UpProcess
) -> None:
    page = console.page
    name = {PHONE: "Hugo Janssen", DESKTOP: "Yara Pinas"}[console.screen]
    people.writes(name, HOLIDAY[console.screen].question)
    people.job_is(name, "done", 1)
    path = people.conversation(name)
    talk = path.rpartition("/")[2]

    for body, minutes in (("I looked it up for you.", 10), ("The office is open.", 9), ("I will call you.", None)):
        up.database.execute(ADD_STUCK, talk=talk, body=body, minutes=minutes)
    looked, stuck, unsent = (
        page.locator(".message").filter(has_text=said) for said in ("looked it up", "office", "call")
    )
    console.open(path)
    expect(looked).to_contain_text(console.t.text("conversations.held"))
    looked.scroll_into_view_if_needed()
    picture(console, DESKTOP, "held", page.locator("#thread"))
    console.press("conversations.look_again", looked)
    console.notices("looking_again")
    console.appears(looked.locator(".job-link.pending, .job-link.processing"), "the look")
    stuck.locator(".close > summary").click()
    reason = stuck.get_by_label(console.t.text("conversations.close_why"), exact=True)
    reason.fill(OWN_WORDS[console.screen])
    people.writes(name, PERSON_PLEASE[console.screen])
    page.locator("#needs-person").wait_for()
    expect(reason).to_have_value(OWN_WORDS[console.screen])  # what was typed is left alone
    console.press("conversations.close_unsent", stuck)
    console.notices("closed_unsent")
    expect(stuck).to_contain_text(console.t.text("unsent.closed"))

    console.press("conversations.send_again.unsent", unsent)
    console.notices("sending_again")
    console.appears(unsent.locator(".ticks.delivered, .ticks.read"), "the ticks")
    unsent.locator(".how > summary").click()
    expect(unsent).to_contain_text(console.t.text("sent.accepted"))
    console.logged("look_again", "close_without_sending", "send_again", about=name)


def test_a_conversation_is_read_taken_over_and_handed_back(console: ConsolePage, people: Employees) -> None:
    page, t = console.page, console.t
    name = {PHONE: "Noor Smit", DESKTOP: "Chloe Walker"}[console.screen]
    first, second = HOLIDAY[console.screen], SICK[console.screen]
    people.writes(name, first.question)
    console.go("conversations")
    console.field("conversations.search").fill(name)
    console.press("conversations.apply")
    console.appears(page.get_by_role("link", name=name), "the conversation")
    console.follow(name)
    answer = page.locator(".message.ai").filter(has_text=first.answer)
    console.appears(answer.locator(".ticks.read"), "the blue ticks")
    source = answer.locator("details.cited").first
    source.locator("summary").click()
    expect(source.locator("blockquote")).to_be_visible()
    picture(console, DESKTOP, "conversation")
    console.follow(source.get_by_role("link"))
    expect(page.locator(".chunks > .sought")).to_be_in_viewport()
    page.go_back()

    console.press("conversations.take_over")
    console.notices("taken_over")
    proposed, ours = page.locator("#idea .proposed"), page.locator(".message.admin")
    people.writes(name, second.question)
    console.appears(proposed, "a suggestion")
    expect(proposed).to_contain_text(second.answer)
    picture(console, PHONE, "suggestion", page.locator("#idea"))
    console.press("conversations.send_suggestion")
    console.notices("suggestion_sent")
    console.appears(
        ours.filter(has_text=second.answer).locator(".ticks.delivered, .ticks.read"), "the suggestion's ticks"
    )

    people.writes(name, first.question)
    console.appears(proposed, "another suggestion")
    console.follow(t.text("conversations.edit_suggestion"))
    text = page.locator("#text")
    assert first.answer in text.input_value()
    text.fill(f"{OWN_WORDS[console.screen]} (1)")
    console.press("conversations.send_edited")
    console.notices("suggestion_sent")
    console.appears(ours.filter(has_text="(1)").locator(".ticks.delivered, .ticks.read"), "the edited one's ticks")

    people.writes(name, first.question)
    console.appears(proposed, "a third suggestion")
    console.press("conversations.reject_suggestion")
    console.notices("suggestion_rejected")
    expect(proposed).to_have_count(0)
    answers = answer.count()
    console.press("conversations.hand_back_answering")
    console.notices("handed_back_answering")
    expect(page.locator("#mode-auto")).to_be_visible()
    console.appears(answer.nth(answers), "the assistant's answer")
    console.logged("take_over", "approve_suggestion", "reject_suggestion", "hand_back", about=name)


def test_a_message_appears_by_itself_and_leaves_alone_what_is_being_typed(
    console: ConsolePage, people: Employees
) -> None:
    page = console.page
    name, asked = {PHONE: "Omar El Amrani", DESKTOP: "Priya Sharma"}[console.screen], HOLIDAY[console.screen]
    people.writes(name, asked.question)
    console.open(people.conversation(name))
    source = page.locator("details.cited").first
    console.appears(source, "the answer")
    source.locator("summary").click()
    text = page.locator("#text")
    text.click()
    page.keyboard.type("Een half ")
    people.writes(name, PERSON_PLEASE[console.screen])
    page.locator("#needs-person").wait_for()  # by the page's own timer
    page.keyboard.type("antwoord")
    expect(text).to_be_focused()
    expect(text).to_have_value("Een half antwoord")
    expect(source.locator("blockquote")).to_be_visible()
    assert page.locator("#stale").is_hidden()


def test_a_page_that_is_not_seen_asks_for_nothing(console: ConsolePage) -> None:
    window = console.window()
    page = window.page
    page.clock.install()
    window.open("/conversations")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/live/" in request.url else None)

    def seen(is_seen: bool) -> None:
        page.evaluate(
            f"Object.defineProperty(document, 'hidden', {{value: {str(not is_seen).lower()}, configurable: true}})"
        )
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    with page.expect_response(lambda response: "/live/" in response.url):
        page.clock.run_for(LIVE_SECONDS * 1000)
    seen(False)
    expect(page.locator(".htmx-request")).to_have_count(0)  # else two minutes on the clock are that request's timeout
    asked.clear()
    page.clock.run_for(120_000)
    assert asked == []
    with page.expect_response(lambda response: "/live/" in response.url):
        seen(True)
    with page.expect_response(lambda response: "/live/" in response.url):
        page.clock.run_for(LIVE_SECONDS * 1000)
    window.check()
    window.close()


def test_a_document_is_added_searched_and_removed(console: ConsolePage) -> None:
    page, t = console.page, console.t
    file, title, text = DOCUMENT[console.screen]
    console.go("documents")
    picture(console, DESKTOP, "documents")
    console.follow(t.text("documents.add"))
    content = f"# {title}\n\n{text}\n".encode()
    page.locator("#file").set_input_files({"name": file, "mimeType": "text/markdown", "buffer": content})
    console.press("documents.add_button")
    console.notices("document_added")
    console.appears(page.locator("#facts .tag.good"), "the document that can be found")
    expect(page.locator(".chunks > li")).to_have_count(1)
    expect(page.locator(".chunks > li")).to_contain_text(text)
    picture(console, PHONE, "document")

    console.go("documents")
    page.locator("#question").fill(DOCUMENT_QUESTION[console.screen])
    console.press("documents.ask_button")
    found = page.locator(".chunks.found > li").first
    expect(found).to_contain_text(title)
    expect(found).to_contain_text(t.text("documents.some_words"))
    picture(console, PHONE, "search")
    console.follow(found.get_by_role("link"))
    expect(page.locator(".chunks > .sought")).to_contain_text(text)
    console.follow(t.text("documents.remove"))
    console.press("documents.remove_sure")
    console.notices("document_removed")
    expect(page.get_by_role("link", name=title)).to_have_count(0)
    console.logged("add_document", "remove_document", about=title)


def test_people_are_tried_imported_and_found(console: ConsolePage) -> None:
    page, t = console.page, console.t
    source = f"people-{t.language}.csv"
    chosen: FilePayload = {"name": source, "mimeType": "text/csv", "buffer": TABLE[console.screen].encode()}
    name, phone = FIRST_OF_TABLE[console.screen]
    console.go("people")
    picture(console, DESKTOP, "people")
    console.follow(t.text("imports.new"))
    page.locator("#file").set_input_files(chosen)
    console.press("imports.look")
    expect(page.locator("tbody tr").first).to_contain_text(name)
    expect(page.locator("tbody tr").first).to_contain_text(phone)
    expect(page.locator(".lines li")).to_contain_text(t.text("row_problem.phone_invalid", detail="12"))
    picture(console, DESKTOP, "import")
    console.press("imports.try")
    done = page.locator("#import-state .tag.good")
    console.appears(done, "the trial's end")
    expect(page.locator(".counts li").first).to_have_text(f"2{t.text('would.added')}")

    console.follow(t.text("imports.now_really"))
    page.locator("#file").set_input_files(chosen)
    console.press("imports.look")
    console.press("imports.do.other", n=3)
    console.appears(done, "the import's end")
    expect(page.locator(".counts li").first).to_have_text(f"2{t.text('outcomes.added')}")
    picture(console, PHONE, "imported")
    with page.expect_download() as download:
        page.get_by_role("link", name=t.text("imports.download_rejected")).click()
    assert download.value.suggested_filename == t.text("imports.report_name")
    report = download.value.path().read_text("utf-8-sig")
    assert t.text("row_problem.phone_invalid", detail="12") in report

    console.go("people")
    page.locator("#q").fill(name)
    console.press("people.search_button")
    expect(page.locator("tbody tr")).to_have_count(1)
    console.follow(name)
    console.appears(page.locator("#person-record .tag.good"), "the record that can be found")
    console.logged("import_people", about=source)
    picture(console, DESKTOP, "log")
    console.go("overview")
    picture(console, DESKTOP, "overview")
    console.go("conversations")
    picture(console, PHONE, "conversations")


def test_an_event_is_taken_in_fails_is_read_in_words_and_sent_again(console: ConsolePage, up: UpProcess) -> None:
    """From a source and an endpoint that somebody makes, with secrets that are shown once, to a delivery that arrives."""
    page, t, flaws = console.page, console.t, []
    name = {PHONE: "rooster", DESKTOP: "roster"}[console.screen]
    with Receiver(
        lambda seen: answer(200 if b'"ping"' in seen.body else 422, b'{"error": "unknown shift"}')
    ) as receiver:
        console.go("webhooks")
        console.follow(t.text("webhooks.section.endpoints"))
        console.follow(t.text("endpoints.new"))
        console.field("webhooks.name").fill(f"{name}-service")
        console.field("endpoint.url").fill("http://10.0.0.1/hook")
        console.field("endpoint.events").fill(f"{name}.*")
        console.press("endpoints.add")
        expect(page.locator("#refusal")).to_contain_text(t.text("error.endpoint_url"))
        console.problems[:] = []  # the browser says that a form was answered with 409
        console.field("endpoint.url").fill(receiver.url)
        console.press("endpoints.add")
        assert page.locator("#shown-secret").input_value().startswith("whsec_")
        console.follow(t.text("secret.noted"))
        console.press("endpoint.test")
        expect(page.locator("#pinged .tag.good")).to_be_visible()
        expect(page.locator("#pinged")).to_contain_text("unknown shift")
        flaws += console.flaws()
        picture(console, DESKTOP, "endpoint")

        console.go("webhooks")
        console.follow(t.text("webhooks.section.sources"))
        console.follow(t.text("sources.new"))
        console.field("webhooks.name").fill(name)
        console.press("sources.add")
        secret, address = (page.locator(f"#shown-{what}").input_value() for what in ("secret", "address"))
        picture(console, PHONE, "secret")
        console.follow(t.text("secret.noted"))
        console.go("webhooks")
        row = page.locator("tbody tr").filter(has_text=f"{name}.changed")
        send_event(address, secret, f"{name}.changed")
        console.appears(row, "the event")
        console.appears(row.locator(".tag.bad"), "its death")
        picture(console, PHONE, "events")
        console.follow(row.get_by_role("link"))
        way = page.locator(".way > .card").filter(has=page.get_by_role("link", name=f"{name}-service", exact=True))
        expect(way).to_contain_text("422")
        expect(way).to_contain_text("unknown shift")
        expect(way).to_contain_text(t.text("event.dead"))
        way.locator(".again > summary").click()
        flaws += console.flaws()
        picture(console, PHONE, "event")
        receiver.says = answer(200, b"ok")
        way.get_by_label(t.text("restart.why"), exact=True).fill(OWN_WORDS[console.screen])
        console.press("event.again_button", way)
        console.notices("delivery_resent")
        console.appears(way.locator(".tag.good"), "the delivery")
        expect(way).to_contain_text(OWN_WORDS[console.screen])
        picture(console, DESKTOP, "event-way")
    up.database.execute(ADD_DELIVERED, name=f"{name}-service")
    console.go("webhooks")
    console.follow(t.text("webhooks.section.figures"))
    expect(page.locator(".chart")).to_have_count(4)
    day = page.locator("tbody tr").filter(has_text=f"{name}-service").filter(has_text="97")
    console.appears(day, "the day in the figures, which are kept for a while")
    picture(console, DESKTOP, "figures")
    console.go("webhooks")
    console.follow(t.text("webhooks.section.endpoints"))
    picture(console, DESKTOP, "endpoints")
    assert flaws == []
    console.logged("add_endpoint", "test_endpoint", about=f"{name}-service")
    console.logged("resend_delivery", about=OWN_WORDS[console.screen])


def test_the_keyboard_is_enough_from_signing_in_to_an_answer(
    console: ConsolePage, people: Employees, up: UpProcess, browser: Browser
) -> None:
    name = {PHONE: "Ruben Meijer", DESKTOP: "Tom O'Brien"}[console.screen]
    people.writes(name, PERSON_PLEASE[console.screen])
    people.conversation(name)
    window = ConsolePage(browser, up.new_console_link(), console.screen)
    page = window.page
    assert window.flaws() == []
    window.tab_to(window.button("sign_in.button"))
    window.enter()
    window.tab_to(page.locator(".nav").get_by_role("link", name=window.t.text("nav.conversations")))
    window.enter()
    window.tab_to(page.get_by_role("link", name=name))
    window.enter()
    window.tab_to(page.locator("#text"))
    page.keyboard.type(OWN_WORDS[console.screen])
    window.tab_to(window.button("conversations.send"))
    window.enter()
    window.notices("answer_sent")
    window.appears(page.locator(".message.admin").filter(has_text=OWN_WORDS[console.screen]), "the answer")
    window.logged("send_own", about=name)
    window.check()
    window.close()


def test_a_suggestion_is_asked_for_and_the_conversation_is_handed_back_without_an_answer(
    console: ConsolePage, people: Employees
) -> None:
    page = console.page
    name, asked = {PHONE: "Yara Pinas", DESKTOP: "Milan Petrović"}[console.screen], HOLIDAY[console.screen]
    people.writes(name, asked.question)
    people.job_is(name, "done", 1)
    console.open(people.conversation(name))
    console.press("conversations.take_over")
    console.press("conversations.hand_back")
    console.notices("handed_back")
    console.press("conversations.take_over")
    proposed = page.locator("#idea .proposed")
    people.writes(name, asked.question)
    console.appears(proposed, "the suggestion of manual mode")
    console.press("conversations.reject_suggestion")
    console.press("conversations.ask")
    console.notices("suggestion_asked")
    console.appears(proposed, "the suggestion that was asked for")
    expect(proposed).to_contain_text(asked.answer)
    answers = page.locator(".message.ai").count()
    console.press("conversations.hand_back_silent")
    console.notices("handed_back")
    expect(page.locator("#mode-auto")).to_be_visible()
    expect(page.locator(".message.ai")).to_have_count(answers)
    console.logged("ask_suggestion", "hand_back", about=name)


def test_a_waiting_job_is_cancelled_and_a_person_is_asked(
    console: ConsolePage, people: Employees, up: UpProcess
) -> None:
    name, asked = {PHONE: "Hugo Janssen", DESKTOP: "Tom O'Brien"}[console.screen], HOLIDAY[console.screen]
    people.meet("model_down")
    people.writes(name, asked.question)
    people.job_is(name, "pending", 1)
    assert up.put_off("autoreply")
    console.go("jobs")
    console.page.locator(".fold > summary").click()
    console.field("jobs.phone").fill(people.phone(name))
    console.press("jobs.apply")
    newest = console.page.get_by_role("link", name=console.t.text("type.autoreply"), exact=True).first
    console.follow(newest)
    console.press("jobs.cancel")
    console.notices("cancel_cancelled")
    people.meet()
    console.open(people.conversation(name))
    expect(console.has("reason.cancelled").first).to_be_visible()
    console.logged("cancel_job")


def test_whoever_signs_out_has_to_sign_in_again(up: UpProcess, browser: Browser) -> None:
    window = ConsolePage(browser, up.new_console_link(), PHONE)
    picture(window, PHONE, "sign-in")
    window.sign_in()
    window.press("app.sign_out")
    expect(window.has("signed_out.text")).to_be_visible()
    window.page.goto(f"http://127.0.0.1:{up.console_link.split(':')[2].split('/')[0]}/api/ops/")
    expect(window.page.locator(".nav")).to_have_count(0)
    window.close()
