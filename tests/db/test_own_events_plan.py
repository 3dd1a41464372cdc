"""What a death costs is not more when many events are there: the ones that were told are found by the index that is for them."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from shared.db.pool import Database
from tests.db.test_queue_plans import Explained, nodes
from tests.fakes.deliveries import add_delivery, add_endpoint, add_event, forget_deliveries
from tests.fakes.world import World

CLAIM = """
    UPDATE ai_jobs SET status = 'processing', claims = claims + 1, lease_token = gen_random_uuid(), claimed_at = now(),
        lease_until = now() + interval '1 hour'
"""
BURY = """
    UPDATE ai_jobs SET status = 'failed', error_class = 'rejected', lease_token = NULL, lease_until = NULL WHERE id = %s
"""
DEATHS = 20  # a session keeps the plan that it made for any endpoint after five


@pytest.fixture
def world(database: Database) -> World:
    made = World(database)
    forget_deliveries(made)
    add_endpoint(made, "engineers", "job.failed")
    return made


@pytest.fixture
def explained(database_url: str) -> Iterator[Explained]:
    found = Explained(database_url)
    yield found
    found.connection.close()


def scans(explained: Explained, job: UUID) -> set[str]:
    """The index by which what was told is counted, when this job dies."""
    explained.plans.clear()
    explained.connection.execute(BURY, [job])
    return {
        node.get("Index Name", node["Node Type"])
        for plan in explained.plans
        for node in nodes(plan["Plan"])
        if node.get("Alias") == "t" and node.get("Relation Name") == "webhook_events"
    }


def test_a_plan_that_was_made_while_there_was_little_is_right_when_there_is_much(
    world: World, explained: Explained
) -> None:
    billing, event = add_endpoint(world, "billing", "nothing"), add_event(world)
    jobs = [job for _ in range(DEATHS) if (job := add_delivery(world, billing, "waiting", event=event)[1])]
    world.execute(CLAIM)
    assert [scans(explained, job) for job in jobs] == [{"webhook_events_told_dead"}] * DEATHS
