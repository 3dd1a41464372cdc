"""The command's frame: the table of commands, exit statuses, errors as sentences, `--json`, and which tests `test` runs."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import uuid
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psycopg
import pytest
from rich.console import Console

from cli import __main__ as entry
from cli import check, output
from cli import test as test_command
from cli.needs import NEEDS, Need, not_run, sentences
from cli.output import NothingMatched, Output, Status
from shared.errors import DatabaseAway, SettingsError, UserError

REPOSITORY = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "cli", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=110, check=False)


def test_help_lists_every_command() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (Status.DONE, "")
    for name, (_, summary) in entry.COMMANDS.items():
        assert f"│ {name} " in done.stdout
        assert summary.split()[0] in done.stdout


def test_the_list_of_commands_is_shown_without_loading_them() -> None:
    code = "import sys; from cli.__main__ import main; main(['--help']); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    loaded = [line for line in done.stdout.splitlines() if line.split(".")[0] in ("cli", "shared", "local", "psycopg")]
    assert loaded == ["cli", "cli.__main__"]


@pytest.mark.parametrize("name", entry.COMMANDS)
def test_every_command_of_the_table_can_be_loaded(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main([name, "--help"]) == Status.DONE
    assert f"./antwoord {name} " in capsys.readouterr().out


def test_a_mistyped_command_is_a_usage_error_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["chekc"]) == Status.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert "Did you mean 'check'?" in said.err


def test_no_command_shows_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main([]) == Status.USAGE
    assert "check" in "".join(capsys.readouterr())


def test_an_error_that_people_can_mend_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["test", "untit"]) == Status.USAGE
    assert tuple(capsys.readouterr()) == ("", "There are no tests called 'untit': choose from unit, db, crash, e2e.\n")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (SettingsError(["DATABASE_URL is not set: where Postgres is."]), Status.USAGE, "  - DATABASE_URL is not set"),
        (UserError("No such file."), Status.USAGE, "No such file."),
        (NothingMatched("No job has this id."), Status.NOTHING, "No job has this id."),
        (DatabaseAway("no answer within 2 s"), Status.FAILED, "The database cannot be reached: no answer within 2 s"),
        (psycopg.OperationalError("connection refused"), Status.FAILED, "The database cannot be reached: Operational"),
    ],
)
def test_each_kind_of_error_has_its_status(error: Exception, status: Status, words: str) -> None:
    told = output.tell(error)
    assert told is not None
    assert told.status == status
    assert words in told.sentence


@pytest.mark.parametrize("error", [ValueError("a bug"), psycopg.ProgrammingError("no such column"), KeyError("x")])
def test_a_bug_keeps_its_traceback(error: Exception) -> None:
    assert output.tell(error) is None


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Row:
    id: uuid.UUID
    at: datetime.datetime
    colour: Colour


ROW = Row(uuid.UUID(int=1), datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC), Colour.RED)


def test_json_is_one_object_on_stdout_and_all_else_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=True)
    out.note("looking …")
    out.result({"rows": [ROW], "wait": datetime.timedelta(seconds=1.5)}, lambda console: console.print("not this"))
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "rows": [{"id": str(ROW.id), "at": "2026-01-02T03:04:00+00:00", "colour": "red"}],
        "wait": 1.5,
    }
    assert said.err == "looking …\n"


def test_a_table_shows_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    def show(console: Console) -> None:
        console.print(output.table(["name", "text"], [["a", "[red]no markup[/red] \x1b[31mnor colour"], ["b", None]]))

    Output().result({}, show)
    said = capsys.readouterr().out
    assert "[red]no markup[/red] �[31mnor colour" in said
    assert "None" not in said


GROUP = """
import typer
from cli.output import NothingMatched
app = typer.Typer(help="Jobs of the queue.")
@app.command("list")
def all_of_them(limit: int = 20) -> None:
    "List the jobs."
    print("jobs", limit)
@app.command()
def show(job: str) -> None:
    "Show one job."
    raise NothingMatched(f"There is no job {job}.")
"""


def test_a_group_of_commands_is_one_line_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a_group_of_commands.py").write_text(GROUP)
    monkeypatch.syspath_prepend(tmp_path)
    table = {**entry.COMMANDS, "jobs": ("a_group_of_commands:app", "See the jobs.")}
    assert entry.main(["jobs", "list", "--limit", "5"], table) == Status.DONE
    assert capsys.readouterr().out == "jobs 5\n"
    assert entry.main(["jobs", "show", "7"], table) == Status.NOTHING
    assert tuple(capsys.readouterr()) == ("", "There is no job 7.\n")
    assert entry.main(["jobs", "list", "--limit", "many"], table) == Status.USAGE
    assert entry.main(["jobs", "--help"], table) == Status.DONE
    assert "Show one job." in capsys.readouterr().out


def test_the_browser_tests_say_what_to_install() -> None:
    test_command.require_browser([], "/usr/bin/chromium")
    test_command.require_browser(["unit", "db"], None)
    for suites in ([], ["e2e"]):
        with pytest.raises(UserError, match="apt-get install chromium"):
            test_command.require_browser(suites, None)


def test_what_a_machine_cannot_run_is_named_and_in_ci_a_failure() -> None:
    need = Need("PgBouncer", "db/test_pgbouncer.py", lambda: False, "`sudo apt-get install pgbouncer`")
    there = Need("Node", "e2e/test_scale_out.py", lambda: True, "")
    missing = not_run(["db", "e2e"], {}, [need, there])
    line = "not run: tests/db/test_pgbouncer.py (need PgBouncer: `sudo apt-get install pgbouncer`)"
    assert sentences(missing) == [line]
    assert list(missing) == ["tests/db/test_pgbouncer.py"]
    assert not_run(["unit", "e2e"], {"CI": "true"}, [need, there]) == {}
    with pytest.raises(UserError) as refused:
        not_run(["db"], {"CI": "true"}, [need])
    assert str(refused.value) == f"Not all tests can run here, and this is CI:\n{line}"


def test_every_need_has_its_tests() -> None:
    assert all(need.files() and need.install for need in NEEDS)


@pytest.mark.parametrize(
    ("words", "suites", "further"),
    [
        ([], [], []),
        (["unit", "db", "unit"], ["unit", "db"], []),
        (["unit", "-x", "--lf"], ["unit"], ["-x", "--lf"]),
        (["tests/unit/test_command.py::test_x", "-x"], [], ["tests/unit/test_command.py::test_x", "-x"]),
    ],
)
def test_suites_come_first_and_the_rest_is_for_pytest(words: list[str], suites: list[str], further: list[str]) -> None:
    assert test_command.split(words) == (suites, further)


def test_the_tests_status_is_the_commands(tmp_path: Path) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text("def test_it():\n    assert False\n")
    done = run("test", str(broken))
    assert done.returncode == Status.FAILED
    assert "1 failed" in done.stdout
    no_test_was_found = 5
    assert test_command.STATUS_OF_PYTEST[no_test_was_found] == Status.NOTHING


def test_checks_are_told_in_order_and_one_failure_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run({"a": lambda: "", "b": lambda: ""})
    assert not check.run({"first": lambda: "x.py:1: wrong\nx.py:2: too", "second": lambda: ""})
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert [line.split()[:2] for line in lines[2:]] == [
        ["first", "failed"],
        ["x.py:1:", "wrong"],
        ["x.py:2:", "too"],
        ["second", "ok"],
    ]
