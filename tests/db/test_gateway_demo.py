"""What `up` does to the database for its webhooks page, also to one that is the person's own and has seen other keys."""

from __future__ import annotations

import os
from uuid import uuid4

import pytest

from local.gateway.demo import ENDPOINT, EVENTS, SOURCE, DemoSecrets, prepare, put_away
from local.gateway.desk import act
from shared.clients.guard import Guard
from shared.db.pool import Database
from shared.errors import UserError
from shared.secrets import Vault
from shared.webhooks import endpoints, sources
from tests.fakes.deliveries import add_delivery, forget_deliveries
from tests.fakes.desk import lines
from tests.fakes.world import World

KEY, OTHER_KEY = os.urandom(32), os.urandom(32)
HOOK = "http://127.0.0.1:7073/hook"


@pytest.fixture
def world(database: Database) -> World:
    made = World(database)
    forget_deliveries(made)
    made.execute("DELETE FROM audit_log")
    return made


def start(world: World, *, key: bytes = KEY, port: int = 7073) -> DemoSecrets:
    host = f"127.0.0.1:{port}"
    with world.database.connection() as connection:
        return prepare(connection, vault=Vault([key]), guard=Guard((host,)), hook_url=f"http://{host}/hook")


def stop(world: World) -> None:
    with world.database.connection() as connection:
        put_away(connection)


def endpoint(world: World) -> endpoints.Endpoint:
    with world.database.connection() as connection:
        found = endpoints.find_endpoint(connection, ENDPOINT)
    assert found
    return found


def test_it_is_made_once_and_the_next_start_finds_it_as_it_is(world: World) -> None:
    secrets = start(world)
    assert secrets.vendor.startswith("whsec_")
    assert (endpoint(world).url, endpoint(world).events, endpoint(world).disabled_at) == (HOOK, list(EVENTS), None)
    assert [line.what for line in lines(world)] == ["add_endpoint", "add_source"]
    assert start(world) == secrets
    assert len(lines(world)) == 2, "nothing was changed"


def test_between_two_starts_nothing_is_delivered_and_the_receiver_may_have_moved(world: World) -> None:
    secrets = start(world)
    stop(world)
    stop(world)
    assert endpoint(world).disabled_reason == "`up` has stopped"
    with world.database.connection() as connection:
        sources.disable(connection, SOURCE, who="anna")
    assert start(world, port=7999) == secrets
    assert (endpoint(world).url, endpoint(world).disabled_at) == ("http://127.0.0.1:7999/hook", None)
    with world.database.connection() as connection:
        found = sources.find_source(connection, SOURCE)
    assert found
    assert found.disabled_at is None


def test_what_another_key_has_sealed_gets_new_secrets_and_what_is_not_the_demo_s_stays(world: World) -> None:
    with world.database.connection() as connection:
        sources.add(connection, sources.NewSource(name="real", scheme="standard"), vault=Vault([OTHER_KEY]), who="anna")
    before = start(world, key=OTHER_KEY)
    after = start(world)
    assert not {before.vendor, before.receiver} & {after.vendor, after.receiver}
    assert start(world) == after
    assert [line.what for line in lines(world)].count("rotate_source") == 1
    assert world.value("SELECT previous_secret FROM webhook_sources WHERE name = 'real'") is None


def test_what_waits_is_due_when_a_person_says_so_and_nothing_else_is(world: World) -> None:
    start(world)
    _, job = add_delivery(world, endpoint(world).id, "waiting")
    world.execute('INSERT INTO ai_jobs (payload) VALUES (\'{"type": "suggest"}\')')
    world.execute("UPDATE ai_jobs SET next_run_at = now() + interval '1 hour'")
    other = world.value("SELECT id FROM ai_jobs WHERE type = 'suggest'")
    with world.database.connection() as connection:
        for known in (job, other, uuid4()):
            act(connection, "hurry", {"job": str(known)})
        with pytest.raises(KeyError):
            act(connection, "nonsense", {})
        with pytest.raises(ValueError, match="UUID"):
            act(connection, "hurry", {"job": "x"})
        with pytest.raises(UserError, match="nothing holds it up"):
            act(connection, "enable", {})
    assert world.rows("SELECT type FROM ai_jobs WHERE next_run_at <= now()") == [("deliver_event",)]
