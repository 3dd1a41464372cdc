"""`dlq` as a person and a script meet it; and that the commands which make a job due wake the workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cli import __main__ as command
from cli.dlq import seconds_of
from cli.output import Status
from local.standins.storage_queue import QueueStandIn
from shared.db.pool import Database
from shared.errors import UserError
from tests.fakes.eventually import eventually
from tests.fakes.world import World

REPOSITORY = Path(__file__).resolve().parents[2]
ADD_DEAD = """
    INSERT INTO ai_jobs (payload, status, attempts, claims, error_class, last_error)
    SELECT jsonb_build_object('type', 'noop', 'n', n), 'failed', 3, 3, 'timeout', 'TimeoutError: took too long'
    FROM generate_series(1, %(count)s) n
"""


@pytest.fixture
def world(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("DATABASE_URL", database_url)
    made = World(database)
    made.execute("TRUNCATE ai_jobs, replays, audit_log, imports CASCADE")
    made.execute("INSERT INTO job_types (type) VALUES ('noop') ON CONFLICT DO NOTHING")
    made.execute("UPDATE job_types SET paused = false")
    return made


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What a command that succeeds prints for a script."""
    assert command.main([*arguments, "--json"]) == Status.DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_dead_letters_are_listed_with_what_went_wrong(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["dlq", "list"]) == Status.NOTHING
    assert capsys.readouterr().err == "No dead letter matches.\n"
    world.execute(ADD_DEAD, count=3)
    assert command.main(["dlq", "list", "--class", "timeout", "--error", "TOO long", "--limit", "2"]) == Status.DONE
    shown = capsys.readouterr().out
    assert shown.count("TimeoutError: took too long") == 2
    assert len(answer(capsys, "dlq", "list", "--type", "noop")["dead_letters"]) == 3
    for narrowed in (["--type", "other"], ["--older-than", "1h"], ["--phone", "+31600000001"], ["--error", "x"]):
        assert command.main(["dlq", "list", *narrowed]) == Status.NOTHING, narrowed


def test_a_dry_run_counts_and_changes_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.execute(ADD_DEAD, count=90)
    assert command.main(["dlq", "replay", "--rate", "0.5", "--dry-run"]) == Status.DONE
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].split() == ["noop", "timeout", "90", "0", "0", "0"]
    assert "90 would be restarted in 3 min" in shown
    found = answer(capsys, "dlq", "replay", "--rate", "0.5", "--dry-run")["dry_run"]
    assert (found["total"], found["left_out"], found["seconds"]) == (90, 0, 180.0)
    assert world.value("SELECT count(*) FROM replays") == 0


def test_a_replay_restarts_and_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.execute(ADD_DEAD, count=5)
    assert command.main(["dlq", "replay", "--rate", "100", "--class", "timeout", "--reason", "the model is back"]) == 0
    said = capsys.readouterr()
    assert "5 dead letters, 100 a second, about 0 s" in said.err
    assert "5 wait" in said.out
    found = answer(capsys, "dlq", "replays")["replays"]
    assert [(row["state"], row["restarted"], row["reason"]) for row in found] == [("done", 5, "the model is back")]
    assert found[0]["who"].startswith("command:")
    assert {row[0] for row in world.rows("SELECT status FROM ai_jobs")} == {"pending"}
    (job,) = world.rows("SELECT id FROM ai_jobs LIMIT 1")
    assert answer(capsys, "jobs", "show", str(job[0]))["job"]["replay_id"] == found[0]["id"]


def test_a_replay_is_left_to_the_workers_stopped_and_resumed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.execute(ADD_DEAD, count=50)
    found = answer(capsys, "dlq", "replay", "--rate", "1", "--reason", "why", "--no-wait")["replay"]
    assert (found["state"], found["restarted"], found["total"]) == ("running", 0, 50)
    found = answer(capsys, "dlq", "stop", found["id"])["replay"]
    assert found["state"] == "stopped"
    found = answer(capsys, "dlq", "resume", found["id"], "--no-wait")["replay"]
    assert found["state"] == "running"
    world.execute("UPDATE replays SET rate = 1000")
    found = answer(capsys, "dlq", "resume", found["id"])
    assert (found["replay"]["state"], found["replay"]["restarted"]) == ("done", 50)
    assert found["jobs"] == {"waiting": 50, "running": 0, "died_again": 0}
    assert command.main(["dlq", "stop", found["replay"]["id"]]) == Status.USAGE
    assert "is done: all that matched was restarted." in capsys.readouterr().err


