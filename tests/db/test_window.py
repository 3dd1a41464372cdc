"""After WhatsApp's 24 hours: an approved template carries the answer, or it is held; never a send that must fail."""

from __future__ import annotations

from typing import Any

import pytest

from shared.clients.twilio import Template
from shared.conversation.text import utf16_units
from shared.conversation.window import VARIABLE_UNITS, template_for
from shared.db.pool import Database
from shared.queue import replay
from shared.queue.dead_letters import Filter
from shared.queue.replays_dry_run import count_replay
from tests.fakes.desk import flagged, fresh, replay_all
from tests.fakes.replies import ADDRESS, ANSWER, NOTICE, QUESTION, callback, raising
from tests.fakes.world import World, run_all

TEMPLATE = "HX" + "1" * 32
A_DAY_LATER = "UPDATE conversations SET last_inbound_at = now() - interval '24 hours 1 second'"
FLAT = "Je praat met een digitale assistent; stuur “medewerker” als je liever een mens spreekt. " + ANSWER.replace(
    "\n\n", " "
)


def waits(world: World) -> None:
    """An answer is drafted and could not be sent, and then a day goes by."""
    world.line.before = raising(ConnectionRefusedError())
    world.says(ADDRESS, QUESTION)
    world.run()
    world.execute(A_DAY_LATER)


@pytest.fixture
def world(database: Database) -> World:
    """Without a template."""
    found = fresh(database)
    waits(found)
    return found


@pytest.fixture
def templated(database: Database) -> World:
    return fresh(database, TWILIO_TEMPLATE_SID=TEMPLATE)


def reply(world: World) -> tuple[Any, ...]:
    return world.rows(
        "SELECT status, held_reason, template_sid, send_attempt FROM messages WHERE source = 'ai' ORDER BY seq LIMIT 1"
    )[0]


def job(world: World) -> tuple[Any, ...]:
    return world.rows("SELECT status, error_class FROM ai_jobs WHERE type = 'autoreply' ORDER BY seq LIMIT 1")[0]


def restart(world: World) -> str:
    dead = world.value("SELECT id FROM ai_jobs WHERE status = 'failed' AND closed_at IS NULL AND type = 'autoreply'")
    with world.database.connection() as connection:
        return replay.restart(connection, [dead], who="test")[dead]


def test_without_a_template_it_is_held_and_nothing_goes_out(world: World) -> None:
    run_all(world)
    assert world.line.accepted == []  # no apology either
    assert reply(world) == ("held", "outside_window", None, 1)
    assert job(world) == ("failed", "outside_window")
    assert flagged(world) == "outside_window"


def test_a_restart_is_held_again_until_the_employee_has_written(world: World) -> None:
    run_all(world)
    assert restart(world) == "restarted"
    run_all(world)
    assert reply(world)[:2] == ("held", "outside_window")
    assert flagged(world) == "outside_window"
    world.execute("UPDATE conversations SET last_inbound_at = now()")
    assert restart(world) == "restarted"
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert flagged(world) is None


def test_bulk_replay_takes_it_along_once_there_is_a_template(world: World) -> None:
    run_all(world)
    templated = World(world.database, TWILIO_TEMPLATE_SID=TEMPLATE)
    with world.database.connection() as connection:
        assert count_replay(connection, Filter(), rate=1.0).left_out == 0, "it surely never left"
    assert replay_all(templated).restarted == 1
    run_all(templated)
    assert templated.line.accepted[0]["template"] == Template(TEMPLATE, {"1": FLAT})


def test_a_new_question_takes_the_place_of_what_is_held(world: World) -> None:
    run_all(world)
    world.execute("UPDATE messages SET created_at = created_at - interval '25 hours' WHERE NOT from_self")
    world.says(ADDRESS, "en hoeveel verlof heb ik nu?")
    run_all(world)
    assert world.sent_to(ADDRESS) == [NOTICE + ANSWER]
    assert reply(world)[0] == "held"


