"""Endpoints: what people set of them, who undoes whom, and what becomes of deliveries that wait."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from shared import audit
from shared.clients.guard import Guard
from shared.db.pool import Database
from shared.errors import UserError
from shared.secrets import Vault
from shared.webhooks import endpoints, ping
from shared.webhooks.endpoints import BY_HAND, Added, Endpoint, EndpointSettings
from tests.fakes.deliveries import add_delivery, forget_deliveries
from tests.fakes.world import World

GUARD = Guard(("127.0.0.1",))
VAULT = Vault([b"k" * 32])
PLAIN = EndpointSettings(url="https://hooks.example.org/in")
ANNA = "anna@example.org"


@pytest.fixture
def world(database: Database) -> World:
    made = World(database)
    forget_deliveries(made)
    made.execute("TRUNCATE audit_log")
    return made


def add(world: World, name: str = "orders", wanted: EndpointSettings = PLAIN, **also: object) -> Added:
    with world.database.connection() as connection:
        return endpoints.add(connection, name, wanted, guard=GUARD, vault=VAULT, who=ANNA, **also)  # type: ignore[arg-type]


def change(world: World, endpoint: UUID, wanted: EndpointSettings, *, seen: int, **also: object) -> None:
    with world.database.connection() as connection:
        endpoints.change(connection, endpoint, wanted, seen=seen, guard=GUARD, who=ANNA, **also)  # type: ignore[arg-type]


def find(world: World, name: str | UUID = "orders") -> Endpoint:
    with world.database.connection() as connection:
        found = endpoints.find_endpoint(connection, name)
    assert found is not None
    return found


def log(world: World) -> list[audit.Entry]:
    with world.database.connection() as connection:
        return audit.list_entries(connection, limit=50)


def secrets(world: World, endpoint: UUID) -> list[str]:
    """What would sign now."""
    with world.database.connection() as connection:
        return list(ping.prepare(connection, endpoint, vault=VAULT).target.secrets)


def test_an_endpoint_is_added_and_its_secret_shown_once(world: World) -> None:
    wanted = replace(PLAIN, events=("batch.*",), rate=2.0, concurrency=8, schedule="decorrelated", timeout_seconds=3.0)
    added = add(world, wanted=wanted, headers={"Authorization": "Bearer very-secret"})
    found = find(world)
    assert found == find(world, added.id)
    assert found.settings == wanted
    assert (found.health, found.header_names, found.version, found.waiting) == ("well", ["Authorization"], 1, 0)
    assert added.secret.startswith("whsec_")
    assert secrets(world, added.id) == [added.secret]
    kept = str(world.rows("SELECT secret, headers, header_names FROM webhook_endpoints")) + str(found) + str(log(world))
    assert added.secret not in kept
    assert "very-secret" not in kept
    assert [(line.what, line.who, line.details["endpoint"]) for line in log(world)] == [
        ("add_endpoint", ANNA, "orders")
    ]
    with world.database.connection() as connection:
        target = ping.prepare(connection, added.id, vault=VAULT).target
    assert target.headers == {"Authorization": "Bearer very-secret"}
    assert "very-secret" not in repr(target)


def test_what_cannot_be_added_leaves_nothing(world: World) -> None:
    add(world, "taken", secret="a-secret-of-their-own")
    for name, wanted, also, said in (
        ("taken", PLAIN, {}, "endpoint_exists"),
        ("Upper", PLAIN, {}, "endpoint_name"),
        ("inside", replace(PLAIN, url="https://10.1.2.3/"), {}, "endpoint_url"),
        ("short", PLAIN, {"secret": "short"}, "endpoint_secret"),
        ("host", PLAIN, {"headers": {"Host": "x"}}, "endpoint_header_reserved"),
    ):
        with pytest.raises(UserError) as refused:
            add(world, name, wanted, **also)
        assert refused.value.name == said
    assert world.value("SELECT count(*) FROM webhook_endpoints") == 1
    assert len(log(world)) == 1


def test_two_who_change_at_once_do_not_undo_each_other(world: World) -> None:
    added = add(world)
    seen = find(world)
    change(world, added.id, replace(seen.settings, concurrency=9), seen=seen.version)
    with pytest.raises(UserError, match="Somebody else has changed orders"):
        change(world, added.id, replace(seen.settings, timeout_seconds=1.0), seen=seen.version)
    now = find(world)
    assert (now.concurrency, now.timeout_seconds) == (9, 15.0)
    assert log(world)[0].details == {"endpoint": "orders", "concurrency": "4 → 9"}
    assert len(log(world)) == 2


def test_of_many_changes_from_one_look_one_counts(world: World) -> None:
    added, barrier, outcomes = add(world), threading.Barrier(8), []

    def try_it(number: int) -> None:
        barrier.wait()
        try:
            change(world, added.id, replace(PLAIN, concurrency=10 + number), seen=1)
            outcomes.append("changed")
        except UserError as refused:
            outcomes.append(str(refused.name))

    threads = [threading.Thread(target=try_it, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["changed"] + ["endpoint_changed"] * 7
    assert find(world).version == 2


def test_headers_are_kept_replaced_or_taken_away(world: World) -> None:
    added = add(world, headers={"X-Api-Key": "one"})
    change(world, added.id, replace(PLAIN, rate=1.0), seen=1)
    assert find(world).header_names == ["X-Api-Key"]
    with pytest.raises(UserError, match="both an extra header and the one for the signature"):
        change(world, added.id, replace(PLAIN, signature_header="x-api-key"), seen=2)
    change(world, added.id, PLAIN, seen=2, vault=VAULT, headers={"X-Other": "two"})
    assert log(world)[0].details == {"endpoint": "orders", "rate": "1 → ∞", "headers": "X-Api-Key → X-Other"}
    change(world, added.id, PLAIN, seen=3, vault=VAULT, headers={})
    assert find(world).header_names == []
    assert world.value("SELECT headers FROM webhook_endpoints") is None


def test_a_rotation_overlaps_and_a_third_secret_waits(world: World) -> None:
    added = add(world)
    with world.database.connection() as connection:
        new = endpoints.rotate(connection, added.id, vault=VAULT, who=ANNA)
        assert secrets(world, added.id) == [new, added.secret]
        assert find(world).previous_until is not None
        with pytest.raises(UserError, match="overlap of 0 hours"):
            endpoints.rotate(connection, added.id, vault=VAULT, who=ANNA)
        world.execute("UPDATE webhook_endpoints SET previous_until = now() - interval '1 second'")
        assert secrets(world, added.id) == [new], "the previous one has ended"
        assert find(world).previous_until is None
        newer = endpoints.rotate(connection, added.id, vault=VAULT, who=ANNA, overlap_hours=1)
        assert secrets(world, added.id) == [newer, new]
        newest = endpoints.rotate(
            connection, added.id, vault=VAULT, who=ANNA, overlap_hours=0, secret="a-leak-was-found"
        )
        assert secrets(world, added.id) == [newest] == ["a-leak-was-found"], "a leak ends all old ones at once"
        for hours in (-1.0, 721.0, float("nan")):
            with pytest.raises(UserError, match="0 to 720 hours"):
                endpoints.rotate(connection, added.id, vault=VAULT, who=ANNA, overlap_hours=hours)
    assert [line.what for line in log(world)].count("rotate_endpoint") == 3
    assert "a-leak-was-found" not in str(log(world))


def test_a_secret_that_no_key_opens_ends_with_the_rotation(world: World) -> None:
    added = add(world)
    world.execute("UPDATE webhook_endpoints SET secret = 'under a key that was lost'")
    with world.database.connection() as connection:
        new = endpoints.rotate(connection, added.id, vault=VAULT, who=ANNA)
    assert secrets(world, added.id) == [new]
    assert find(world).previous_until is None


def test_disable_and_enable(world: World) -> None:
    added = add(world)
    with world.database.connection() as connection:
        with pytest.raises(UserError, match="nothing holds it up"):
            endpoints.enable(connection, added.id, who=ANNA)
        endpoints.disable(connection, added.id, who=ANNA, reason=" moved \n away ")
        assert (find(world).health, find(world).disabled_reason) == ("disabled", "moved away")
        with pytest.raises(UserError, match="disabled already"):
            endpoints.disable(connection, added.id, who=ANNA)
        world.execute("UPDATE webhook_endpoints SET failures_in_row = 7, open_until = now() + interval '5 minutes'")
        endpoints.enable(connection, added.id, who=ANNA)
        assert (find(world).health, find(world).failures_in_row, find(world).open_until) == ("well", 0, None)
        endpoints.disable(connection, added.id, who=ANNA)
        assert find(world).disabled_reason == BY_HAND
        with pytest.raises(UserError, match="longer than 500"):
            endpoints.disable(connection, added.id, who=ANNA, reason="x" * 501)
        for act in (endpoints.enable, endpoints.disable):
            with pytest.raises(UserError, match="There is no endpoint"):
                act(connection, uuid4(), who=ANNA)
    assert [line.what for line in log(world)] == [
        "disable_endpoint", "enable_endpoint", "disable_endpoint", "add_endpoint",
    ]  # fmt: skip


def test_health_in_a_word(world: World) -> None:
    added = add(world)
    world.execute("UPDATE webhook_endpoints SET failures_in_row = 2")
    assert find(world).health == "failing"
    world.execute("UPDATE webhook_endpoints SET failures_in_row = 5, open_until = now()")
    assert find(world).health == "resting"
    for state, count in (("waiting", 3), ("dead", 2), ("held", 1), ("delivered", 4), ("rejected", 1)):
        for _ in range(count):
            add_delivery(world, added.id, state)
    world.execute("UPDATE webhook_deliveries SET created_at = now() - interval '1 hour' WHERE state = 'dead'")
    found = find(world)
    assert (found.waiting, found.dead, found.held) == (3, 2, 1)
    assert found.oldest_waiting_seconds is not None
    assert found.oldest_waiting_seconds < 600


WAITING = "UPDATE ai_jobs SET next_run_at = now() + interval '1 hour', attempts = %(attempts)s WHERE id = %(job)s"
PROMISED = "UPDATE webhook_deliveries SET promised_at = now() + interval '1 hour' WHERE id = %(id)s"
PARKED = "UPDATE webhook_deliveries SET waits_until = now() + interval '1 hour' WHERE id = %(id)s"
DUE_IN = "SELECT extract(epoch FROM next_run_at - now())::float8 FROM ai_jobs WHERE id = %(job)s"


def waiting(world: World, endpoint: UUID, *, attempts: int = 0, why: str | None = None) -> UUID | None:
    """The job of a delivery that is due in an hour; `why` is PROMISED (the rate) or PARKED (breaker, concurrency)."""
    delivery, job = add_delivery(world, endpoint, "waiting")
    world.force(WAITING, job=job, attempts=attempts)
    if why:
        world.execute(why, id=delivery)
    return job


def due_in(world: World, *jobs: UUID | None) -> list[float]:
    """In how many seconds these are due, rounded to tenths."""
    return [round(world.value(DUE_IN, job=job), 1) for job in jobs]


def test_another_rate_forgets_the_promises_of_the_old_one(world: World) -> None:
    mine, other = add(world, wanted=replace(PLAIN, rate=0.01)).id, add(world, "other").id
    world.execute(
        "UPDATE webhook_endpoints SET promised_until = now() + interval '1 hour', paced_at = now() + interval '100 s'"
    )
    promised = [waiting(world, mine, why=PROMISED) for _ in range(3)]
    backing_off, others = waiting(world, mine, attempts=2), waiting(world, other, why=PROMISED)
    change(world, mine, replace(PLAIN, rate=0.01, timeout_seconds=5.0), seen=1)
    assert min(due_in(world, *promised)) > 3000, "the rate is the same"
    began = time.monotonic()
    change(world, mine, replace(PLAIN, rate=0.1), seen=2)
    found = sorted(due_in(world, *promised))
    took = time.monotonic() - began
    for wait, new in zip(found, (10.0, 20.0, 30.0), strict=True):
        assert new - took - 0.1 < wait <= new, "at the new rate"
    assert min(due_in(world, backing_off, others)) > 3000, "one waits for its next try, the other for another endpoint"
    change(world, mine, PLAIN, seen=3)
    assert max(due_in(world, *promised)) < 1.0
    moments = "SELECT promised_until <= now(), paced_at <= now() FROM webhook_endpoints WHERE id = %(id)s"
    assert world.rows(moments, id=mine) == [(True, True)]
    assert world.value("SELECT count(*) FROM webhook_deliveries WHERE promised_at IS NOT NULL") == 1, "the other's"


def test_more_places_let_those_go_that_wait_for_one(world: World) -> None:
    mine = add(world).id
    parked = [waiting(world, mine, why=PARKED) for _ in range(3)]
    change(world, mine, replace(PLAIN, concurrency=16), seen=1)
    assert max(due_in(world, *parked)) < 1.0


def test_a_change_of_rate_waits_for_nothing_that_somebody_holds(world: World) -> None:
    mine = add(world, wanted=replace(PLAIN, rate=0.01)).id
    jobs = [waiting(world, mine, why=PROMISED) for _ in range(3)]
    with world.database.transaction() as connection:
        connection.execute("SELECT FROM ai_jobs WHERE id = %(id)s FOR UPDATE", {"id": jobs[0]})
        connection.execute("SELECT FROM webhook_deliveries WHERE job_id = %(id)s FOR UPDATE", {"id": jobs[1]})
        change(world, mine, PLAIN, seen=1)
        found = due_in(world, *jobs)
    assert found[2] < 1.0
    assert min(found[:2]) > 3000


def test_another_address_begins_without_the_failures_of_the_one_before(world: World) -> None:
    mine, other = add(world, wanted=replace(PLAIN, concurrency=2)).id, add(world, "other").id
    world.execute(
        "UPDATE webhook_endpoints SET failures_in_row = 7, open_until = now() + interval '5 minutes', average_ms = 4000,"
        " promised_until = now() + interval '1 hour'"
    )
    parked, backing_off = [waiting(world, mine, why=PARKED) for _ in range(4)], waiting(world, mine, attempts=2)
    others = waiting(world, other, why=PARKED)
    change(world, mine, replace(PLAIN, concurrency=2, timeout_seconds=5.0), seen=1)
    assert find(world).health == "resting", "the address is the same"
    change(world, mine, replace(PLAIN, concurrency=2, url="https://elsewhere.example.org/"), seen=2)
    found = find(world)
    assert (found.health, found.failures_in_row, found.average_ms) == ("well", 0, None)
    moments = "SELECT extract(epoch FROM next_run_at - min(next_run_at) OVER ())::float8 FROM ai_jobs WHERE id = ANY (%(jobs)s)"
    assert sorted(round(row[0], 3) for row in world.rows(moments, jobs=parked)) == [0.0, 0.05, 0.1, 0.15], "no burst"
    assert max(due_in(world, *parked)) < 1.0
    assert min(due_in(world, backing_off, others)) > 3000
    with world.database.connection() as connection:
        assert [row.health for row in endpoints.list_endpoints(connection) if row.id == other] == ["resting"]


def test_what_waits_for_an_endpoint_that_is_disabled_dies_soon(world: World) -> None:
    mine, other = add(world).id, add(world, "other").id
    jobs = [waiting(world, mine, why=PARKED), waiting(world, mine, why=PROMISED), waiting(world, mine, attempts=3)]
    jobs += [waiting(world, mine, why=PARKED) for _ in range(7)]
    others = waiting(world, other, why=PARKED)
    held = waiting(world, mine, why=PARKED)
    with world.database.transaction() as holder, world.database.connection() as connection:
        holder.execute("SELECT FROM ai_jobs WHERE id = %(id)s FOR UPDATE", {"id": held})
        endpoints.disable(connection, mine, who=ANNA)
    moments = "SELECT extract(epoch FROM next_run_at - min(next_run_at) OVER ())::float8 FROM ai_jobs WHERE id = ANY (%(jobs)s)"
    found = sorted(row[0] for row in world.rows(moments, jobs=jobs))
    assert len(found) == 10
    assert min(later - earlier for earlier, later in itertools.pairwise(found)) > 0.004, "200 a second"
    assert max(due_in(world, *jobs)) < 1.0
    assert min(due_in(world, others, held)) > 3000, "one is another's, the other somebody held"
    with world.database.connection() as connection:
        assert endpoints.hasten_disabled(connection) == 1, "the chore finds what was left"
        assert endpoints.hasten_disabled(connection) == 0
    assert due_in(world, held)[0] < 1.0


def test_enabling_lets_go_at_once_what_waited_for_the_breaker(world: World) -> None:
    mine = add(world).id
    world.execute("UPDATE webhook_endpoints SET failures_in_row = 5, open_until = now() + interval '5 minutes'")
    held_up, backing_off = waiting(world, mine, why=PARKED), waiting(world, mine, attempts=1)
    with world.database.connection() as connection:
        endpoints.enable(connection, mine, who=ANNA)
    assert due_in(world, held_up)[0] < 1.0
    assert due_in(world, backing_off)[0] > 3000
