"""What the conversation's page says about how a message was sent, and what a person does with one that is stuck."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.clients.twilio import Listed
from shared.db.pool import Database
from tests.e2e.talks import BRAM, NOOR, asked, asks, audited, fresh, id_of, notice, problem
from tests.fakes.replies import callback
from tests.fakes.visitor import Visitor, words_of
from tests.fakes.world import World, run_all


@pytest.fixture
def world(database: Database) -> World:
    """Somebody has had an answer a while ago: Twilio's list can be held against that."""
    found = fresh(database)
    asked(found, BRAM)
    found.pass_time(3600)
    found.line.accepted[0]["created"] = datetime.now(UTC)
    return found


@pytest.fixture
def hr(world: World) -> Visitor:
    return Visitor(world.app, language="nl")


def breaking(times: int = 1) -> Any:
    left = [times]

    def plan(_: object) -> None:
        if left[0]:
            left[0] -= 1
            raise ConnectionResetError

    return plan


def held(world: World, *, accepted: bool = False) -> tuple[str, str]:
    """An answer that may have left, kept by a foreign message from being settled: the conversation's path, the message's."""
    if accepted:
        world.line.after = breaking()
    else:
        world.line.before = breaking()
    path = asks(world)
    world.run()
    world.line.foreign.append((NOOR, Listed(f"SM{uuid4().hex}", "Uw pakket.", datetime.now(UTC), "sent")))
    world.settle_doubts()
    world.line.foreign.clear()
    message = world.value("SELECT id FROM messages WHERE status = 'held'")
    return path, f"{path}/messages/{message}"


def status(world: World) -> str:
    found: str = world.value("SELECT m.status FROM messages m JOIN conversations c ON c.id = m.conversation_id"
                             " WHERE m.source = 'ai' AND c.address = %(noor)s", noor=NOOR)  # fmt: skip
    return found


def test_the_ticks_open_to_how_a_message_was_sent(world: World, hr: Visitor) -> None:
    path = asked(world)
    callback(world, world.line.accepted[-1], "delivered")
    callback(world, world.line.accepted[-1], "read")
    page = hr.get(path).text
    how = re.search(r'<details class="how".*?</details>', page, re.DOTALL)
    assert how
    assert re.sub(r" \d+ \w+ \d\d:\d\d", "", words_of(how[0])) == (
        "gelezen Poging 1: verstuurd naar WhatsApp WhatsApp nam het aan WhatsApp meldde: bezorgd WhatsApp meldde: gelezen"
    )
    assert "Eerst was niet zeker" not in words_of(page)
    assert 'class="stuck"' not in page


def test_a_held_message_says_why_and_offers_three_things(world: World, hr: Visitor) -> None:
    path, message = held(world)
    page = hr.get(path).text
    said = words_of(page)
    assert "In de lijst van WhatsApp staat een bericht dat dit kan zijn, of iets anders" in said
    assert "Geen antwoord van WhatsApp: het kan vertrokken zijn" in said
    assert "Opnieuw versturen vraagt eerst aan WhatsApp of het bericht er is" in said
    for action, label in (
        ("look-again", "Opnieuw kijken"),
        ("send-again", "Opnieuw versturen (kijkt eerst)"),
        ("close", "Sluiten zonder te versturen"),
    ):
        form = re.search(rf'<form method="post" action="/api/ops{message}/{action}".*?</form>', page, re.DOTALL)
        assert form, action
        assert label in words_of(form[0])
    assert "Send again (looks first)" in words_of(Visitor(world.app, language="en").get(path).text)


def test_looking_again_finds_it_and_says_what_settled_it(world: World, hr: Visitor) -> None:
    path, message = held(world, accepted=True)
    assert "opnieuw bij WhatsApp gekeken" in notice(hr, hr.post(f"{message}/look-again"))
    assert world.wake.delays[-1:] == [0.0]
    world.settle_doubts()
    assert status(world) == "sent"
    said = words_of(hr.get(path).text)
    assert "Eerst was niet zeker of dit vertrok; het stond in de lijst van WhatsApp." in said
    assert "Een beheerder liet opnieuw kijken" in said
    assert len(world.sent_to(NOOR)) == 1
    assert audited(world) == ["look_again"]
    assert "niets na te kijken" in problem(hr.post(f"{message}/look-again"))


