"""`people import` and `people list` as a person and a script meet them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.output import Status
from local.demo.load import PEOPLE
from shared.db.pool import Database
from tests.fakes.world import World


@pytest.fixture
def world(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world whose worker runs beside the command."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    made = World(database)
    made.execute("TRUNCATE people, imports, import_rows, ai_jobs CASCADE")
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.02):
            made.app.worker.drain(2, 1)

    thread = threading.Thread(target=work)
    thread.start()
    yield made
    ended.set()
    thread.join(30)


def test_the_demo_people(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["people", "import", str(PEOPLE), "--wait"]) == Status.DONE
    said = capsys.readouterr()
    assert said.out.splitlines()[1].split() == ["done", "20", "20", "0", "0", "0"]
    assert "people.csv: 20 rows, comma, utf-8; name from “name”, phone from “phone”" in said.err
    assert "20 of 20 rows" in said.err
    assert main(["people", "list", "--limit", "2"]) == Status.DONE
    said = capsys.readouterr()
    assert "Aisha Bennani" in said.out
    assert "2 of 20" in said.err
    assert main(["people", "list", "--search", "visser", "--json"]) == Status.DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["phone"]) for row in found["people"]] == [("Daan Visser", "+319700000004")]
    assert main(["people", "list", "--search", "nobody"]) == Status.NOTHING


def test_rejected_rows_are_shown_with_line_and_reason(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mensen.csv"
    file.write_bytes(
        "naam;mobiel;verlof\nZoë;0612345678;3\nKim;06-123;\x1b[31m\n".encode("cp1252").replace(b"\x1b", b"")
    )
    assert main(["people", "import", str(file), "--wait", "--dry-run"]) == Status.DONE
    said = capsys.readouterr()
    assert "semicolon, cp1252" in said.err
    assert "attributes: verlof" in said.err
    assert "dry run: nothing was written" in said.out
    assert "“06-123” is not a phone number" in said.out
    assert main(["people", "list"]) == Status.NOTHING
    capsys.readouterr()
    assert main(["people", "import", str(file), "--wait", "--json"]) == Status.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["import"]["added"], found["import"]["rejected"]) == (1, 1)
    assert [(row["line"], row["reason"]) for row in found["rejected"]] == [(3, "phone_invalid: 06-123")]


def test_when_every_row_is_rejected_the_command_has_failed(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mensen.csv"
    file.write_text("naam;mobiel\n" + "Kim;06-123\n" * 150)
    assert main(["people", "import", str(file), "--wait"]) == Status.FAILED
    assert "and 50 more" in capsys.readouterr().out
    assert main(["people", "import", str(file)]) == Status.DONE
    assert "waits for a worker" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "is empty"), (b"naam;afdeling\na;b\n", "no column with phone numbers")]
)
def test_a_file_that_cannot_be_imported_is_one_sentence(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    file = tmp_path / "mensen.csv"
    file.write_bytes(content)
    assert main(["people", "import", str(file)]) == Status.USAGE
    assert main(["people", "import", str(tmp_path / "none.csv")]) == Status.USAGE
    said = capsys.readouterr()
    assert words in said.err
    assert "none.csv cannot be read: No such file" in said.err
    assert said.out == ""
    assert world.value("SELECT count(*) FROM imports") == 0
