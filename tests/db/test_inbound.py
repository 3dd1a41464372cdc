"""The webhook's one statement: joined, deduplicated, raced, and consent in the same breath."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from shared.conversation import inbound
from shared.db.pool import Database
from shared.errors import RequestRefused
from shared.queue import store
from tests.fakes.crowd import roomy_pool
from tests.fakes.world import World

ADDRESS = "+31600000001"
COPIES = 20
ACTIVE = "SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing') AND type = 'autoreply'"


def fresh(database: Database) -> World:
    world = World(database, SETTLE_SECONDS="1.5")
    world.execute("TRUNCATE message_events, ai_jobs, job_attempts, messages, conversations, people CASCADE")
    return world


@pytest.fixture
def world(database: Database) -> World:
    return fresh(database)


@pytest.fixture
def crowd(database: Database) -> Iterator[World]:
    """A world with room for all copies; through PgBouncer where the other one is."""
    with roomy_pool(database._url, COPIES) as pool:
        yield fresh(pool)


def test_a_message_makes_a_conversation_and_a_job_that_settles(world: World) -> None:
    stored = world.says(ADDRESS, "hoi")
    assert stored.is_new
    assert stored.due_in is not None
    assert 0.7 < stored.due_in <= 1.5
    assert world.rows("SELECT address, mode FROM conversations") == [(ADDRESS, "auto")]
    assert world.rows("SELECT from_self, source, body, status, answered_by FROM messages") == [
        (False, "contact", "hoi", "received", None)
    ]
    assert world.rows("SELECT type, status, rerun FROM ai_jobs") == [("autoreply", "pending", False)]


def test_a_burst_joins_and_moves_the_job_but_not_beyond_six_seconds(world: World) -> None:
    world.says(ADDRESS, "hoi")
    world.execute("UPDATE ai_jobs SET run_started_at = now() - interval '5 seconds'")
    joined = world.says(ADDRESS, "ik heb een vraag")
    assert joined.due_in is not None
    assert joined.due_in <= 1.0
    assert world.value("SELECT extract(epoch FROM next_run_at - run_started_at)::float8 FROM ai_jobs") == pytest.approx(
        6.0
    )
    assert world.rows("SELECT count(*), bool_and(rerun) FROM ai_jobs") == [(1, True)]
    newest = world.value("SELECT id FROM messages ORDER BY seq DESC LIMIT 1")
    assert world.value("SELECT payload ->> 'message_id' FROM ai_jobs") == str(newest)


def test_a_job_that_was_claimed_is_joined_but_not_moved(world: World) -> None:
    world.says(ADDRESS, "hoi")
    world.execute("UPDATE ai_jobs SET next_run_at = now() + interval '20 seconds', claims = 1")
    assert world.says(ADDRESS, "nog iets").due_in == pytest.approx(20, abs=10)
    assert world.value("SELECT rerun FROM ai_jobs") is True


def test_a_repeated_sid_changes_nothing(world: World) -> None:
    world.says(ADDRESS, "hoi", sid="SM1")
    before = world.rows("SELECT last_inbound_at FROM conversations")
    repeated = world.says(ADDRESS, "hoi", sid="SM1")
    assert (repeated.is_new, repeated.due_in) == (False, None)
    assert world.rows("SELECT count(*) FROM messages") == [(1,)]
    assert world.rows("SELECT count(*), bool_or(rerun) FROM ai_jobs") == [(1, False)]
    assert world.rows("SELECT last_inbound_at FROM conversations") == before


@pytest.mark.parametrize("round_", range(5))
def test_twenty_parallel_copies_are_one_message_and_one_job(crowd: World, round_: int) -> None:
    world, sid = crowd, f"SM-{uuid4().hex}"
    with ThreadPoolExecutor(COPIES) as pool:
        stored = list(pool.map(lambda _: world.says(ADDRESS, "hoi", sid=sid), range(COPIES)))
    assert sum(result.is_new for result in stored) == 1
    assert world.rows("SELECT count(*) FROM messages") == [(1,)]
    assert world.rows("SELECT count(*), bool_or(rerun) FROM ai_jobs") == [(1, False)]


def test_parallel_messages_of_one_conversation_join_one_job(crowd: World) -> None:
    world = crowd
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: world.says(ADDRESS, f"vraag {n}"), range(64)))
    assert world.rows("SELECT count(*) FROM messages") == [(64,)]
    assert world.value(ACTIVE) == 1


def test_a_known_phone_links_the_person(world: World) -> None:
    world.execute("INSERT INTO people (phone, name) VALUES (%(phone)s, 'Someone')", phone=ADDRESS)
    world.says(ADDRESS, "hoi")
    assert world.value("SELECT p.phone FROM conversations c JOIN people p ON p.id = c.person_id") == ADDRESS


def test_an_address_that_is_no_phone_number_is_kept_as_it_is(world: World) -> None:
    world.says("NL.1234567890", "hoi", ExternalUserId="NL.1234567890")
    assert world.rows("SELECT address, external_user_id, person_id FROM conversations") == [
        ("NL.1234567890", "NL.1234567890", None)
    ]


def test_stop_opts_out_at_once_confirms_once_and_closes_what_was_open(world: World) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.says(ADDRESS, " Stop! ")
    world.says(ADDRESS, "STOP")
    world.says(ADDRESS, "hallo?")
    assert world.value("SELECT opted_out_at IS NOT NULL FROM conversations")
    assert world.rows("SELECT body FROM messages WHERE purpose = 'consent'") == [
        ("Je ontvangt geen berichten meer van ons. Stuur START om weer mee te doen.",)
    ]
    assert world.value("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == 0
    world.run()
    world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
    world.run()
    assert world.sent_to(ADDRESS) == ["Je ontvangt geen berichten meer van ons. Stuur START om weer mee te doen."]
    assert world.model.asked == []


def test_start_opts_in_again_and_is_confirmed_once(world: World) -> None:
    world.says(ADDRESS, "afmelden")
    world.says(ADDRESS, "START")
    assert world.value("SELECT opted_out_at FROM conversations") is None
    assert world.value("SELECT count(*) FROM messages WHERE purpose = 'consent'") == 2
    assert world.value("SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL") == 0
    world.says(ADDRESS, "start")  # not opted out: an ordinary message
    assert world.value("SELECT count(*) FROM messages WHERE purpose = 'consent'") == 2
    assert world.value(ACTIVE) == 1


def test_a_stop_that_comes_again_after_start_changes_nothing(world: World) -> None:
    world.says(ADDRESS, "stop", sid="SM-stop")
    world.says(ADDRESS, "start", sid="SM-start")
    world.says(ADDRESS, "stop", sid="SM-stop")
    assert world.value("SELECT opted_out_at FROM conversations") is None


def test_twilio_s_own_confirmation_is_not_doubled(world: World) -> None:
    world.says(ADDRESS, "STOP", OptOutType="STOP")
    assert world.value("SELECT opted_out_at IS NOT NULL FROM conversations")
    assert world.value("SELECT count(*) FROM messages WHERE from_self") == 0
    assert world.value("SELECT count(*) FROM ai_jobs") == 0


def test_the_confirmation_speaks_the_language_of_the_word(world: World) -> None:
    world.says(ADDRESS, "unsubscribe")
    assert "no more messages" in world.value("SELECT body FROM messages WHERE purpose = 'consent'")


def test_nul_and_lone_surrogates_are_stored_safely(world: World) -> None:
    world.says(ADDRESS, "a\0b\ud800c", ProfileName="x\0\udfff")
    assert world.value("SELECT body FROM messages") == "a\ufffdb\ufffdc"
    assert world.value("SELECT raw ->> 'ProfileName' FROM messages") == "x\ufffd\ufffd"


def test_media_are_kept_as_references(world: World) -> None:
    world.says(ADDRESS, "", NumMedia="1", MediaUrl0="https://example.org/x", MediaContentType0="image/jpeg")
    assert world.value("SELECT media FROM messages") == [{"url": "https://example.org/x", "type": "image/jpeg"}]


def test_repeated_fields_are_kept(world: World) -> None:
    fields = [("MessageSid", "SM9"), ("From", "whatsapp:+31600000009"), ("Tag", "a"), ("Tag", "b")]
    assert inbound.parse(fields).raw["Tag"] == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([("From", "whatsapp:+31600000001")], "no MessageSid"),
        ([("MessageSid", "SM1"), ("From", "+31600000001")], "not a WhatsApp address"),
        ([("MessageSid", "SM1")], "not a WhatsApp address"),
        ([("MessageSid", "SM1"), ("From", "whatsapp:")], "not a WhatsApp address"),
        ([("MessageSid", "S" * 65), ("From", "whatsapp:+31600000001")], "no MessageSid"),
    ],
)
def test_what_is_not_a_whatsapp_message_is_refused(fields: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(RequestRefused, match=words) as refused:
        inbound.parse(fields)
    assert refused.value.status == 400


def test_the_join_and_the_claim_race_without_losing_a_message(world: World) -> None:
    """Claimers that read and finish race with inserters: at the end every message was read by somebody."""
    world_settle_free = World(world.database)
    addresses = [f"+3160000010{n}" for n in range(3)]
    total = 120
    done = [False]
    clear = "UPDATE ai_jobs SET rerun = false WHERE id = %(id)s AND lease_token = %(token)s"
    cover = (
        "UPDATE messages SET answered_by = %(job)s WHERE conversation_id = %(conversation)s"
        " AND NOT from_self AND answered_by IS NULL"
    )

    def insert(n: int) -> None:
        world_settle_free.says(addresses[n % 3], f"vraag {n}")

    def work(_: int) -> None:
        while True:
            finished = done[0]
            with world.database.connection() as connection:
                jobs = store.claim(connection, 2, ["autoreply"], 30)
            for job in jobs:
                with world.database.transaction() as connection:
                    connection.execute(clear, {"id": job.id, "token": job.lease_token})
                    connection.execute(cover, {"job": job.id, "conversation": job.conversation_id})
                with world.database.transaction() as connection:
                    store.mark_done(connection, job)
            if finished and not jobs:
                return

    with ThreadPoolExecutor(7) as pool:
        workers = [pool.submit(work, n) for n in range(3)]
        list(pool.map(insert, range(total)))
        done[0] = True
        for worker in workers:
            worker.result()
    assert world.value("SELECT count(*) FROM messages") == total
    assert world.value("SELECT count(*) FROM messages WHERE answered_by IS NULL") == 0
    assert world.value(ACTIVE) == 0


def test_an_absurd_number_of_media_is_none() -> None:
    fields = [("MessageSid", "SM1"), ("From", "whatsapp:+31600000001"), ("NumMedia", "9" * 5000), ("Body", "x")]
    assert inbound.parse(fields).media == []