def test_sending_again_looks_first(world: World, hr: Visitor) -> None:
    path, message = held(world)
    assert notice(hr, hr.post(f"{message}/send-again"))
    world.settle_doubts()
    assert status(world) == "sent"
    said = words_of(hr.get(path).text)
    assert "WhatsApp heeft het niet: het mag opnieuw" in said
    assert "Poging 2: verstuurd naar WhatsApp" in said
    assert "Eerst was niet zeker of dit vertrok; WhatsApp nam het aan." in said
    assert len(world.sent_to(NOOR)) == 1
    assert "is al weg" in problem(hr.post(f"{message}/send-again"))
    assert audited(world) == ["send_again"]


def test_closing_sends_nothing_and_keeps_the_reason(world: World, hr: Visitor) -> None:
    path, message = held(world)
    assert "wordt niet meer verstuurd" in notice(hr, hr.post(f"{message}/close", reason=" al <b>gebeld</b> \n"))
    run_all(world)
    page = hr.get(path).text
    assert "Niet verstuurd: een collega heeft dit gesloten." in words_of(page)
    assert 'class="stuck"' not in page
    assert world.sent_to(NOOR) == []
    assert "is niets te sluiten" in problem(hr.post(f"{message}/close"))
    assert "reden: al <b>gebeld</b>" in words_of(hr.get("/audit").text)
    assert audited(world) == ["close_without_sending"]


def test_parts_are_parts_of_one_answer_and_the_first_that_is_stuck_has_the_buttons(world: World, hr: Visitor) -> None:
    world.model.says = lambda _: (
        "\n\n".join(f"Alinea {n}. " + "Je hebt 200 uur verlof. " * 40 for n in range(3)) + " [1]"
    )
    world.line.before = breaking(times=1)
    path = asks(world)
    world.run()
    world.line.foreign.append((NOOR, Listed(f"SM{uuid4().hex}", "Uw pakket.", datetime.now(UTC), "sent")))
    world.settle_doubts()
    page = hr.get(path).text
    said = words_of(page)
    parts = world.value("SELECT max(parts) FROM messages")
    assert parts > 1
    for n in range(1, parts + 1):
        assert f"Assistent · {n}/{parts}" in said
    assert said.count("Niet verstuurd: het deel ervoor is niet (zeker) aangekomen.") == parts - 1
    assert page.count('class="stuck"') == 1
    assert page.count(" follows") == parts - 1


def test_what_was_not_delivered_is_sent_once_more_as_a_new_message(world: World, hr: Visitor) -> None:
    path = asked(world)
    message = world.value("SELECT id FROM messages WHERE from_self AND conversation_id = %(c)s", c=id_of(world))
    callback(world, world.line.accepted[-1], "undelivered", ErrorCode="63024")
    page = words_of(hr.get(path).text)
    assert "Dit nummer kan dit bericht niet ontvangen. (code 63024 )" in page
    assert "WhatsApp meldde: niet bezorgd: Dit nummer kan dit bericht niet ontvangen." in page
    assert notice(hr, hr.post(f"{path}/messages/{message}/send-again"))
    world.run()
    said = words_of(hr.get(path).text)
    assert "Assistent · opnieuw verstuurd" in said
    assert "Nog eens versturen" not in said, "one at a time"
    assert len(world.sent_to(NOOR)) == 2


@pytest.mark.parametrize("gone", ["opted_out_at = now()", "last_inbound_at = now() - interval '25 hours'"])
def test_what_cannot_be_sent_is_not_offered(world: World, hr: Visitor, gone: str) -> None:
    path, message = held(world)
    world.execute(f"UPDATE conversations SET {gone}")
    page = hr.get(path).text
    assert f"{message}/send-again" not in page
    assert f"{message}/close" in page


def test_an_unknown_message_is_said_to_be_none(world: World, hr: Visitor) -> None:
    path = asks(world)
    for action in ("look-again", "send-again", "close"):
        assert problem(hr.post(f"{path}/messages/{UUID(int=7)}/{action}")) == "Dit bericht bestaat niet."
