"""Replays of what is for a disabled endpoint: refused, also when it is only asked what they would do, and stopped when that
happens meanwhile, with the reason."""

from __future__ import annotations

import pytest

from cli import __main__ as command
from cli.output import Status
from shared.db.pool import Database
from shared.queue import replays, replays_drive
from shared.queue.dead_letters import Filter
from shared.queue.replays import Replay
from shared.queue.replays_dry_run import count_replay
from tests.fakes.deliveries import add_delivery, add_endpoint, forget_deliveries
from tests.fakes.desk import refused
from tests.fakes.visitor import HERE, Visitor, words_of
from tests.fakes.world import World

DISABLE = "UPDATE webhook_endpoints SET disabled_at = now(), disabled_reason = 'gone' WHERE name = 'billing'"
ENABLE = "UPDATE webhook_endpoints SET disabled_at = NULL, disabled_reason = NULL"
BILLING = Filter(endpoint="billing")


@pytest.fixture
def world(database: Database) -> World:
    made = World(database, OPS_AUTH="local", PUBLIC_BASE_URL=HERE)
    forget_deliveries(made)
    add_endpoint(made, "archive")
    add_delivery(made, add_endpoint(made, "billing"))
    return made


def plan(world: World, to: str | None = None) -> Replay:
    with world.database.connection() as connection:
        return replays.start(connection, BILLING, who="anna", reason="billing is back", rate=1000.0, to=to)


def advance(world: World, found: Replay) -> Replay:
    return replays_drive.advance(world.database, found.id, seconds=60)


def test_what_is_for_a_disabled_endpoint_is_refused_also_when_it_is_only_counted(world: World) -> None:
    world.execute(DISABLE)
    with world.database.connection() as connection:
        assert refused(lambda: count_replay(connection, BILLING, rate=1.0)) == "endpoint_is_disabled"
        assert count_replay(connection, BILLING, rate=1.0, to="archive").restarted == 1
    assert refused(lambda: plan(world)) == "endpoint_is_disabled"
    assert advance(world, plan(world, to="archive")).restarted == 1


def test_a_replay_whose_own_endpoint_is_disabled_meanwhile_stops_itself_and_says_why(world: World) -> None:
    found = plan(world)
    world.execute(DISABLE)
    stopped = advance(world, found)
    assert (stopped.state, stopped.stopped_itself, stopped.restarted) == ("stopped", True, 0)
    assert world.value("SELECT count(*)::int FROM dead_letters") == 1
    page = words_of(Visitor(world.app).get(f"/jobs/replays/{found.id}").text)
    assert "gestopt vanzelf, omdat de bestemming uit staat" in page
    with world.database.connection() as connection:
        replays.resume(connection, found.id, who="anna")
        assert advance(world, found).stopped_itself, "resuming alone does not help"
        world.execute(ENABLE)
        replays.resume(connection, found.id, who="anna")
    assert advance(world, found).restarted == 1


def test_the_command_tells_whether_a_person_or_the_endpoint_stopped_it(
    world: World, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    found = plan(world)
    world.execute(DISABLE)
    assert command.main(["dlq", "resume", str(found.id)]) == Status.FAILED
    assert f"Its endpoint is disabled: enable it; `dlq resume {found.id}` goes on." in capsys.readouterr().err
    assert command.main(["dlq", "replay", "--endpoint", "billing", "--rate", "1", "--dry-run"]) == Status.USAGE
    assert "The endpoint billing is disabled: enable it first." in capsys.readouterr().err
