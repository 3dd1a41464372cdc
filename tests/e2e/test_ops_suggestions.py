"""Suggestions on a conversation's page of the console: asked for, sent, edited, put aside."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest

from shared.db.pool import Database
from tests.e2e.talks import NOOR, asks, audited, fresh, live_address, notice, problem
from tests.fakes.visitor import Visitor, words_of
from tests.fakes.world import World


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


@pytest.fixture
def hr(world: World) -> Visitor:
    return Visitor(world.app, language="nl")


@pytest.fixture
def path(world: World) -> str:
    return asks(world)


def suggested(world: World, hr: Visitor, path: str) -> UUID:
    """A conversation that a person has taken over, with a suggestion; its id."""
    hr.post(f"{path}/take-over")
    world.run()
    found: UUID = world.value("SELECT id FROM suggestions WHERE state = 'open'")
    return found


def unanswered(world: World) -> None:
    """The assistant has said that the documents do not say; now they do."""
    says, world.model.says = world.model.says, lambda _: "NO_ANSWER"
    world.run()
    world.model.says = says


class TestSuggestions:
    def test_is_asked_for_and_appears(self, world: World, hr: Visitor, path: str) -> None:
        unanswered(world)
        assert notice(hr, hr.post(f"{path}/suggest")) == "Er wordt een voorstel gemaakt."
        page = hr.get(path).text
        assert "Er wordt een voorstel gemaakt; het verschijnt hier vanzelf." in words_of(page)
        assert "Vraag om een voorstel" not in page
        hr.post(f"{path}/suggest")
        assert world.value("SELECT count(*) FROM ai_jobs WHERE type = 'suggest'") == 1
        world.run()
        said = words_of(hr.get(live_address(page)).text)
        assert "Gevraagd door Beheerder op deze computer" in said
        assert "[1] Personeelshandboek › Verlof Je hebt 200 uur verlof." in said
        assert len(world.line.accepted) == 1, "nothing is sent by itself"
        assert audited(world) == ["ask_suggestion"]

    def test_says_when_the_documents_do_not_answer(self, world: World, hr: Visitor, path: str) -> None:
        world.model.says = lambda _: "NO_ANSWER"
        world.run()
        hr.post(f"{path}/suggest")
        world.run()
        said = words_of(hr.get(path).text)
        assert "De documenten geven geen antwoord op deze vraag." in said
        assert "Vraag opnieuw om een voorstel" in said

    def test_says_when_it_failed(self, world: World, hr: Visitor, path: str) -> None:
        unanswered(world)
        hr.post(f"{path}/suggest")
        world.force("UPDATE ai_jobs SET status = 'failed', error_class = 'throttled' WHERE type = 'suggest'")
        said = words_of(hr.get(path).text)
        assert "Het voorstel is niet gelukt: te druk. Bekijk de taak Vraag opnieuw om een voorstel" in said

    def test_is_refused_when_nothing_was_asked(self, world: World, hr: Visitor, path: str) -> None:
        world.run()
        assert problem(hr.post(f"{path}/suggest")) == "Er is geen vraag die nog op een antwoord wacht."
        assert audited(world) == []

    def test_is_sent_as_it_is(self, world: World, hr: Visitor, path: str) -> None:
        suggestion = suggested(world, hr, path)
        approve = f"{path}/suggestions/{suggestion}/approve"
        assert notice(hr, hr.post(approve)) == "Het voorstel wordt verstuurd."
        world.run()
        assert world.sent_to(NOOR) == ["Je hebt 200 uur verlof. [1]\n\nBron: [1] Personeelshandboek › Verlof"]
        assert "Beheerder op deze computer · uit een voorstel Je hebt 200 uur" in words_of(hr.get(path).text)
        assert problem(hr.post(approve)) == "Over dit voorstel is al beslist."
        world.run()
        assert len(world.line.accepted) == 1
        assert audited(world) == ["take_over", "approve_suggestion"]

    def test_is_edited_in_the_field_where_one_writes(self, world: World, hr: Visitor, path: str) -> None:
        suggestion = suggested(world, hr, path)
        page = hr.get(f"{path}?suggestion={suggestion}").text
        form = re.search(r'<form id="answer" method="post" action="/api/ops([^"]+)">.*?</form>', page, re.DOTALL)
        assert form
        text = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", form[0], re.DOTALL)
        assert text
        assert text[1] == "Je hebt 200 uur verlof. [1]\n\nBron: [1] Personeelshandboek › Verlof"
        fields: dict[str, Any] = {"is_edited": "1", "suggestion": str(suggestion)}
        refused = hr.post(form[1], text=" ", **fields)
        assert problem(refused) == "Er staat geen tekst om te versturen."
        assert form[1] in refused.text, "it is still the suggestion that is edited"
        assert notice(hr, hr.post(form[1], text="Dag Noor: 200 uur.", **fields)) == "Het voorstel wordt verstuurd."
        world.run()
        assert world.sent_to(NOOR) == ["Dag Noor: 200 uur."]
        gone = hr.get(f"{path}?suggestion={suggestion}").text
        assert "Over dit voorstel is al beslist." in words_of(gone)
        assert f'action="/api/ops{path}/answer"' in gone

    def test_is_not_used(self, world: World, hr: Visitor, path: str) -> None:
        suggestion = suggested(world, hr, path)
        assert notice(hr, hr.post(f"{path}/suggestions/{suggestion}/reject")) == "Het voorstel wordt niet gebruikt."
        assert problem(hr.post(f"{path}/suggestions/{suggestion}/reject")) == "Over dit voorstel is al beslist."
        assert problem(hr.post(f"{path}/suggestions/{UUID(int=1)}/reject")) == "Dit voorstel bestaat niet."
        world.run()
        assert world.line.accepted == []
        assert audited(world) == ["take_over", "reject_suggestion"]

    def test_can_only_be_put_aside_once_others_have_answered(self, world: World, hr: Visitor, path: str) -> None:
        suggestion = suggested(world, hr, path)
        world.execute("UPDATE messages SET answered_by = id WHERE NOT from_self")
        page = hr.get(path).text
        assert "Deze berichten zijn intussen beantwoord." in words_of(page)
        assert "/approve" not in page
        refused = hr.post(f"{path}/suggestions/{suggestion}/approve")
        assert problem(refused) == "Deze berichten zijn intussen beantwoord."
