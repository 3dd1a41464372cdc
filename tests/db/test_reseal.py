"""The rotation of SECRETS_KEY: every sealed column goes under the new key, while others change what they like."""

from __future__ import annotations

import base64
import json
from uuid import UUID, uuid4

import pytest

from cli.__main__ import main
from cli.output import Status
from shared.clients.guard import Guard
from shared.db.pool import Database
from shared.secrets import SecretUnreadable, Vault
from shared.webhooks import endpoints, reseal
from shared.webhooks.endpoint_headers import open_headers, secret_place
from shared.webhooks.endpoints import EndpointSettings
from tests.fakes.deliveries import forget_deliveries
from tests.fakes.world import World

OLD, NEW = b"o" * 32, b"n" * 32
ADD_SOURCE = """
    INSERT INTO webhook_sources (id, name, scheme, secret, previous_secret, previous_until, created_by)
    VALUES (%(id)s, %(id)s::text, 'standard', %(secret)s, %(previous)s, now() + %(ends)s * interval '1 hour', 'anna')
"""


@pytest.fixture
def world(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("DATABASE_URL", database_url)
    made = World(database)
    forget_deliveries(made)
    made.execute("TRUNCATE audit_log")
    return made


def source(world: World, *, ends: int | None = None, key: bytes = OLD) -> UUID:
    """A source; with a previous secret that ends in so many hours."""
    made, vault = uuid4(), Vault([key])
    place = f"source:{made}"
    previous = None if ends is None else vault.seal("previous", place)
    world.execute(ADD_SOURCE, id=made, secret=vault.seal("current", place), previous=previous, ends=ends)
    return made


def endpoint(world: World, name: str, *, headers: bool = False) -> UUID:
    extra = {"X-Api-Key": "kept"} if headers else None
    with world.database.connection() as connection:
        return endpoints.add(
            connection, name, EndpointSettings(url="https://hooks.example.org/"), guard=Guard(), vault=Vault([OLD]),
            who="anna", secret=f"secret-of-{name}-here", headers=extra,
        ).id  # fmt: skip


def run(world: World, *keys: bytes) -> reseal.Resealed:
    with world.database.connection() as connection:
        return reseal.reseal(connection, keys, who="anna", batch=2)


def test_everything_opens_with_the_new_key_alone(world: World) -> None:
    plain, rotating, ended = source(world), source(world, ends=1), source(world, ends=-1)
    first, second = endpoint(world, "first", headers=True), endpoint(world, "second")
    endpoint(world, "third")
    with world.database.connection() as connection:
        endpoints.rotate(connection, second, vault=Vault([OLD]), who="anna", secret="the-new-one-of-second")
    found = run(world, NEW, OLD)
    assert (found.done, found.already, found.changed, found.unreadable) == (9, 0, 0, [])
    vault = Vault([NEW])
    for made in (plain, rotating, ended):
        row = world.rows("SELECT secret, previous_secret FROM webhook_sources WHERE id = %(id)s", id=made)[0]
        assert vault.open(row[0], f"source:{made}") == "current"
        assert (row[1] is None) == (made != rotating), "one that has ended goes"
    row = world.rows("SELECT secret, headers FROM webhook_endpoints WHERE id = %(id)s", id=first)[0]
    assert vault.open(row[0], secret_place(first)) == "secret-of-first-here"
    assert open_headers(row[1], first, vault) == {"X-Api-Key": "kept"}
    row = world.rows("SELECT secret, previous_secret FROM webhook_endpoints WHERE id = %(id)s", id=second)[0]
    assert [vault.open(sealed, secret_place(second)) for sealed in row] == [
        "the-new-one-of-second",
        "secret-of-second-here",
    ]
    assert world.value("SELECT details FROM audit_log WHERE what = 'reseal_secrets'") == {"count": 9}
    before = world.rows("SELECT secret FROM webhook_endpoints ORDER BY id")
    again = run(world, NEW, OLD)
    assert (again.done, again.already) == (0, 9), "a second run finds nothing to do"
    assert world.rows("SELECT secret FROM webhook_endpoints ORDER BY id") == before
    assert world.value("SELECT count(*) FROM audit_log WHERE what = 'reseal_secrets'") == 1


def test_what_was_rotated_meanwhile_is_left_alone(world: World) -> None:
    """Somebody rotates between the reading and the writing of a batch: what they wrote stays."""
    mine = endpoint(world, "mine")
    column = next(column for column in reseal.COLUMNS if column.read is reseal.ENDPOINTS)
    with world.database.connection() as connection:
        sealed = bytes(world.value("SELECT secret FROM webhook_endpoints"))
        endpoints.rotate(connection, mine, vault=Vault([OLD]), who="ben", overlap_hours=0, secret="the-one-of-ben-wins")
        found = reseal.Resealed()
        reseal.replace_one(connection, column, mine, sealed, Vault([NEW, OLD]), Vault([NEW]), found)
    assert (found.done, found.changed) == (0, 1)
    kept = bytes(world.value("SELECT secret FROM webhook_endpoints"))
    assert Vault([OLD]).open(kept, secret_place(mine)) == "the-one-of-ben-wins"


def test_an_unreadable_one_is_told_and_stops_nobody(world: World) -> None:
    lost, well = source(world, key=b"x" * 32), endpoint(world, "well")
    found = run(world, NEW, OLD)
    assert found.unreadable == [f"source:{lost}"]
    assert found.done == 1
    with pytest.raises(SecretUnreadable):
        Vault([OLD]).open(bytes(world.value("SELECT secret FROM webhook_endpoints")), secret_place(well))


def test_the_command(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECRETS_KEY", raising=False)
    assert main(["secrets", "reseal"]) == Status.USAGE
    assert "SECRETS_KEY is not set" in capsys.readouterr().err
    assert main(["secrets", "new-key"]) == Status.DONE
    first = capsys.readouterr().out.strip()
    assert main(["secrets", "new-key", "--json"]) == Status.DONE
    second = json.loads(capsys.readouterr().out)["key"]
    assert len({first, second}) == 2
    assert [len(base64.b64decode(key, validate=True)) for key in (first, second)] == [32, 32]
    endpoint(world, "mine", headers=True)
    old = base64.b64encode(OLD).decode()
    monkeypatch.setenv("SECRETS_KEY", f"{first},{old}")
    assert main(["secrets", "reseal"]) == Status.DONE
    out = capsys.readouterr().out
    assert "2 sealed again, 0 were under the first key already" in out
    assert "the old key can go from SECRETS_KEY" in out
    monkeypatch.setenv("SECRETS_KEY", second)
    assert main(["secrets", "reseal"]) == Status.FAILED
    said = capsys.readouterr()
    assert said.out.count("cannot be read with any key of SECRETS_KEY") == 2
    assert not any(key in said.out + said.err for key in (first, second, old))
    monkeypatch.setenv("SECRETS_KEY", first)
    assert main(["secrets", "reseal", "--json"]) == Status.DONE
    assert json.loads(capsys.readouterr().out)["secrets"] == {"done": 0, "already": 2, "changed": 0, "unreadable": []}
