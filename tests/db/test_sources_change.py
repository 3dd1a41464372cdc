"""Changing a source: what is not given stays, two who are at it do not undo each other, and its sender notices nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cli.__main__ import main
from cli.output import Status
from shared import audit
from shared.app import App
from shared.db.pool import Conn, Database
from shared.errors import UserError
from shared.request import Request
from shared.webhooks import sources
from shared.webhooks.sources import Source, SourceSettings
from tests.fakes.eventually import eventually
from tests.fakes.senders import SECRETS_KEY, VAULT, Sending, event_body, read, signed

ANNA = "anna@example.org"
ALL: dict[str, Any] = {
    "id_from": "pointer:/id", "signature_header": "Stripe-Signature", "tolerance_seconds": 60, "size_limit": 2048,
    "normaliser": "json", "paths": {"type": "/type"},
}  # fmt: skip


@pytest.fixture
def world(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Sending:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("SECRETS_KEY", SECRETS_KEY)
    made = Sending(database)
    made.execute("TRUNCATE audit_log")
    return made


def find(world: Sending, name: str = "shop") -> Source:
    with world.database.connection() as connection:
        found = sources.find_source(connection, name)
    assert found is not None
    return found


def change(world: Sending, wanted: SourceSettings, *, seen: str, name: str = "shop") -> None:
    with world.database.connection() as connection:
        sources.change(connection, name, wanted, seen=seen, who=ANNA)


def log(world: Sending) -> list[audit.Entry]:
    with world.database.connection() as connection:
        return audit.list_entries(connection, limit=50)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The source that a command prints for a script."""
    assert main(["sources", *arguments, "--json"]) == Status.DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["source"]
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["sources", *arguments]) == Status.USAGE
    return capsys.readouterr().err


