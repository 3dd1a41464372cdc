"""A conversation's page over HTTP: the thread as the employee sees it, jobs and sources, the live part, hostile content."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from shared.conversation import actions
from shared.db.pool import Database
from shared.errors import TransientError
from tests.e2e.talks import BRAM, NOOR, asked, fresh, id_of, live_address
from tests.fakes.visitor import Visitor, words_of
from tests.fakes.world import World

EVIL = "<img src=x onerror=alert(1)></textarea><script>alert(2)</script> \u202eedoc \x00 {{ 7*7 }} 😀\r\n\n"
# Where the direction of text may turn without turning anything else.
ISOLATED = re.compile(r'<bdi>.*?</bdi>|<(div|span) class="said" dir="auto">.*?</\1>|<textarea.*?</textarea>', re.DOTALL)


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


@pytest.fixture
def hr(world: World) -> Visitor:
    return Visitor(world.app, language="nl")


class TestThread:
    def test_shows_who_said_what_with_ticks(self, world: World, hr: Visitor) -> None:
        path = asked(world)
        with world.database.connection() as connection:
            seen = world.value("SELECT max(seq) FROM messages")
            actions.send_own(connection, id_of(world), "Ik kijk het na.", who="hr@example.org", seen_seq=seen)
        world.run()
        asked(world, body="medewerker")
        world.execute("UPDATE messages SET status = 'read' WHERE source = 'ai'")
        world.execute("UPDATE messages SET status = 'delivered' WHERE source = 'admin'")
        said = words_of(hr.get(path).text)
        assert re.search(r"Noor Smit Hoeveel verlof heb ik\?", said)
        assert re.search(r"Assistent Je praat met .*? Bron: \[1\] Personeelshandboek › Verlof .*? gelezen", said)
        assert re.search(r"hr@example\.org Ik kijk het na\. \d\d:\d\d bezorgd", said)
        assert re.search(r"Vaste tekst · doorgegeven aan een mens Ik heb een collega .*? verstuurd", said)

    def test_sources_open_to_the_chunk_and_lead_to_the_document(self, world: World, hr: Visitor) -> None:
        path = asked(world)
        document, chunk = world.rows("SELECT document_id, id FROM chunks")[0]
        page = hr.get(path).text
        source = re.search(r'<details class="cited".*?</details>', page, re.DOTALL)
        assert source
        assert "[1] Personeelshandboek › Verlof Je hebt 200 uur verlof." in words_of(source[0])
        assert f"/api/ops/documents/{document}?chunk={chunk}#chunk-{chunk}" in source[0]
        world.execute("DELETE FROM documents")
        page = hr.get(path).text
        assert "deze passage is er niet meer" in words_of(page)
        assert "Personeelshandboek › Verlof" in words_of(page)

    @pytest.mark.parametrize(
        ("change", "nl", "en"),
        [
            ("status = 'failed', error_code = '63016'", "schreef meer dan 24 uur geleden", "more than 24 hours ago"),
            (
                "status = 'failed', error_code = '99999'",
                "niet bezorgd. (code 99999 )",
                "not deliver this message. (code 99999 )",
            ),
            (
                "status = 'failed', held_reason = 'taken_over'",
                "een mens nam het gesprek over",
                "took the conversation over",
            ),
            ("status = 'failed', held_reason = 'throttled'", "Niet verstuurd: te druk", "Not sent: "),
            ("status = 'held', held_reason = 'ReadTimeout: x'", "Misschien verstuurd", "May have been sent"),
            ("status = 'draft'", "staat klaar", "is ready to go"),
            ("status = 'sending', send_started_at = now()", "wordt verstuurd", "being sent"),
        ],
    )
    def test_says_in_words_what_became_of_a_message(
        self, world: World, hr: Visitor, change: str, nl: str, en: str
    ) -> None:
        path = asked(world)
        world.force(f"UPDATE messages SET {change} WHERE from_self")
        page = hr.get(path).text
        assert nl in words_of(page)
        assert re.search(r'class="message ours ai unsent"', page), "the employee has not seen it"
        assert ("ReadTimeout: x" in page) == ("ReadTimeout" in change), "details are there, folded"
        assert en in words_of(Visitor(world.app, language="en").get(path).text)

    def test_shows_the_job_beside_the_message(self, world: World, hr: Visitor) -> None:
        def refuse(_: object) -> None:
            raise TransientError("throttled", "429")

        world.line.before = refuse
        path = asked(world)
        job = world.value("SELECT id FROM ai_jobs")
        said = words_of(hr.get(path).text)
        assert re.search(r"Automatisch antwoord: wacht, opnieuw om \d\d:\d\d", said)
        assert hr.get(path).text.count(f"/api/ops/jobs/{job}") == 1, "beside the answer, not beside the question too"
        for _ in range(2):
            world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE id = %(id)s", id=job)
            world.run()
        assert "Automatisch antwoord: mislukt (te druk)" in words_of(hr.get(path).text)
        assert "wacht op een mens" in words_of(hr.get(path).text)

    def test_marks_what_is_open_and_what_needs_no_answer(self, world: World, hr: Visitor) -> None:
        world.says(NOOR, "Hallo?")
        path = f"/conversations/{id_of(world)}"
        assert re.search(
            r"Hallo\? \d\d:\d\d nog geen antwoord Automatisch antwoord: wacht", words_of(hr.get(path).text)
        )
        world.execute("UPDATE messages SET answered_by = id")
        assert re.search(r"Hallo\? \d\d:\d\d geen antwoord nodig", words_of(hr.get(path).text))

    def test_names_what_was_attached_and_fetches_nothing(self, world: World, hr: Visitor) -> None:
        world.says(NOOR, "", NumMedia="2", MediaUrl0="https://x.example/1", MediaContentType0="image/jpeg",
                   MediaUrl1="https://x.example/2", MediaContentType1='a"><b>/x')  # fmt: skip
        world.says(NOOR, "", MessageType="location")
        page = hr.get(f"/conversations/{id_of(world)}").text
        assert 'Foto (wordt hier niet getoond) bijlage ( a"><b>/x )' in words_of(page)
        assert "<b>" not in page
        assert "Locatie" in words_of(page)
        assert "x.example" not in page

    def test_long_threads_come_in_pages(self, world: World, hr: Visitor) -> None:
        path = asked(world)
        world.execute(
            """INSERT INTO messages (conversation_id, from_self, source, body, status, answered_by)
            SELECT %(id)s, false, 'contact', 'regel ' || n || '.', 'received', gen_random_uuid()
            FROM generate_series(1, 120) AS n""",
            id=id_of(world),
        )
        pages, address = [], path
        while address:
            page = hr.get(address).text
            pages.append([int(number) for number in re.findall(r">regel (\d+)\.<", page)])
            is_newest = address == path
            assert ('name="text"' in page) == is_newest, "one writes beneath the newest messages"
            assert ("hx-get" in page) == is_newest, "what is old does not change"
            assert ('rel="first"' in page) == (not is_newest)
            older = re.search(r'href="/api/ops([^"]+)" rel="next"', page)
            address = older[1] if older else ""
        assert [len(numbers) for numbers in pages] == [50, 50, 20]
        assert [number for numbers in reversed(pages) for number in numbers] == list(range(1, 121))

    def test_an_unknown_conversation_is_a_page_that_says_so(self, world: World, hr: Visitor) -> None:
        for path in (f"/conversations/{UUID(int=7)}", f"/live/conversations/{UUID(int=7)}"):
            assert hr.get(path).status_code == 404
        assert hr.post(f"/conversations/{UUID(int=7)}/take-over").status_code == 404

    def test_says_who_the_employee_is(self, world: World, hr: Visitor) -> None:
        path = asked(world)
        page = hr.get(path).text
        assert f"/api/ops/people/{world.value('SELECT id FROM people')}" in page
        assert "/api/ops/jobs?phone=%2B31612345601" in page
        assert f"/api/ops/audit?target={id_of(world)}" in page
        world.execute("UPDATE people SET left_at = now()")
        assert "Noor Smit (uit dienst)" in words_of(hr.get(path).text)

    def test_live_part_asks_little_until_something_changes(self, world: World, hr: Visitor) -> None:
        path = asked(world)
        page = hr.get(path).text
        address = live_address(page)
        assert "stamp=" in address
        assert hr.get(address).status_code == 204, "the stamp alone tells"
        world.says(NOOR, "Nog iets?")
        fresh = hr.get(address)
        assert "Nog iets?" in fresh.text
        assert "<textarea" not in fresh.text, "where a person types is left alone"
        assert 'id="live-conversation"' in fresh.text
        assert live_address(fresh.text) != address
        assert hr.get(live_address(fresh.text)).status_code == 204
        newest = world.value("SELECT max(seq) FROM messages")
        assert f'<input type="hidden" name="seen_seq" value="{newest}" form="answer">' in fresh.text

    def test_live_part_asks_little_again_after_a_change_that_shows_nothing(self, world: World, hr: Visitor) -> None:
        address = live_address(hr.get(asked(world)).text)
        world.force("UPDATE ai_jobs SET updated_at = now()")
        fresh = hr.get(address)
        assert fresh.status_code == 200
        assert hr.get(live_address(fresh.text)).status_code == 204

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE messages SET status = 'read' WHERE from_self",
            "UPDATE ai_jobs SET status = 'failed'",
            "UPDATE conversations SET mode = 'manual'",
            "UPDATE conversations SET last_inbound_at = now() - interval '25 hours'",
            "UPDATE people SET name = 'Noor de Boer'",
            """INSERT INTO suggestions (conversation_id, asked_by, job_id, text, language, answers)
            SELECT conversation_id, 'x', id, 'y', 'nl', '{}' FROM ai_jobs""",
        ],
    )
    def test_live_part_notices_every_change(self, world: World, hr: Visitor, change: str) -> None:
        address = live_address(hr.get(asked(world)).text)
        world.force(change)
        assert hr.get(address).status_code == 200

    def test_hostile_content_is_harmless(self, world: World, hr: Visitor) -> None:
        body = EVIL + "x" * 50_000
        world.model.says = lambda _: f"{EVIL} [1]"
        world.execute(
            "UPDATE chunks SET text = %(text)s, heading_path = ARRAY[%(text)s]", text=EVIL.replace("\x00", "")
        )
        world.execute("UPDATE documents SET title = %(text)s", text=EVIL.replace("\x00", ""))
        world.says(BRAM, body, ProfileName=EVIL)
        world.run()
        path = f"/conversations/{id_of(world, BRAM)}"
        hr.post(f"{path}/take-over")
        world.says(BRAM, body)
        world.run()
        suggestion = world.value("SELECT id FROM suggestions")
        assert suggestion
        for address in ("/conversations", path, f"{path}?suggestion={suggestion}"):
            page = hr.get(address).text
            assert "<img" not in page
            assert not re.search(r"<script(?! src=)", page)
            assert "\x00" not in page
            assert "49" not in words_of(page).split()
            assert page.count("<textarea") == page.count("</textarea>")
            title = re.search(r"<title>(.*?)</title>", page, re.DOTALL)
            assert title
            assert "\u202e" not in title[1], "nothing ends the turning of direction in a title"
            assert "\u202e" not in ISOLATED.sub("", page)
