"""Messages whose webhook never came: found in Twilio's list, taken in once, with their own time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import requests

from local.standins.twilio import TwilioStandIn
from shared.app import App
from shared.clients.twilio import Received, TwilioLine
from shared.conversation.sweep import Sweep
from shared.db.pool import Database
from shared.errors import TransientError
from tests.fakes.eventually import eventually
from tests.fakes.world import World, run_all, settings

ADDRESS, OTHER = "+31600000001", "+31600000002"
STOPPED = "Je ontvangt geen berichten meer van ons. Stuur START om weer mee te doen."
BACK = "Welkom terug. Stel gerust je vraag."


@pytest.fixture
def world(database: Database) -> World:
    world = World(database, AI_NOTICE="off")
    world.execute(
        "TRUNCATE message_events, ai_jobs, job_attempts, messages, conversations, people, documents, chores CASCADE"
    )
    world.execute("UPDATE schema_migrations SET applied_at = now() - interval '30 days'")
    world.add_handbook()
    return world


def sweep(world: World) -> int:
    ours = world.settings
    chore = Sweep(world.line, world.wake.wake, ours.sweep_hours, ours.settle_seconds, ours.default_language)
    return chore.take_in(world.database)


def missed(world: World, body: str, *, minutes: float, sid: str = "", address: str = ADDRESS, media: int = 0) -> str:
    """Twilio has received it, and could not reach us."""
    created = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=minutes)
    sid = sid or f"SM-{body}-{minutes}"
    world.line.inbox.append(Received(sid, address, body, created, media))
    return sid


def bodies(world: World) -> list[str]:
    return [row[0] for row in world.rows("SELECT body FROM messages WHERE NOT from_self ORDER BY seq")]


def test_what_never_came_is_taken_in_once_in_its_order_and_answered_once(world: World) -> None:
    missed(world, "en hoeveel uur is dat?", minutes=20)
    missed(world, "hoeveel verlof heb ik?", minutes=25)
    assert sweep(world) == 2
    assert bodies(world) == ["hoeveel verlof heb ik?", "en hoeveel uur is dat?"]
    created = world.value("SELECT created_at FROM messages ORDER BY seq LIMIT 1")
    assert created == min(message.created for message in world.line.inbox)
    assert world.value("SELECT raw ->> 'Listed' FROM messages LIMIT 1") == "true"
    assert world.wake.delays != []
    assert sweep(world) == 0
    run_all(world)
    assert len(world.sent_to(ADDRESS)) == len(world.model.asked) == 1
    assert sweep(world) == 0
    run_all(world)
    assert len(world.line.accepted) == 1


def test_what_the_webhook_has_brought_is_left_alone(world: World) -> None:
    sid = missed(world, "hoeveel verlof heb ik?", minutes=10)
    world.says(ADDRESS, "hoeveel verlof heb ik?", sid=sid, ProfileName="Noor")
    before = world.rows("SELECT id, created_at, raw, answered_by FROM messages")
    assert sweep(world) == 0
    assert world.rows("SELECT id, created_at, raw, answered_by FROM messages") == before


def test_a_webhook_that_comes_after_the_list_changes_nothing(world: World) -> None:
    sid = missed(world, "hoeveel verlof heb ik?", minutes=10)
    assert sweep(world) == 1
    assert not world.says(ADDRESS, "hoeveel verlof heb ik?", sid=sid).is_new
    run_all(world)
    assert len(world.line.accepted) == 1


@pytest.mark.parametrize(("said", "word"), [("STOP", "START"), ("START", "STOP")])
def test_a_missed_word_does_not_undo_what_they_said_last(world: World, said: str, word: str) -> None:
    """The last word changed nothing when it came, since the one before it was never received."""
    for minutes in (60, 20):
        world.says(ADDRESS, said)
        run_all(world)
        world.execute(
            "UPDATE messages SET created_at = now() - make_interval(mins => %(minutes)s)"
            " WHERE created_at > now() - interval '5 minutes'",
            minutes=minutes,
        )
        world.execute(
            "UPDATE conversations SET consent_changed_at = now() - interval '60 minutes' WHERE opted_out_at IS NOT NULL"
        )
    before = len(world.line.accepted)
    missed(world, word, minutes=30)
    assert sweep(world) == 1
    run_all(world)
    assert world.value("SELECT opted_out_at IS NOT NULL FROM conversations") is (said == "STOP")
    assert len(world.line.accepted) == before


def test_what_may_still_be_on_its_way_is_waited_for(world: World) -> None:
    missed(world, "hoeveel verlof heb ik?", minutes=1)
    assert sweep(world) == 0


def test_what_is_too_old_to_answer_is_flagged_and_keeps_waiting_for_a_person(database: Database, world: World) -> None:
    del world
    wide = World(database, SWEEP_HOURS="48")
    missed(wide, "hoeveel verlof heb ik?", minutes=26 * 60)
    missed(wide, "hallo?", minutes=10, address=OTHER)
    assert sweep(wide) == 2
    assert wide.rows("SELECT body, answered_by FROM messages WHERE NOT from_self ORDER BY seq LIMIT 1") == [
        ("hoeveel verlof heb ik?", None)
    ]
    assert wide.rows("SELECT address, needs_person_reason FROM conversations ORDER BY address") == [
        (ADDRESS, "overdue"), (OTHER, None),
    ]  # fmt: skip
    run_all(wide)
    assert wide.sent_to(ADDRESS) == []
    assert len(wide.sent_to(OTHER)) == 1
    assert wide.value(
        "SELECT last_inbound_at < now() - interval '25 hours' FROM conversations ORDER BY address LIMIT 1"
    )
    wide.says(ADDRESS, "en nu?")
    run_all(wide)
    assert len(wide.sent_to(ADDRESS)) == 1
    assert "hoeveel verlof" not in str(wide.model.asked[-1])


def test_only_the_hours_that_are_set_are_looked_at(database: Database, world: World) -> None:
    del world
    narrow = World(database, SWEEP_HOURS="2")
    missed(narrow, "hoi", minutes=121)
    assert sweep(narrow) == 0


def test_what_came_before_this_was_installed_is_somebody_else_s(world: World) -> None:
    world.execute("UPDATE schema_migrations SET applied_at = now() - interval '1 hour'")
    missed(world, "oude vraag", minutes=90)
    missed(world, "nieuwe vraag", minutes=30)
    assert sweep(world) == 1
    assert bodies(world) == ["nieuwe vraag"]
    world.execute("UPDATE schema_migrations SET applied_at = now()")
    world.line.listing = lambda: pytest.fail("there is nothing to ask for")
    assert sweep(world) == 0


def test_consent_goes_by_the_time_of_the_words(world: World) -> None:
    missed(world, "stop", minutes=40)
    missed(world, "start", minutes=30)
    assert sweep(world) == 2
    run_all(world)
    assert world.sent_to(ADDRESS) == [STOPPED, BACK]
    assert world.value("SELECT opted_out_at FROM conversations") is None
    # An older word, found later, says nothing any more, and is no question.
    missed(world, "Afmelden", minutes=35)
    missed(world, "aanmelden", minutes=34)
    assert sweep(world) == 2
    run_all(world)
    assert world.value("SELECT opted_out_at FROM conversations") is None
    assert len(world.line.accepted) == 2
    assert world.model.asked == []
    missed(world, "stop", minutes=5, sid="SM-last")
    assert sweep(world) == 1
    assert world.value("SELECT opted_out_at IS NOT NULL FROM conversations")


def test_a_stop_that_is_too_old_to_confirm_still_counts(database: Database, world: World) -> None:
    del world
    wide = World(database, SWEEP_HOURS="48")
    missed(wide, "stop", minutes=26 * 60)
    assert sweep(wide) == 1
    run_all(wide)
    assert wide.value("SELECT opted_out_at IS NOT NULL FROM conversations")
    assert wide.line.accepted == []
    assert wide.value("SELECT needs_person_since FROM conversations") is None
    missed(wide, "hallo?", minutes=25 * 60)
    assert sweep(wide) == 1
    assert wide.value("SELECT count(*) FROM messages WHERE answered_by IS NULL AND NOT from_self") == 0


def test_a_photo_without_its_webhook_gets_the_honest_line(world: World) -> None:
    missed(world, "", minutes=10, media=1)
    missed(world, "Hoeveel verlof is dit?", minutes=10, media=2, address=OTHER)
    assert sweep(world) == 2
    run_all(world)
    assert world.sent_to(ADDRESS)[0].startswith("Foto’s, spraakberichten")
    assert world.sent_to(OTHER)[0].startswith("Wat je hebt meegestuurd")


def test_a_list_that_cannot_be_had_is_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    missed(world, "hoi", minutes=10)

    def fail() -> None:
        raise TransientError("timeout", "no answer")

    world.line.listing = fail
    assert sweep(world) == 0
    assert [(record.levelno, "sweep_failed" in record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, True)
    ]
    world.line.listing = lambda: None
    assert sweep(world) == 1


def test_one_that_cannot_be_stored_does_not_keep_the_others_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    missed(world, "hoi", minutes=12, sid="S" * 64)
    world.line.inbox.append(Received("SM-broken", "", "x", datetime.now(UTC) - timedelta(minutes=11)))
    world.execute("ALTER TABLE conversations ADD CONSTRAINT broken CHECK (address <> '')")
    try:
        assert sweep(world) == 1
    finally:
        world.execute("ALTER TABLE conversations DROP CONSTRAINT broken")
    assert "sweep_skipped" in caplog.text
    assert bodies(world) == ["hoi"]


def test_the_timer_sweeps_once_in_its_minutes_over_all_instances(world: World, database: Database) -> None:
    another = World(database, AI_NOTICE="off")
    for one in (world, another):
        missed(one, "hoeveel verlof heb ik?", minutes=10, sid="SM-same")
    looks: list[int] = []
    world.line.listing = another.line.listing = lambda: looks.append(1)
    for _ in range(2):
        for one in (world, another):
            one.app.on_timer()
    assert len(looks) == 1
    assert bodies(world) == ["hoeveel verlof heb ik?"]
    world.execute("UPDATE chores SET ran_at = now() - interval '16 minutes' WHERE name = 'sweep'")
    world.app.on_timer()
    assert len(looks) == 2
    assert len(world.line.accepted) + len(another.line.accepted) == 1


# Through Twilio's own library, from a stand-in that keeps what it has received


@pytest.fixture
def twilio() -> Iterator[TwilioStandIn]:
    with TwilioStandIn() as standin:
        yield standin


def real(world: World, twilio: TwilioStandIn) -> TwilioLine:
    return TwilioLine(settings(
        TWILIO_API_BASE_URL=twilio.url, TWILIO_ACCOUNT_SID=twilio.account_sid, TWILIO_AUTH_TOKEN=twilio.auth_token,
        TWILIO_WHATSAPP_FROM=twilio.whatsapp_from,
    ))  # fmt: skip


def test_an_outage_longer_than_twilio_s_retries_loses_nothing(world: World, twilio: TwilioStandIn) -> None:
    texts = {f"+3160000010{n}": f"vraag {n}: hoeveel verlof heb ik?" for n in range(5)}
    twilio.conditions.change({"webhook": "lost"})
    for address, text in texts.items():
        twilio.receive(address, text)
    twilio.receive("+31600000100", "😀 Zie foto", media_url="https://example.org/x.jpg", media_type="image/jpeg")
    twilio.messages.add(
        sender="+31600000109", to=twilio.whatsapp_from, body="an SMS", direction="inbound", status="received"
    )
    twilio.messages.add(
        sender="whatsapp:+31600000108", to=twilio.whatsapp_from, body="ours", direction="outbound-api", status="sent"
    )
    requests.post(f"{twilio.url}/_age", json={"seconds": 3600}, timeout=60)
    line = real(world, twilio)
    app = App(
        world.settings, database=world.database, wake=world.wake, chat=world.model, embedder=world.model, line=line
    )

    def answered() -> list[str]:
        world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
        app.on_timer()
        sent = [message.to for message in twilio.messages.all() if message.to != twilio.whatsapp_from]
        return sorted(to.removeprefix("whatsapp:") for to in sent)

    for _ in range(2):
        world.execute("DELETE FROM chores")
        app.on_timer()
        eventually(lambda: len(answered()) >= len(texts))  # a request that would leave too late waits for the next time
    assert sorted(bodies(world)) == sorted([*texts.values(), "😀 Zie foto"])
    assert answered() == sorted(texts)
    line.close()


def test_the_list_is_read_page_by_page_and_only_so_far_back(world: World, twilio: TwilioStandIn) -> None:
    twilio.conditions.change({"webhook": "lost"})
    for n in range(450):
        twilio.messages.add(sender=f"whatsapp:{ADDRESS}", to=twilio.whatsapp_from, body=f"m{n}", direction="inbound",
                            status="received")  # fmt: skip
    line = real(world, twilio)
    found = line.inbound(since=datetime.now(UTC) - timedelta(hours=1))
    assert (len(found.messages), found.reaches) == (450, True)
    assert found.messages[0].body == "m449"
    assert [request.where for request in twilio.requests] == ["list"] * 3
    requests.post(f"{twilio.url}/_age", json={"seconds": 7200}, timeout=60)
    assert line.inbound(since=datetime.now(UTC) - timedelta(hours=1)).messages == ()
    line.close()


def test_a_list_that_breaks_off_says_so(world: World, twilio: TwilioStandIn) -> None:
    line = real(world, twilio)
    twilio.faults.add("list", "status", status=503)
    with pytest.raises(Exception, match="503"):
        line.inbound(since=datetime.now(UTC) - timedelta(hours=1))
    line.close()
