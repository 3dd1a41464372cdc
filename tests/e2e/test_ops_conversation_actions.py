"""What a person does in a conversation of the console: each action in each state, over HTTP, with its line in the audit log."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest

from shared.db.pool import Database
from tests.e2e.talks import NOOR, asks, audited, fresh, live_address, notice, problem, say, seen
from tests.fakes.visitor import Visitor, words_of
from tests.fakes.world import World

ACTIONS = ("take-over", "hand-back", "resolve", "answer", "suggest")


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


@pytest.fixture
def hr(world: World) -> Visitor:
    return Visitor(world.app, language="nl")


@pytest.fixture
def path(world: World) -> str:
    return asks(world)


class TestModes:
    def test_taking_over_stops_the_answers(self, world: World, hr: Visitor, path: str) -> None:
        assert "overgenomen" in notice(hr, hr.post(f"{path}/take-over"))
        world.run()
        assert world.line.accepted == []
        said = words_of(hr.get(path).text)
        assert "een mens antwoordt overgenomen door Beheerder op deze computer" in said
        assert "Je hebt 200 uur verlof. [1]" in said, "what the documents say is suggested"
        assert problem(hr.post(f"{path}/take-over")) == "Een mens heeft dit gesprek al overgenomen."
        assert audited(world) == ["take_over"]

    @pytest.mark.parametrize("answers", [True, False])
    def test_handing_back_with_and_without_an_answer(self, world: World, hr: Visitor, path: str, answers: bool) -> None:
        hr.post(f"{path}/take-over")
        page = hr.get(path).text
        assert "Teruggeven, en laat beantwoorden wat wacht" in page
        assert "Teruggeven zonder antwoord" in page
        choice: dict[str, Any] = {"answer_waiting": "1"} if answers else {}
        told = notice(hr, hr.post(f"{path}/hand-back", seen_seq=seen(hr, path), **choice))
        assert ("ook op wat nog wachtte" in told) == answers
        assert world.wake.delays[-1:] == [0.0]
        world.run()
        assert len(world.line.accepted) == answers
        assert problem(hr.post(f"{path}/hand-back")) == "De assistent antwoordt al in dit gesprek."
        assert audited(world) == ["take_over", "hand_back"]

    def test_one_button_hands_back_when_nothing_waits(self, world: World, hr: Visitor, path: str) -> None:
        world.run()
        hr.post(f"{path}/take-over")
        page = words_of(hr.get(path).text)
        assert "Teruggeven aan de assistent" in page
        assert "laat beantwoorden" not in page

    def test_dealt_with(self, world: World, hr: Visitor, path: str) -> None:
        assert problem(hr.post(f"{path}/resolve")) == "Dit gesprek vraagt niet om een mens."
        world.says(NOOR, "medewerker")
        world.run()
        assert "vraagt om een mens" in words_of(hr.get(path).text)
        assert "niet meer om een mens" in notice(hr, hr.post(f"{path}/resolve"))
        assert "Afgehandeld" not in hr.get(path).text
        assert audited(world) == ["resolve"]


class TestOwnAnswer:
    def test_goes_out_and_covers_what_the_page_showed(self, world: World, hr: Visitor, path: str) -> None:
        assert notice(hr, say(hr, path, "Dag <b>Noor</b>,\r\nik kijk het na. 😀")) == "Je antwoord wordt verstuurd."
        assert world.wake.delays[-1:] == [0.0]
        world.run()
        assert world.sent_to(NOOR) == ["Dag <b>Noor</b>,\nik kijk het na. 😀"], "and nothing from the assistant"
        assert "Beheerder op deze computer Dag <b>Noor</b>, ik kijk het na." in words_of(hr.get(path).text)
        assert audited(world) == ["send_own"]

    def test_leaves_open_what_came_after_the_page_was_shown(self, world: World, hr: Visitor, path: str) -> None:
        hr.post(f"{path}/take-over")
        before = seen(hr, path)
        world.says(NOOR, "En nog iets")
        say(hr, path, "Dag", seen_seq=before)
        assert world.rows("SELECT body FROM messages WHERE NOT from_self AND answered_by IS NULL") == [("En nog iets",)]

    def test_is_sent_once_however_often_its_form_is(self, world: World, hr: Visitor, path: str) -> None:
        form: dict[str, Any] = {"text": "Dag", "seen_seq": seen(hr, path)}
        answers = [hr.post(f"{path}/answer", **form) for _ in range(3)]
        assert [notice(hr, answer) for answer in answers] == ["Je antwoord wordt verstuurd."] * 3
        world.run()
        world.execute("UPDATE messages SET created_at = created_at - interval '1 minute'")
        assert notice(hr, hr.post(f"{path}/answer", **form)), "a browser that sends its form again"
        assert notice(hr, say(hr, path, "Dag")), "a person who says the same again, later"
        world.run()
        assert world.sent_to(NOOR) == ["Dag", "Dag"]
        assert audited(world) == ["send_own", "send_own"]

    @pytest.mark.parametrize("text", ["", " \r\n\t ", "\u200b"])
    def test_without_text_is_refused(self, world: World, hr: Visitor, path: str, text: str) -> None:
        assert problem(say(hr, path, text)) == "Er staat geen tekst om te versturen."
        assert audited(world) == []

    def test_length_counts_as_whatsapp_does_and_a_longer_text_is_kept(
        self, world: World, hr: Visitor, path: str
    ) -> None:
        assert 'maxlength="16000"' in hr.get(path).text
        assert "Hooguit 1" in hr.get(path).text
        long = "\n" + "😀" * 7999 + "abc"
        refused = say(hr, path, long)
        assert "te lang" in problem(refused)
        assert "1 teken te veel." in words_of(refused.text)
        kept = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", refused.text, re.DOTALL)
        assert kept
        assert kept[1].strip() == long.strip()
        assert f'name="back" value="/api/ops{path}"' in refused.text, "changing the language leads to a page"
        assert notice(hr, say(hr, path, long[:-1]))
        assert "50000 tekens" not in say(hr, path, "x" * 50_000).text

    @pytest.mark.parametrize(
        ("change", "reason", "sentence"),
        [
            ("opted_out_at = now()", "Stuurde STOP op", "heeft zich afgemeld"),
            ("last_inbound_at = now() - interval '25 hours'", "meer dan 24 uur stil", "binnen 24 uur"),
        ],
    )
    def test_the_form_gives_way_to_the_reason_and_what_was_typed_is_kept(
        self, world: World, hr: Visitor, path: str, change: str, reason: str, sentence: str
    ) -> None:
        form: dict[str, Any] = {"text": "Dag <Noor>", "seen_seq": seen(hr, path)}
        world.execute(f"UPDATE conversations SET {change}")
        page = hr.get(path).text
        assert "<textarea" not in page
        assert reason in words_of(page)
        assert sentence in words_of(page)
        assert "/suggest" not in page
        refused = hr.post(f"{path}/answer", **form)
        assert sentence in problem(refused)
        assert re.search(r"<textarea[^>]* readonly>\nDag &lt;Noor&gt;</textarea>", refused.text)
        assert sentence in problem(hr.post(f"{path}/suggest"))
        world.run()
        assert "Dag <Noor>" not in world.sent_to(NOOR)

    def test_a_page_without_the_form_says_when_one_can_answer_again(self, world: World, hr: Visitor, path: str) -> None:
        world.execute("UPDATE conversations SET last_inbound_at = now() - interval '25 hours'")
        found = live_address(hr.get(path).text)
        assert "closed=1" in found
        world.says(NOOR, "Ik ben er weer")
        fresh = hr.get(found).text
        assert "Antwoordveld openen" in words_of(fresh)
        assert "closed=1" in fresh


class TestSafety:
    def test_nothing_is_done_by_looking(self, world: World, hr: Visitor, path: str) -> None:
        for action in (*ACTIONS, f"suggestions/{UUID(int=1)}/approve", f"suggestions/{UUID(int=1)}/reject"):
            assert hr.get(f"{path}/{action}").status_code == 405
        assert audited(world) == []

    def test_nothing_is_done_without_the_token_of_the_sign_in(self, world: World, hr: Visitor, path: str) -> None:
        hr.csrf = "x"
        assert {hr.post(f"{path}/{action}", text="x").status_code for action in ACTIONS} == {403}
        stranger = Visitor(world.app, signed_in=False)
        assert {stranger.post(f"{path}/{action}", text="x").status_code for action in ACTIONS} <= {302, 401, 403}
        assert audited(world) == []

    def test_what_is_no_number_is_refused_in_words(self, world: World, hr: Visitor, path: str) -> None:
        assert "niet begrepen" in problem(say(hr, path, "Dag", seen_seq="-1"))
        assert hr.get(f"{path}?before=x").status_code == 400

    def test_sentences_are_in_the_readers_language(self, world: World, path: str) -> None:
        hr = Visitor(world.app, language="en")
        assert notice(hr, hr.post(f"{path}/take-over")).startswith("You have taken the conversation over.")
        assert problem(hr.post(f"{path}/take-over")) == "A person has taken this conversation over already."
        assert problem(say(hr, path, "x" * 16001)).startswith("The text is too long")
        assert "1 character too many." in words_of(say(hr, path, "x" * 16001).text)
