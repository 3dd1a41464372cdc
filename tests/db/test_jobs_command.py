"""`jobs` and `stats` as a person and a script meet them: the types, what a job waits for, and how the queue stands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cli import __main__ as command
from cli.jobs import duration
from cli.output import Status
from local.postgres import EmbeddedPostgres
from shared.db.migrate import MIGRATIONS, migrate
from shared.db.pool import Database
from shared.errors import TransientError
from tests.fakes.desk import ADDRESS, fresh, lines, raising, replay_all
from tests.fakes.world import World


@pytest.fixture
def world(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("DATABASE_URL", database_url)
    made = fresh(database)
    made.execute("DELETE FROM replays")
    made.execute("UPDATE job_types SET paused = false, max_running = NULL, weight = 1")
    return made


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What a command that succeeds prints for a script."""
    assert command.main([*arguments, "--json"]) == Status.DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_types_are_paused_resumed_and_limited(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "jobs", "pause", "suggest", "--reason", "repairs")["type"]["paused"] is True
    assert command.main(["jobs", "types"]) == Status.DONE
    shown = capsys.readouterr().out
    assert "repairs" in shown
    assert "autoreply" in shown
    assert command.main(["jobs", "pause", "suggest"]) == Status.USAGE
    assert capsys.readouterr().err == "suggest is paused already.\n"
    assert answer(capsys, "jobs", "resume", "suggest")["type"]["paused"] is False
    found = answer(capsys, "jobs", "limit", "suggest", "--weight", "3", "--max-running", "2")["type"]
    assert (found["weight"], found["max_running"]) == (3, 2)
    found = answer(capsys, "jobs", "limit", "suggest", "--max-running", "none")["type"]
    assert (found["weight"], found["max_running"]) == (3, None), "what is not given stays"
    for wrong, status in (
        (["suggest"], Status.USAGE),
        (["suggest", "--weight", "0"], Status.USAGE),
        (["suggest", "--max-running", "-1"], Status.USAGE),
        (["nothing", "--weight", "1"], Status.NOTHING),
    ):
        assert command.main(["jobs", "limit", *wrong]) == status, wrong
    assert {line.who.partition(":")[0] for line in lines(world)} == {"command"}
    assert [line.what for line in reversed(lines(world))] == [
        "pause_type", "resume_type", "set_type_limits", "set_type_limits",
    ]  # fmt: skip


UNREADABLE = "\udcff\udcfe"  # what Python makes of arguments that are not UTF-8