def test_what_is_not_there_or_not_said_is_one_sentence(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(uuid4())
    for arguments, status, sentence in (
        (["replay", "--rate", "1", "--reason", "x"], Status.NOTHING, "No dead letter matches."),
        (["replays"], Status.NOTHING, "Nothing has been replayed yet."),
        (["stop", missing], Status.NOTHING, f"There is no replay {missing}: see `dlq replays`."),
        (["resume", missing], Status.NOTHING, f"There is no replay {missing}: see `dlq replays`."),
        (["list", "--older-than", ""], Status.USAGE, "The duration is empty: give for example 90s"),
        (["list", "--older-than", "soon"], Status.USAGE, "soon is not a duration: give for example 90s, 30m, 2h, 3d"),
        (["replay", "--rate", "0", "--dry-run"], Status.USAGE, "A rate of 0 is not possible"),
    ):
        assert command.main(["dlq", *arguments]) == status, arguments
        said = capsys.readouterr()
        assert said.out == ""
        assert sentence in said.err
        assert len(said.err.splitlines()) == 1
    world.execute(ADD_DEAD, count=1)
    assert command.main(["dlq", "replay", "--rate", "1"]) == Status.USAGE
    assert "Give a reason for the replay" in capsys.readouterr().err
    assert command.main(["dlq", "replay", "--reason", "x"]) == Status.USAGE
    assert "--rate" in capsys.readouterr().err


def test_what_is_left_out_as_its_type_is_paused_is_said(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.execute(ADD_DEAD, count=4)
    world.execute("UPDATE job_types SET paused = true WHERE type = 'noop'")
    assert command.main(["dlq", "replay", "--rate", "5", "--dry-run"]) == Status.DONE
    assert "4 left out: noop is paused, or unknown" in capsys.readouterr().out
    assert command.main(["dlq", "replay", "--rate", "5", "--reason", "why"]) == Status.NOTHING
    assert "4 left out: noop is paused, or unknown" in capsys.readouterr().out
    assert command.main(["dlq", "replays"]) == Status.DONE
    assert "4 noop" in " ".join(capsys.readouterr().out.split())
    (found,) = answer(capsys, "dlq", "replays")["replays"]
    assert (found["left_paused"], found["paused_types"], found["total"]) == (4, ["noop"], 4)


def test_dead_letters_are_closed_with_a_reason_and_a_dead_import_forgets_its_file(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.execute(
        "INSERT INTO imports (source, content, column_map, delimiter, encoding, rows_total, created_by, state, ended_at)"
        " VALUES ('mensen.csv', 'x', '{}', ',', 'utf-8', 1, 'anna', 'failed', now())"
    )
    world.execute(
        "INSERT INTO ai_jobs (payload, status) SELECT jsonb_build_object('type', 'import_people', 'import_id', id),"
        " 'failed' FROM imports"
    )
    job = str(world.value("SELECT id FROM ai_jobs"))
    assert command.main(["dlq", "close", job]) == Status.USAGE
    assert "Give a reason for closing" in capsys.readouterr().err
    found = answer(capsys, "dlq", "close", job, "--reason", "an old file")
    assert found == {"jobs": {job: "closed"}}
    assert world.rows("SELECT content, state FROM imports") == [(None, "failed")]
    assert command.main(["dlq", "close", job, "--reason", "again"]) == Status.NOTHING
    assert "left alone: it is no dead letter" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("3d", 259_200), ("1d12h", 129_600), ("1.5h", 5400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "5 weeks", "-5m", "5m!", "99999999d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UserError):
        seconds_of(text)


def test_an_interrupted_watch_says_how_to_go_on(world: World, database_url: str) -> None:
    world.execute(ADD_DEAD, count=50)
    watching = subprocess.Popen(
        [sys.executable, "-m", "cli", "dlq", "replay", "--rate", "0.1", "--reason", "why"],
        cwd=REPOSITORY, env=os.environ | {"DATABASE_URL": database_url}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        eventually(lambda: world.value("SELECT restarted FROM replays"))
    finally:
        watching.send_signal(signal.SIGINT)
        out, said = watching.communicate(timeout=30)
    replay_id = world.value("SELECT id FROM replays")
    assert (watching.returncode, out) == (Status.FAILED, "")
    assert f"the workers go on with it. `dlq stop {replay_id}` stops it" in said
    assert "Traceback" not in said


def test_a_replay_that_somebody_else_stops_ends_the_watch(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.execute(ADD_DEAD, count=50)

    def stop() -> None:
        eventually(lambda: world.value("SELECT restarted FROM replays"))
        world.execute("UPDATE replays SET state = 'stopped', stopped_by = 'ben', ended_at = now()")

    stopper = threading.Thread(target=stop)
    stopper.start()
    assert command.main(["dlq", "replay", "--rate", "0.1", "--reason", "why"]) == Status.FAILED
    stopper.join()
    assert "ben has stopped it" in capsys.readouterr().err


def test_the_commands_that_make_a_job_due_wake_the_workers(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[float] = []
    (tmp_path / "mensen.csv").write_text("name,phone\nZoë,+31612345678\n")
    (tmp_path / "verlof.md").write_text("# Verlof\n\nJe hebt 200 uur verlof.\n")
    world.execute(ADD_DEAD, count=3)
    jobs = [str(row[0]) for row in world.rows("SELECT id FROM ai_jobs")]
    with QueueStandIn(on_put=lambda _, visible_in: put.append(visible_in)) as queue:
        monkeypatch.setenv("AzureWebJobsStorage", queue.connection_string)
        for arguments, expected in (
            (["jobs", "retry", jobs[0]], 1),
            (["dlq", "replay", "--rate", "100", "--reason", "why"], 2),
            (["people", "import", str(tmp_path / "mensen.csv")], 1),
            (["docs", "add", str(tmp_path / "verlof.md")], 1),
        ):
            put.clear()
            assert command.main(arguments) == Status.DONE
            assert len(put) == expected, arguments
