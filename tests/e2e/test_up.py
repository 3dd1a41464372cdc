"""`up` and the commands beside it, as a new user runs them: real processes, an empty folder, no account."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.running import free_port, until

ROOT = Path(__file__).resolve().parents[2]


class Up:
    """A running `up`, and what a person can do beside it."""

    def __init__(self, folder: Path) -> None:
        self.environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ} | {
            "ANTWOORD_FOLDER": str(folder),
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR", "/tmp"),
        }
        self.port, self.phone_port = free_port(), free_port()
        self.log = (folder / "up.log").open("w+b")
        self.process = subprocess.Popen(
            self.argv("up", "--port", str(self.port), "--phone-port", str(self.phone_port), "--gateway-port", "0"),
            env=self.environment, stdout=subprocess.PIPE, stderr=self.log, cwd=folder,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line.decode())
            if "Ctrl-C" in self.lines[-1]:
                break
        else:
            raise AssertionError((folder / "up.log").read_text())
        self.folder = folder
        self.gateway_url = next(line.split()[-1] for line in self.lines if line.split()[:1] == ["webhooks"])

    @staticmethod
    def argv(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "cli", *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command beside it."""
        return subprocess.run(
            self.argv(*arguments), env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    def webhooks(self, path: str, **data: Any) -> Any:
        """What the webhooks page does, and the state that it then shows."""
        if path != "state":
            requests.post(f"{self.gateway_url}{path}", json=data, timeout=20).raise_for_status()
        return requests.get(f"{self.gateway_url}state", timeout=20).json()

    def delivery(self, event_type: str) -> Any:
        """The delivery of the newest event of a type, as that page shows it; None when there is none."""
        events = [event for event in self.webhooks("state")["events"] or [] if event["type"] == event_type]
        return events[0]["deliveries"][-1] if events and events[0]["deliveries"] else None

    def post(self, path: str, **data: Any) -> int:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.phone_port}{path}", json.dumps(data).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=20) as response:
            return int(response.status)

    def bodies(self, address: str) -> list[str]:
        done = self.run("conversations", "show", address, "--json")
        messages = json.loads(done.stdout)["messages"] if done.returncode == 0 else []
        return [message["body"] for message in messages if message["from_self"]]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    found = Up(tmp_path_factory.mktemp("antwoord-up"))
    yield found
    if found.process.poll() is None:
        found.process.terminate()
        found.process.wait(30)
    found.log.close()


def test_it_prints_where_the_phone_page_is(up: Up) -> None:
    assert f"http://127.0.0.1:{up.phone_port}/phone/" in "".join(up.lines)


def test_it_prints_a_link_that_signs_in_to_the_console_once_and_makes_new_ones(up: Up) -> None:
    printed = next(line.split()[-1] for line in up.lines if line.split()[:1] == ["console"])
    made = str(up.json("console")["link"])
    for link in (printed, made):
        address, _, token = link.partition("?token=")
        assert address == f"http://127.0.0.1:{up.port}/api/ops/sign-in"
        for status in (303, 410):
            answer = requests.post(address, {"token": token}, allow_redirects=False, timeout=20)
            assert answer.status_code == status


@pytest.mark.parametrize(
    ("address", "question", "words", "source"),
    [
        ("+319700000001", "Hoeveel vakantie-uren heb ik?", "200 vakantie-uren", "Bron: [1] Personeelshandboek › "),
        ("+319700000014", "How many holiday hours do I get?", "200 holiday hours", "Source: [1] Employee handbook › "),
    ],
)
def test_a_question_gets_its_answer_with_the_source(
    up: Up, address: str, question: str, words: str, source: str
) -> None:
    up.post("/phone/messages", **{"from": address, "body": question})
    body = until(lambda: up.bodies(address))[0]
    assert words in body
    assert source in body


def test_what_the_handbook_does_not_say_is_said(up: Up) -> None:
    up.post("/phone/messages", **{"from": "+319700000002", "body": "Wat is de hoofdstad van Peru?"})
    assert "staat niet in het handboek" in until(lambda: up.bodies("+319700000002"))[0]
    rows = up.json("conversations", "list", "--needs-person")["conversations"]
    assert "+319700000002" in [row["address"] for row in rows]
    until(lambda: (up.delivery("conversation.needs_person") or {}).get("state") == "delivered")


def test_a_killed_host_is_started_again_and_the_work_goes_on(up: Up) -> None:
    up.post("/phone/kill")
    up.post("/phone/messages", **{"from": "+319700000003", "body": "Hoeveel vakantie-uren heb ik?"})

    def answered() -> list[str]:
        if not up.bodies("+319700000003"):
            up.post("/phone/messages", **{"from": "+319700000003", "body": "Hoeveel vakantie-uren heb ik?"})
        return up.bodies("+319700000003")

    assert until(answered)


def test_jobs_are_listed_shown_and_only_failed_ones_are_run_again(up: Up) -> None:
    jobs = up.json("jobs", "list", "--type", "autoreply", "--state", "done")["jobs"]
    assert jobs
    shown = up.json("jobs", "show", jobs[0]["id"])
    assert shown["attempts"][-1]["outcome"] == "done"
    assert up.run("jobs", "retry", jobs[0]["id"]).returncode == 3
    assert up.run("jobs", "show", "00000000-0000-0000-0000-000000000000").returncode == 3
    assert up.run("jobs", "show", "nonsense").returncode == 2
    assert up.run("jobs", "list", "--phone", "+31699999999").returncode == 3
    assert up.run("jobs", "list", "--type", "autoreply").stdout.count("autoreply") >= 1