def test_with_a_template_it_goes_out_in_that_on_one_line(templated: World) -> None:
    waits(templated)
    run_all(templated)
    (message,) = templated.line.accepted
    assert message["template"] == Template(TEMPLATE, {"1": FLAT})
    assert reply(templated) == ("sent", None, TEMPLATE, 2)
    assert templated.rows("SELECT template_variables FROM messages WHERE source = 'ai'") == [({"1": FLAT},)]
    assert job(templated) == ("done", None)


def test_within_the_window_it_is_a_text(templated: World) -> None:
    templated.says(ADDRESS, QUESTION)
    templated.run()
    assert templated.line.accepted[0]["template"] is None
    assert reply(templated)[2] is None


def test_a_template_carries_all_parts_at_once(templated: World) -> None:
    templated.model.says = lambda _: "Dit is een zin over verlof en wat daarbij hoort [1]. " * 80
    waits(templated)
    run_all(templated)
    (message,) = templated.line.accepted
    said = message["template"].variables["1"]
    assert utf16_units(said) <= VARIABLE_UNITS
    assert said.endswith(" … Bron: [1] Personeelshandboek › Verlof")
    rows = templated.rows("SELECT status, held_reason FROM messages WHERE source = 'ai' ORDER BY part")
    assert rows == [("sent", None), *[("failed", "in_template")] * (len(rows) - 1)]
    assert len(rows) > 2
    assert job(templated) == ("done", None)


def breaks_off(world: World, *, accepted: bool) -> None:
    waits(world)
    if accepted:
        world.line.after = raising(ConnectionResetError())
    else:
        world.line.before = raising(ConnectionResetError())
    world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
    world.run()
    assert reply(world)[0] == "sending"


def test_a_template_in_doubt_is_settled_by_its_callback(templated: World) -> None:
    breaks_off(templated, accepted=True)
    templated.pass_time(20)
    templated.run()
    assert job(templated)[0] == "pending"
    callback(templated, templated.line.accepted[0], "sent")
    templated.settle_doubts()
    assert reply(templated)[0] == "sent"
    assert job(templated) == ("done", None)
    assert templated.line.looked == []


@pytest.mark.parametrize("accepted", [True, False], ids=["accepted", "not-accepted"])
def test_a_template_that_nobody_tells_of_is_held_and_never_sent_again(templated: World, accepted: bool) -> None:
    breaks_off(templated, accepted=accepted)
    templated.settle_doubts()
    assert reply(templated)[0] == "held"
    assert job(templated) == ("failed", "held")
    restart(templated)
    templated.settle_doubts()
    assert reply(templated)[0] == "held"
    assert len(templated.line.accepted) == int(accepted)


def test_what_failed_because_the_day_was_over_goes_out_in_a_template(templated: World) -> None:
    """Twilio's clock and ours need not agree on when the 24 hours end."""
    templated.says(ADDRESS, QUESTION)
    templated.run()
    callback(templated, templated.line.accepted[0], "failed", ErrorCode="63016")
    run_all(templated)
    assert [message["template"] for message in templated.line.accepted] == [None, Template(TEMPLATE, {"1": FLAT})]
    callback(templated, templated.line.accepted[1], "failed", ErrorCode="63016")
    run_all(templated)
    assert len(templated.line.accepted) == 2
    assert flagged(templated) == "undelivered"


def test_without_a_template_a_day_that_was_over_is_only_flagged(database: Database) -> None:
    world = fresh(database)
    world.says(ADDRESS, QUESTION)
    world.run()
    callback(world, world.line.accepted[0], "failed", ErrorCode="63016")
    run_all(world)
    assert len(world.line.accepted) == 1
    assert flagged(world) == "undelivered"


def test_a_variable_holds_no_line_breaks_and_no_long_gaps() -> None:
    said = template_for(TEMPLATE, ["a\n\nb\tc      d", " e\n\nBron: [1] Handboek\nVerlof"]).variables["1"]
    assert said == "a b c d e Bron: [1] Handboek Verlof"
    short = template_for(TEMPLATE, ["woord " * 400]).variables["1"]
    assert utf16_units(short) <= VARIABLE_UNITS
    assert short.endswith("…")
