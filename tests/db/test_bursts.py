"""Several messages in a row: one answer to the whole, each message in exactly one answer, and the answers in their order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shared.clients.azure_openai import ChatMessage
from shared.db.pool import Database
from tests.fakes.world import World, run_all

ADDRESS = "+31600000001"
SETTLE_SECONDS = 5.0  # time passes when the tests say so, and a machine that stands still for less changes nothing
DUE_IN = "SELECT extract(epoch FROM next_run_at - now())::float8 FROM ai_jobs WHERE type = 'autoreply' ORDER BY seq DESC LIMIT 1"
BURST = ["hoi", "ik heb een vraag", "hoeveel vakantiedagen heb ik?"]


@pytest.fixture
def world(database: Database) -> World:
    world = World(database, SETTLE_SECONDS=str(SETTLE_SECONDS), AI_NOTICE="off")
    world.execute("TRUNCATE message_events, ai_jobs, job_attempts, messages, conversations, people, documents CASCADE")
    world.add_handbook()
    return world


def pass_time(world: World, seconds: float) -> None:
    """Everything that the database has noted becomes so much older."""
    key = {"seconds": seconds}
    world.force("UPDATE ai_jobs SET next_run_at = next_run_at - make_interval(secs => %(seconds)s),"
                " run_started_at = run_started_at - make_interval(secs => %(seconds)s),"
                " created_at = created_at - make_interval(secs => %(seconds)s)", **key)  # fmt: skip
    world.force("UPDATE messages SET created_at = created_at - make_interval(secs => %(seconds)s)", **key)


def asked(world: World) -> list[str]:
    """The questions that the model was given."""
    prompts = [messages[-1]["content"] for messages in world.model.asked]
    return [prompt.partition('<question language="nl">\n')[2].removesuffix("\n</question>") for prompt in prompts]


def covered_by(world: World) -> list[int]:
    """Of each inbound message, in order, which of our replies answers it (from 1); 0 for none."""
    replies = [row[0] for row in world.rows("SELECT reply_id FROM messages WHERE from_self AND part = 1 ORDER BY seq")]
    rows = world.rows("SELECT answered_by FROM messages WHERE NOT from_self ORDER BY seq")
    return [replies.index(row[0]) + 1 if row[0] in replies else 0 for row in rows]


def test_three_messages_in_two_seconds_get_one_answer_to_the_whole(world: World) -> None:
    for text in BURST:
        world.says(ADDRESS, text)
        assert world.run() == 0, "it waits for the rest"
        pass_time(world, 0.7)
    pass_time(world, SETTLE_SECONDS)
    world.run()
    assert asked(world) == ["\n".join(BURST)]
    assert len(world.sent_to(ADDRESS)) == 1
    assert covered_by(world) == [1, 1, 1]


def test_a_burst_without_end_is_answered_after_six_seconds(world: World) -> None:
    waited, began = 0.0, time.monotonic()
    while world.says(ADDRESS, "en nog iets").due_in and waited < 20:
        assert world.value(DUE_IN) <= 6.0 - waited + 0.1
        if world.run():
            break
        pass_time(world, 1.0)
        waited += 1.0
    assert waited <= 6.1
    assert waited + time.monotonic() - began >= 5.9
    assert len(world.sent_to(ADDRESS)) == 1
    assert set(covered_by(world)) == {1}


def test_a_setting_of_nothing_waits_for_nobody(database: Database, world: World) -> None:
    del world
    eager = World(database, SETTLE_SECONDS="0", AI_NOTICE="off")
    for text in BURST[:2]:
        eager.says(ADDRESS, text)
        eager.run()
    assert covered_by(eager) == [1, 2]


def while_answering(world: World, texts: Sequence[str]) -> None:
    """The model takes its time over the first answer, and these come in meanwhile."""
    left = iter([list(texts)])

    def says(messages: Sequence[ChatMessage]) -> str:
        for text in next(left, []):
            world.says(ADDRESS, text)
        question = messages[-1]["content"].partition('<question language="nl">\n')[2].splitlines()[0]
        return f"Over {question.rstrip('?')}: 200 uur. [1]"

    world.model.says = says


def test_a_message_that_comes_while_the_answer_is_made_gets_its_own_after_the_first(world: World) -> None:
    while_answering(world, ["en deeltijd?", "ik bedoel 80 procent"])
    world.says(ADDRESS, "verlof?")
    run_all(world)
    assert asked(world) == ["verlof?", "en deeltijd?\nik bedoel 80 procent"]
    assert [body.partition(":")[0] for body in world.sent_to(ADDRESS)] == ["Over verlof", "Over en deeltijd"]
    assert covered_by(world) == [1, 2, 2]


def test_a_message_between_draft_and_send_is_not_lost_and_changes_nothing_of_the_draft(world: World) -> None:
    while_answering(world, [])
    refusals = iter([True])

    def refuse(_: dict[str, Any]) -> None:
        if next(refusals, False):
            raise ConnectionRefusedError

    world.line.before = refuse
    world.says(ADDRESS, "verlof?")
    pass_time(world, SETTLE_SECONDS)
    world.run()
    assert world.value("SELECT status FROM messages WHERE from_self") == "draft"
    world.says(ADDRESS, "en deeltijd?")
    run_all(world)
    assert asked(world) == ["verlof?", "en deeltijd?"]
    assert [body.partition(":")[0] for body in world.sent_to(ADDRESS)] == ["Over verlof", "Over en deeltijd"]
    assert covered_by(world) == [1, 2]


def test_a_message_during_the_request_gets_its_own_answer_after(world: World) -> None:
    while_answering(world, [])
    left = iter([True])

    def write(_: dict[str, Any]) -> None:
        if next(left, False):
            world.says(ADDRESS, "en deeltijd?")

    world.line.before = write
    world.says(ADDRESS, "verlof?")
    run_all(world)
    assert [body.partition(":")[0] for body in world.sent_to(ADDRESS)] == ["Over verlof", "Over en deeltijd"]
    assert covered_by(world) == [1, 2]


def test_many_conversations_at_once_keep_their_orders(world: World) -> None:
    addresses = [f"+3160000020{n}" for n in range(6)]

    def says(messages: Sequence[ChatMessage]) -> str:
        numbers = messages[-1]["content"].partition('<question language="nl">\n')[2].removesuffix("\n</question>")
        return f"{numbers.replace(chr(10), ' ')} zijn gezien. [1]"

    def talk(address: str) -> None:
        for n in range(8):
            world.says(address, f"nr{n}")

    world.model.says = says
    world.settings = World(world.database, SETTLE_SECONDS="0").settings
    with ThreadPoolExecutor(9) as pool:
        talking = [pool.submit(talk, address) for address in addresses]
        while not all(talk.done() for talk in talking):
            world.app.worker.poll_once(4)
    run_all(world, rounds=30)
    for address in addresses:
        seen = " ".join(world.sent_to(address)).split()
        assert [word for word in seen if word.startswith("nr")] == [f"nr{n}" for n in range(8)], address
    assert world.value("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == 0