def test_documents_are_added_listed_and_searched(up: Up, tmp_path: Path) -> None:
    (tmp_path / "fietsen.md").write_text(
        "# Fietsplan\n\n## Reparatie\n\nDe fietsenmaker komt elke dinsdag om 12:00 uur.\n"
    )
    added = up.json("docs", "add", str(tmp_path / "fietsen.md"), "--wait")["documents"]
    assert [(row["outcome"], row["state"]) for row in added] == [("added", "ready")]
    assert up.json("docs", "add", str(tmp_path / "fietsen.md"))["documents"][0]["outcome"] == "unchanged"
    hits = up.json("docs", "search", "wanneer komt de fietsenmaker?")["hits"]
    assert hits[0]["heading_path"] == ["Fietsplan", "Reparatie"]
    assert "fietsen.md" in up.run("docs", "list").stdout


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x.md", b"caf\xe9 en meer", "UTF-8"),
        ("leeg.md", b"", "no text"),
        ("groot.md", b"x" * 20_000_000, "2 MB"),
        ("x.docx", b"PK\x03\x04", ".md"),
        ("weg.md", None, "cannot be read"),
    ],
    ids=["not-utf-8", "empty", "20-mb", "another-format", "missing"],
)
def test_a_bad_document_is_refused_with_a_sentence(
    up: Up, tmp_path: Path, name: str, data: bytes | None, words: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    done = up.run("docs", "add", str(tmp_path / name))
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_webhooks_page_has_a_source_an_endpoint_and_a_key_of_its_own(up: Up) -> None:
    assert [row["name"] for row in up.json("sources", "list")["sources"]] == ["demo-vendor"]
    (endpoint,) = up.json("endpoints", "list")["endpoints"]
    assert (endpoint["name"], endpoint["url"]) == ("demo-receiver", up.gateway_url.replace("/gateway/", "/hook"))
    key = up.folder / "secrets-key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_text() not in (up.folder / "up.log").read_text() + "".join(up.lines)


def test_an_event_that_died_is_replayed_by_the_command_and_arrives_once(up: Up) -> None:
    up.webhooks("faults", name="refuses", on=True)
    up.webhooks("send", type="response.completed")
    until(lambda: (up.delivery("response.completed") or {}).get("state") == "dead")
    up.webhooks("faults", name="refuses", on=False)
    dead = up.json("dlq", "list", "--endpoint", "demo-receiver", "--class", "rejected")["dead_letters"]
    assert {row["type"] for row in dead} == {"deliver_event"}
    replay = ["dlq", "replay", "--endpoint", "demo-receiver", "--rate", "5", "--reason", "it takes them again"]
    assert up.run(*replay).returncode == 0
    until(lambda: up.delivery("response.completed")["state"] == "delivered")
    received = up.webhooks("state")["received"]
    arrivals = [arrival for arrival in received["arrivals"] if arrival["type"] == "response.completed"]
    assert [(arrival["verdict"], arrival["is_replay"]) for arrival in arrivals] == [("acted", True)]


def test_stats_count(up: Up) -> None:
    counts = up.json("stats")
    assert counts["conversations"]["answers_today"] >= 2
    assert {row["type"] for row in counts["jobs"]} >= {"autoreply", "embed_record"}


def test_doctor_beside_it_finds_nothing_wrong_and_says_what_it_left_out(up: Up) -> None:
    checks = up.json("doctor")["checks"]
    assert {one["check"]: one["state"] for one in checks if one["state"] != "ok"} == {"storage queue": "left out"}
    assert len(checks) == 18


def test_a_second_up_and_a_taken_port_are_refused(up: Up, tmp_path: Path) -> None:
    second = up.run("up", "--port", str(free_port()))
    assert (second.returncode, "Another `up`" in second.stderr) == (2, True)
    taken = subprocess.run(
        up.argv("up", "--port", str(up.port)), env=up.environment | {"ANTWOORD_FOLDER": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert taken.returncode == 2
    assert f"port {up.port} is taken" in taken.stderr
    assert "Traceback" not in taken.stderr
    host = up.run("host", "--port", str(up.port))
    assert host.returncode == 2
    assert "is taken" in host.stderr


def test_commands_without_a_database_say_so(tmp_path: Path, up: Up) -> None:
    bare = {name: value for name, value in up.environment.items() if name != "ANTWOORD_FOLDER"}
    bare |= {"ANTWOORD_FOLDER": str(tmp_path)}

    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            Up.argv(*arguments), env=bare | changes, capture_output=True, text=True, check=False, timeout=60
        )

    missing = run("jobs", "list")
    assert (missing.returncode, "DATABASE_URL is not set" in missing.stderr) == (2, True)
    wrong = run("jobs", "list", DATABASE_URL="mysql://x")
    assert (wrong.returncode, "postgresql://" in wrong.stderr) == (2, True)
    away = run("migrate", DATABASE_URL="postgresql://nobody:geheim@127.0.0.1:9/none")
    assert (away.returncode, "cannot be reached" in away.stderr) == (1, True)
    host = run("host", "--port", "0")
    assert host.returncode == 2
    for name in ("DATABASE_URL", "TWILIO_AUTH_TOKEN", "AZURE_OPENAI_ENDPOINT", "PUBLIC_BASE_URL"):
        assert name in host.stderr
    for done in (missing, wrong, away, host):
        assert "Traceback" not in done.stderr
        assert "geheim" not in done.stderr


def test_ctrl_c_stops_everything(up: Up) -> None:
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 0
    assert up.run("jobs", "list").returncode == 2  # nothing is left that a command could ask
