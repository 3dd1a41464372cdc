"""`people import URL`: another system's file is imported like any other; what it does wrong is one sentence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from cli.__main__ import main
from cli.output import Status
from shared.clients.guard import Guard
from shared.db.pool import Database
from shared.errors import UserError
from shared.knowledge.people_file import SIZE_LIMIT
from shared.knowledge.people_source import SourceAway, fetch
from tests.fakes.faulty_server import (
    Plan,
    answer,
    close_after_reading,
    closed_port,
    drips,
    faulty,
    replies,
    reply_and_close,
    silent,
)
from tests.fakes.world import World

PEOPLE = "naam;mobiel\nZoë;0612345678\nKim;0612345679\n"
GUARD = Guard(("127.0.0.1",))


def csv(data: bytes, kind: str = "text/csv", **headers: str) -> bytes:
    return answer(200, data, Content_Type=kind, **headers)


@pytest.fixture
def world(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("OUTBOUND_ALLOW_HOSTS", "127.0.0.1")
    made = World(database)
    made.execute("TRUNCATE people, imports, import_rows, ai_jobs, audit_log CASCADE")
    return made


def test_a_url_is_imported_like_a_file(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HR_TOKEN", "very-secret")
    with faulty(replies(csv(PEOPLE.encode("cp1252"), "text/csv; charset=windows-1252"))) as server:
        url = f"{server.url}/export/mensen%20nu.csv?sig=also-secret"
        assert main(["people", "import", url, "--bearer-from", "HR_TOKEN", "--json"]) == Status.DONE
    said = capsys.readouterr()
    assert json.loads(said.out)["import"]["rows_total"] == 2
    assert "mensen nu.csv: 2 rows, semicolon, cp1252" in said.err
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("GET", "/export/mensen%20nu.csv?sig=also-secret")
    assert seen.headers["authorization"] == "Bearer very-secret"
    world.run()
    assert world.rows("SELECT name FROM people ORDER BY name") == [("Kim",), ("Zoë",)]
    kept = said.out + said.err + str(world.rows("SELECT source, reason FROM imports"))
    kept += str(world.rows("SELECT details, target_id FROM audit_log"))
    assert "very-secret" not in kept
    assert "also-secret" not in kept


def test_the_command_says_what_is_wrong(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mensen.csv"
    file.write_text(PEOPLE)
    away = f"http://127.0.0.1:{closed_port()}/mensen.csv"
    monkeypatch.setenv("BAD_TOKEN", "two words")
    for words, status, said in (
        ([str(file), "--bearer-from", "HR_TOKEN"], Status.USAGE, "--bearer-from is for a URL."),
        ([away, "--bearer-from", "NOT_THERE"], Status.USAGE, "has no variable NOT_THERE"),
        ([away, "--bearer-from", "BAD_TOKEN"], Status.USAGE, "The token must be ASCII"),
        ([away], Status.FAILED, "cannot be reached"),
        (["https://10.0.0.1/mensen.csv"], Status.USAGE, "10.0.0.1 is not a public address"),
        (["http://example.org/mensen.csv"], Status.USAGE, "The URL must be https"),
        ([file.as_uri()], Status.USAGE, "The URL must be https://HOST/"),
        (["https://💩.example/mensen.csv"], Status.USAGE, "The URL's host name 💩.example cannot exist"),
        (["https://localhost/mensen.csv"], Status.USAGE, "localhost is not a public address"),
    ):
        assert main(["people", "import", *words]) == status, words
        told = capsys.readouterr()
        assert said in told.err
        assert told.err.count("\n") == 1
        assert told.out == ""
    assert world.value("SELECT count(*) FROM imports") == 0


BIG = b"naam;mobiel\n" + b"x" * SIZE_LIMIT


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (replies(answer(302, Location="https://elsewhere.example.org/")), "points to another place"),
        (replies(answer(401)), "asks for a token"),
        (replies(answer(403)), "see --bearer-from"),
        (replies(answer(404)), "has no file at this URL (HTTP 404)"),
        (replies(answer(204)), "has no file at this URL (HTTP 204)"),
        (replies(csv(b"<html>", "text/html; charset=utf-8")), "a web page (one to sign in on?), not CSV"),
        (replies(csv(b"{}", "application/json")), "is JSON, not CSV"),
        (replies(csv(b"x", "text/csv; charset=KOI8-R")), "is in KOI8-R; only UTF-8 and Windows-1252"),
        (replies(csv(b"x", Content_Encoding="br")), "is packed as br"),
        (replies(csv(BIG)), "is larger than 10 MB"),
        (replies(csv(gzip.compress(BIG), Content_Encoding="gzip")), "is larger than 10 MB"),
    ],
    ids=["302", "401", "403", "404", "204", "html", "json", "charset", "packed", "big", "bomb"],
)
def test_what_will_be_the_same_next_time(plan: Plan, said: str) -> None:
    with faulty(plan) as server, pytest.raises(UserError) as refused:
        fetch(f"{server.url}/a.csv?sig=also-secret", GUARD, bearer="very-secret")
    assert said in str(refused.value)
    assert f"127.0.0.1:{server.port}" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert len(server.seen) == 1, "it is asked once, and redirects are not followed"


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (replies(answer(503)), "cannot give the file now (HTTP 503)"),
        (replies(answer(429)), "cannot give the file now (HTTP 429)"),
        (silent, "did not send the whole file within 1 s"),
        (
            drips(b"naam;mobiel\n", 0.02, at_once=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
            "did not send the whole",
        ),
        (drips(b"X-A: b\r\n", 0.02, at_once=b"HTTP/1.1 200 OK\r\n"), "did not send the whole file"),
        (close_after_reading, "broke off"),
        (reply_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nnaam;mobiel\n"), "broke off"),
        (reply_and_close(csv(gzip.compress(PEOPLE.encode())[:-9], Content_Encoding="gzip")), "cannot be unpacked"),
        (replies(csv(gzip.compress(PEOPLE.encode()) * 2, Content_Encoding="gzip")), "cannot be unpacked"),
    ],
    ids=["503", "429", "silent", "drip", "headers-drip", "closed", "half", "half-packed", "two-packed"],
)
def test_what_may_go_well_another_time(plan: Plan, said: str) -> None:
    seconds = 1.0 if "did not send" in said else 30.0
    with faulty(plan) as server, pytest.raises(SourceAway) as away:
        fetch(f"{server.url}/a.csv?sig=also-secret", GUARD, bearer="very-secret", seconds=seconds)
    assert said in str(away.value)
    assert "secret" not in str(away.value)


def test_a_packed_file_and_one_without_a_name() -> None:
    with faulty(replies(csv(gzip.compress(PEOPLE.encode()), Content_Encoding="gzip"))) as server:
        assert fetch(f"{server.url}/", GUARD) == (f"127.0.0.1:{server.port}", PEOPLE.encode())