def known_elsewhere(world: Sending, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
    """What a process answers that has not read the sources for five seconds."""
    other = App(world.app.settings, database=world.database)
    return read(other.receive_event("shop", Request("https://antwoord.example.org/api/events/shop", headers, body)))


def test_what_is_not_given_stays_and_the_log_tells_what_was(world: Sending, capsys: pytest.CaptureFixture[str]) -> None:
    secret = world.add_source("shop", scheme="t-v1", **ALL)
    was = told(capsys, "show", "shop")
    assert {name: was[name] for name in ALL} == ALL
    now = told(
        capsys, "change", "shop", "--tolerance", "300", "--path", "subject=header:X-About", "--path", "data=/object"
    )
    assert now == was | {"tolerance_seconds": 300, "paths": {"subject": "header:X-About", "data": "/object"}}
    newest = log(world)[0]
    assert newest.what == "change_source"
    assert newest.who.startswith("command:")
    assert newest.details == {
        "source": "shop", "tolerance_seconds": "60 → 300", "paths": "type=/type → data=/object, subject=header:X-About",
    }  # fmt: skip
    now = told(capsys, "change", "shop", "--no-paths", "--size-limit", "4096", "--id-from", "header:X-Id",
               "--signature-header", "X-Webhook-Signature", "--normaliser", "openai")  # fmt: skip
    assert {name: now[name] for name in ALL} == {
        "id_from": "header:X-Id", "signature_header": "X-Webhook-Signature", "tolerance_seconds": 300, "size_limit": 4096,
        "normaliser": "openai", "paths": {},
    }  # fmt: skip
    assert told(capsys, "show", "shop") == now
    assert len(log(world)) == 3, "adding, and two changes"
    assert secret not in str([line.details for line in log(world)])
    sealed, place = world.rows("SELECT secret, 'source:' || id FROM webhook_sources")[0]
    assert VAULT.open(bytes(sealed), place) == secret


def test_a_person_is_shown_one_source_in_words(world: Sending, capsys: pytest.CaptureFixture[str]) -> None:
    secret = world.add_source("shop", scheme="t-v1", **ALL)
    assert main(["sources", "show", "shop"]) == Status.DONE
    shown = capsys.readouterr().out
    for words in (
        "t-v1, in Stripe-Signature",
        "pointer:/id",
        "60 s",
        "2,048 bytes",
        "type=/type",
        "none in the last days",
    ):
        assert words in shown
    assert secret not in shown
    for command in ("show", "change"):
        assert main(["sources", command, "nobody"]) == Status.NOTHING
        assert "There is no source nobody: see `sources list`." in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--id-from", "body"], ["--id-from", ""], ["--tolerance", "0"], ["--size-limit", "99999999"], ["--normaliser", "xml"],
        ["--signature-header", "X-S"], ["--path", "type=/t"], ["--path", "type"], ["--path", "type=/a", "--path", "type=/b"],
        ["--normaliser", "json", "--path", "kind=/t"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_cannot_be_added_cannot_be_changed_to_and_is_said_alike(
    world: Sending, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    world.add_source("shop")
    was = find(world)
    said = refused(capsys, "change", "shop", *options)
    assert said == refused(capsys, "add", "other", "--scheme", "standard", *options)
    assert (find(world), len(log(world))) == (was, 1)


def test_what_makes_no_change_is_refused(world: Sending, capsys: pytest.CaptureFixture[str]) -> None:
    world.add_source("shop", scheme="t-v1", **ALL)
    was = find(world)
    assert "Give what is to be changed" in refused(capsys, "change", "shop")
    assert "Give what is to be changed" in refused(capsys, "change", "shop", "--tolerance", "60")
    assert "cannot both be" in refused(capsys, "change", "shop", "--no-paths", "--path", "type=/t")
    assert "or name no places" in refused(capsys, "change", "shop", "--normaliser", "openai")
    assert main(["sources", "change", "shop", "--scheme", "x-hub"]) == Status.USAGE, (
        "the secret was made for its scheme"
    )
    assert (find(world), len(log(world))) == (was, 1)


def test_two_who_change_at_once_do_not_undo_each_other(world: Sending) -> None:
    world.add_source("shop")
    seen = find(world)
    change(world, replace(seen.settings, tolerance_seconds=9), seen=seen.version)
    with pytest.raises(UserError, match="Somebody else has changed shop meanwhile") as conflict:
        change(world, replace(seen.settings, size_limit=9), seen=seen.version)
    assert conflict.value.name == "source_changed"
    now = find(world)
    assert (now.tolerance_seconds, now.size_limit) == (9, seen.size_limit)
    assert len(log(world)) == 2
    change(world, now.settings, seen=now.version)
    assert len(log(world)) == 2, "nothing was changed"


BLOCKED = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%%webhook_sources%%'
"""


def changed_while(world: Sending, act: Callable[[Conn], object]) -> str:
    """What becomes of a change that begins while `act` has not been committed."""
    seen, outcomes = find(world), list[str]()

    def try_it() -> None:
        try:
            change(world, replace(seen.settings, tolerance_seconds=9), seen=seen.version)
            outcomes.append("changed")
        except UserError as conflict:
            outcomes.append(str(conflict.name))

    thread = threading.Thread(target=try_it)
    with world.database.connection() as connection, connection.transaction():
        act(connection)
        thread.start()
        eventually(lambda: world.value(BLOCKED) == 1, what="the change waits")
    thread.join()
    return outcomes[0]


def test_a_change_that_waited_for_another_one_does_not_undo_it(world: Sending) -> None:
    world.add_source("shop")
    seen = find(world)
    larger = replace(seen.settings, size_limit=4096)
    assert changed_while(
        world, lambda connection: sources.change(connection, "shop", larger, seen=seen.version, who=ANNA)
    ) == "source_changed"  # fmt: skip
    now = find(world)
    assert (now.size_limit, now.tolerance_seconds) == (4096, seen.tolerance_seconds)


def test_a_change_undoes_no_new_secret_and_does_not_enable(world: Sending) -> None:
    world.add_source("shop")

    def rotate_and_disable(connection: Conn) -> None:
        sources.rotate(connection, "shop", vault=VAULT, who=ANNA)
        sources.disable(connection, "shop", who=ANNA)

    assert changed_while(world, rotate_and_disable) == "changed"
    now = find(world)
    assert now.tolerance_seconds == 9
    assert now.disabled_at
    assert now.previous_until


def test_the_sender_goes_on_with_the_address_and_secret_it_has(world: Sending) -> None:
    secret = world.add_source("shop", scheme="t-v1", **ALL | {"signature_header": "X-Wrong"})
    body = event_body()
    headers = signed("t-v1", secret, body)
    assert world.deliver("shop", body, headers)[0] == 400
    change(world, replace(find(world).settings, signature_header="Stripe-Signature"), seen=find(world).version)
    assert known_elsewhere(world, body, headers)[0] == 200
    change(world, replace(find(world).settings, size_limit=10), seen=find(world).version)
    assert known_elsewhere(world, body, headers)[0] == 413
    change(world, replace(find(world).settings, size_limit=2048, tolerance_seconds=5), seen=find(world).version)
    late = signed("t-v1", secret, body, at=0)
    assert known_elsewhere(world, body, late)[0] == 403


def test_with_another_place_of_the_id_a_repeat_counts_as_new_once(world: Sending) -> None:
    secret = world.add_source("shop", scheme="t-v1", **ALL)
    body = event_body("evt_1", other="evt_1_too")
    headers = signed("t-v1", secret, body)
    assert world.send("shop", body)[1]["status"] == "accepted"
    assert known_elsewhere(world, body, headers)[1]["status"] == "already_processed"
    change(world, replace(find(world).settings, id_from="pointer:/other"), seen=find(world).version)
    assert known_elsewhere(world, body, headers)[1]["status"] == "accepted"
    assert known_elsewhere(world, body, headers)[1]["status"] == "already_processed"
    clash = event_body("evt_2", other="evt_1")
    assert known_elsewhere(world, clash, signed("t-v1", secret, clash))[0] == 422
    assert world.rows("SELECT source_event_id FROM webhook_events ORDER BY seq") == [("evt_1",), ("evt_1_too",)]