def test_what_is_not_there_or_cannot_be_read_is_one_sentence(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for words, status, said in (
        (["jobs", "list", "--state", "foo"], Status.USAGE, "choose from pending, processing, done, failed."),
        (["jobs", "list", "--state", UNREADABLE], Status.USAGE, "choose from pending, processing, done, failed."),
        (["jobs", "list", "--type", UNREADABLE], Status.NOTHING, "No job matches."),
        (["jobs", "list", "--phone", UNREADABLE], Status.NOTHING, "No job matches."),
        (["jobs", "list", "--sid", UNREADABLE], Status.NOTHING, "No job matches."),
        (["jobs", "list", "--error-class", UNREADABLE], Status.NOTHING, "No job matches."),
        (["jobs", "pause", UNREADABLE], Status.USAGE, "There is no type of job \ufffd\ufffd."),
        (["jobs", "resume", UNREADABLE], Status.USAGE, "There is no type of job \ufffd\ufffd."),
        (["jobs", "limit", UNREADABLE, "--weight", "1"], Status.NOTHING, "see `jobs types`."),
        (["jobs", "pause", ""], Status.USAGE, "There is no type of job ''."),
        (["conversations", "show", UNREADABLE], Status.NOTHING, "There is no conversation with"),
    ):
        assert command.main(words) == status, words
        assert capsys.readouterr().err.strip().endswith(said) or said.startswith("There is no conversation"), words


@pytest.mark.parametrize("newest", [0, 4])
def test_a_database_of_another_version_is_one_sentence(
    postgres: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    newest: int,
) -> None:  # fmt: skip
    url = postgres.create(f"jobs_command_{newest}")
    monkeypatch.setenv("DATABASE_URL", url)
    for path in sorted(MIGRATIONS.glob("*.sql"))[:newest]:
        shutil.copy(path, tmp_path)
    if newest:
        with psycopg.connect(url, autocommit=True) as connection:
            migrate(connection, tmp_path)
    for words in (["stats"], ["jobs", "types"], ["jobs", "pause", "autoreply"], ["jobs", "list"], ["dlq", "list"],
                  ["dlq", "replays"]):  # fmt: skip
        assert command.main(words) == Status.FAILED, words
        assert capsys.readouterr().err == "The database is not at this version: run ./antwoord migrate.\n", words
    assert command.main(["migrate"]) == Status.DONE
    assert command.main(["jobs", "types"]) == Status.DONE


def test_a_statement_that_is_wrong_itself_keeps_its_traceback(world: World) -> None:
    world.execute("ALTER TABLE job_types RENAME TO elsewhere")
    try:
        with pytest.raises(psycopg.errors.UndefinedTable):
            command.main(["jobs", "types"])
    finally:
        world.execute("ALTER TABLE elsewhere RENAME TO job_types")


def test_a_job_says_when_it_runs_and_which_try_that_is(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    job = str(world.value("SELECT id FROM ai_jobs"))
    assert answer(capsys, "jobs", "show", job)["next_run"] == "due, first try"
    world.force("UPDATE ai_jobs SET attempts = 2, next_run_at = now() + interval '40 minutes'")
    assert answer(capsys, "jobs", "show", job)["next_run"] == "in 40 min, third and last try"
    assert command.main(["jobs", "list"]) == Status.DONE
    assert "third and last try" in " ".join(capsys.readouterr().out.split())
    world.force("UPDATE ai_jobs SET attempts = 6, max_attempts = 7, next_run_at = now() + interval '3 hours'")
    assert answer(capsys, "jobs", "show", job)["next_run"] == "in 3 h, try 7, the last"
    world.run()


def test_a_job_names_the_replay_that_restarted_it(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.model.says = raising(TransientError("timeout", "slow"))
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    for _ in range(3):
        world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
        world.run()
    replay_all(world)
    job = str(world.value("SELECT id FROM ai_jobs WHERE replay_id IS NOT NULL"))
    assert answer(capsys, "jobs", "show", job)["replay"]["reason"] == "it works again"
    assert command.main(["jobs", "show", job]) == Status.DONE
    assert "by anna: it works again" in " ".join(capsys.readouterr().out.split())


def test_stats_say_how_it_stands(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.force("UPDATE ai_jobs SET next_run_at = now() - interval '5 minutes'")
    world.execute("UPDATE job_types SET resting_until = now(), resting_reason = 'HTTP 503' WHERE type = 'suggest'")
    world.execute("UPDATE job_types SET paused = true WHERE type = 'embed_record'")
    world.execute(
        "INSERT INTO job_attempts (job_id, run, claim, started, ended, outcome)"
        " SELECT id, 1, 1, now() - interval '1 minute', now(), 'retry' FROM ai_jobs"
    )
    world.execute("INSERT INTO replays (who, reason, filter, rate, total) VALUES ('anna', 'why', '{}', 5, 40)")
    found = answer(capsys, "stats")
    assert (found["depth"], found["due"], found["paused"]) == (1, 1, ["embed_record"])
    assert found["resting"][0]["reason"] == "HTTP 503"
    assert [one["seconds"] for one in found["slow"]] == [60.0]
    assert [one["total"] for one in found["replays"]] == [40]
    assert found["connections"]["per_process"] > 1
    assert command.main(["stats"]) == Status.DONE
    shown = " ".join(capsys.readouterr().out.split())
    for said in ("autoreply ready 1 1 5 min", "1 jobs wait, 1 of them are due", "suggest rests", "paused", "longer than 8 s",
                 "0 of 40, 5 a second: why", "connections:"):  # fmt: skip
        assert said in shown, said
    world.execute("UPDATE job_types SET resting_until = NULL, resting_reason = NULL")


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 d")]
)
def test_a_duration_is_short(seconds: float, said: str) -> None:
    assert duration(seconds) == said
