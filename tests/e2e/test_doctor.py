"""`doctor`: on a set-up where all is well, and with each thing wrong in turn; the line must say what to do."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cli.doctor.clock import compare
from cli.doctor.command import AREAS, examine, look
from cli.doctor.finding import Finding, State, ok
from cli.doctor.setup import Setup, read_setup
from cli.doctor.storage import _within
from cli.doctor.twilio import SANDBOX
from local.postgres import EmbeddedPostgres
from local.standins.azure_openai import OpenAIStandIn
from local.standins.storage_queue import QueueStandIn
from local.standins.twilio_account import Sender
from shared.db.migrate import available
from shared.errors import UserError
from shared.queue.health import VERSION
from tests.e2e.running import Outside, free_port
from tests.fakes.azure_cli import AzureCli
from tests.fakes.site import Site

ROOT = Path(__file__).resolve().parents[2]
HEALTHY = {"status": "ok", "version": VERSION, "migration": len(available()), "oldest_due_seconds": 0.0}
TENANT = "11111111-2222-3333-4444-555555555555"


class SetUp:
    """The application behind its host, with stand-ins and a storage queue; `environment` is what the person has set."""

    def __init__(self, outside: Outside, queue: QueueStandIn) -> None:
        self.outside, self.queue = outside, queue
        self.environment = {**outside.stack.environment, "AzureWebJobsStorage": queue.connection_string}

    def reset(self) -> None:
        self.queue.faults.clear()
        self.outside.openai.faults.clear()
        twilio = self.outside.twilio
        twilio.faults.clear()
        twilio.conditions.reset()
        twilio.senders, twilio.account.status, twilio.account.kind = None, "active", "Full"

    def examine(self, *areas: str, **changes: str) -> dict[str, Finding]:
        """The findings by name; of several with one name the wrong one."""
        found: dict[str, Finding] = {}
        for finding in examine(self.environment | changes, areas, lambda _: None):
            if finding.check not in found or finding.state is State.WRONG:
                found[finding.check] = finding
        return found

    def sender(self, **changes: Any) -> Sender:
        return replace(self.outside.twilio.own_sender(), **changes)


@pytest.fixture(scope="module")
def started(database_url: str) -> Iterator[SetUp]:
    with QueueStandIn() as queue, Outside(database_url, arguments=("--no-timer", "--no-wake")) as outside:
        outside.start_host()
        yield SetUp(outside, queue)


@pytest.fixture
def setup(started: SetUp) -> SetUp:
    started.reset()
    return started


def run(environment: Mapping[str, str], *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "ANTWOORD_FOLDER": str(folder)} | dict(environment)
    return subprocess.run(
        [sys.executable, "-m", "cli", "doctor", *arguments], env=given, cwd=folder, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip


def is_wrong(finding: Finding, *words: str) -> bool:
    assert finding.state is State.WRONG, finding
    assert all(word in finding.said for word in words), finding
    return True


def test_where_all_is_well_it_says_so(setup: SetUp, tmp_path: Path) -> None:
    done = run(setup.environment, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stdout
    told = json.loads(done.stdout)
    assert told["ok"] is True
    assert {one["state"] for one in told["checks"]} == {"ok"}, told["checks"]
    assert [one["check"] for one in told["checks"]] == [
        "settings", "database", "extensions", "migrations", "connections", "clock: database", "storage queue",
        "model: chat", "model: embedding", "twilio: account", "clock: Twilio", "twilio: sender", "twilio: webhook",
        "twilio: status URL", "app: health", "clock: app", "app: signature", "app: forged sign-in",
    ]  # fmt: skip
    assert setup.outside.database.value("SELECT count(*) FROM messages") == 0


def test_a_wrong_thing_is_a_line_and_status_1_and_no_secret_is_shown(setup: SetUp, tmp_path: Path) -> None:
    done = run(setup.environment | {"TWILIO_AUTH_TOKEN": "geheim-0123456789"}, "twilio", folder=tmp_path)
    assert done.returncode == 1
    assert "WRONG" in done.stdout
    assert "copy both anew" in done.stdout
    assert "Traceback" not in done.stderr
    assert "geheim" not in done.stdout + done.stderr
    assert run(setup.environment, "twillio", folder=tmp_path).returncode == 2


def test_without_settings_it_names_them_all_and_leaves_the_checks_out(tmp_path: Path) -> None:
    done = run({"POLL_SCHEDULE": "*/5 * * * * *", "DB_POOL_MAX": "many"}, "--json", folder=tmp_path)
    assert done.returncode == 1
    checks = json.loads(done.stdout)["checks"]
    problems = " ".join(one["said"] for one in checks if one["state"] == "wrong")
    for name in ("DATABASE_URL", "TWILIO_AUTH_TOKEN", "AZURE_OPENAI_ENDPOINT", "PUBLIC_BASE_URL", "DB_POOL_MAX"):
        assert name in problems
    left = {one["check"]: one["said"] for one in checks if one["state"] == "left out"}
    assert set(left) == {"database", "storage queue", "model: chat", "model: embedding", "twilio: account", "app"}
    assert left["database"] == "DATABASE_URL is not set here, or wrong."


def test_an_area_asks_only_for_the_settings_that_it_needs(setup: SetUp) -> None:
    findings = examine({"DATABASE_URL": setup.environment["DATABASE_URL"]}, ["database"], lambda _: None)
    assert {one.state for one in findings} == {State.OK}
    assert len(findings) == 6
    with pytest.raises(UserError, match="choose from"):
        examine({}, ["twillio"], lambda _: None)


def test_the_console_of_a_laptop_needs_no_platform(setup: SetUp) -> None:
    found = setup.examine("settings", OPS_AUTH="entra", OPS_TENANT_ID=TENANT)
    assert found["settings"].state is State.OK
    assert is_wrong(setup.examine("settings", OPS_AUTH="entra")["settings"], "OPS_TENANT_ID")


# --- database


def test_a_database_that_is_not_migrated(setup: SetUp, postgres: EmbeddedPostgres) -> None:
    found = setup.examine("database", DATABASE_URL=postgres.create("doctor_empty"))
    assert is_wrong(found["migrations"], "at 0", "./antwoord migrate")
    assert is_wrong(found["extensions"], "CREATE EXTENSION vector", "azure.extensions")


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("INSERT INTO schema_migrations (version, name, checksum) VALUES (9999, 'later', '')", "newer code"),
        ("UPDATE schema_migrations SET checksum = 'x' WHERE version = 2", "0002_people_and_console"),
    ],
    ids=["newer", "changed"],
)
def test_a_database_of_another_version(setup: SetUp, postgres: EmbeddedPostgres, sql: str, words: str) -> None:
    url = postgres.create("doctor_other", template="template_migrated")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode())
        assert is_wrong(setup.examine("database", DATABASE_URL=url)["migrations"], words)
        connection.execute("DELETE FROM schema_migrations WHERE version = 9999")


def test_a_database_with_too_few_connections(setup: SetUp, postgres: EmbeddedPostgres) -> None:
    url = postgres.create("doctor_few", template="template_migrated")
    postgres.run(["ALTER DATABASE doctor_few CONNECTION LIMIT 4"])
    assert is_wrong(setup.examine("database", DATABASE_URL=url)["connections"], "DB_POOL_MAX to 3")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://nobody:geheim123@127.0.0.1:9/none", "firewall"),
        ("mysql://x", "must look like postgresql://"),
        ("postgresql://\udcff@127.0.0.1:9/none", "must look like postgresql://"),
        ("NOT-THERE", "is not there"),
    ],
    ids=["away", "another-kind", "not-utf-8", "no-such-database"],
)
def test_a_database_that_cannot_be_reached(setup: SetUp, url: str, words: str) -> None:
    if url == "NOT-THERE":
        url = setup.environment["DATABASE_URL"].replace("/test_", "/not_there_")
    found = setup.examine("database", DATABASE_URL=url)
    assert is_wrong(found["database"], words)
    assert set(found) == {"settings", "database"}
    assert "geheim123" not in found["database"].said


# --- storage queue


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(403, "AuthenticationFailed", "access key"), (503, "ServerBusy", "cannot be reached")],
    ids=["refused", "busy"],
)
def test_a_storage_queue_that_cannot_be_read(setup: SetUp, status: int, code: str, words: str) -> None:
    setup.queue.queues.create("wake", {})
    setup.queue.faults.add("fetch", "status", status=status, code=code)
    finding = setup.examine("storage")["storage queue"]
    assert is_wrong(finding, "AzureWebJobsStorage" if status == 403 else words)


def test_a_queue_that_is_not_there_yet_or_whose_setting_is_nonsense(setup: SetUp) -> None:
    with QueueStandIn() as empty:
        found = setup.examine("storage", AzureWebJobsStorage=empty.connection_string)
        assert "first message" in found["storage queue"].said
        assert [one.where for one in empty.requests] == ["fetch"]  # nothing was put
    assert is_wrong(setup.examine("storage", AzureWebJobsStorage="nonsense")["storage queue"], "connection string")
    found = setup.examine("storage", AzureWebJobsStorage="")
    assert found["storage queue"].state is State.LEFT_OUT
    assert "timer" in found["storage queue"].said


# --- model


@pytest.mark.parametrize(("where", "check"), [("chat", "model: chat"), ("embeddings", "model: embedding")])
def test_a_deployment_that_is_not_there(setup: SetUp, where: Any, check: str) -> None:
    setup.outside.openai.faults.add(where, "status", status=404, code="DeploymentNotFound")
    found = setup.examine("model")
    deployment = "standin-chat" if where == "chat" else "standin-embedding"
    assert is_wrong(found[check], deployment, "make it, or correct AZURE_OPENAI_")
    assert sum(one.state is State.WRONG for one in found.values()) == 1


@pytest.mark.parametrize(
    ("do", "status", "words"),
    [("status", 429, "raise its capacity"), ("status", 500, "no usable answer"), ("no_text", 0, "gave no text")],
)
def test_a_chat_model_that_gives_no_answer(setup: SetUp, do: Any, status: int, words: str) -> None:
    setup.outside.openai.faults.add("chat", do, status=status)
    assert is_wrong(setup.examine("model")["model: chat"], words)


def test_a_model_that_reasons_its_tokens_away_is_wrong(setup: SetUp) -> None:
    setup.outside.openai.faults.add("chat", "length")
    found = setup.examine("model", AZURE_OPENAI_ANSWER_LIMIT="800")
    assert is_wrong(found["model: chat"], "more than 800 tokens", "AZURE_OPENAI_REASONING_EFFORT")


def test_an_effort_that_the_model_does_not_know_is_said(setup: SetUp) -> None:
    found = setup.examine("model", AZURE_OPENAI_REASONING_EFFORT="minimal")
    assert found["model: chat"].state is State.ADVICE
    assert "AZURE_OPENAI_REASONING_EFFORT=minimal" in found["model: chat"].said
    assert setup.examine("model", AZURE_OPENAI_REASONING_EFFORT="none")["model: chat"].state is State.OK


def test_a_refused_key_is_wrong_and_an_account_that_is_away_too(setup: SetUp) -> None:
    with OpenAIStandIn(api_key="right") as strict:
        found = setup.examine("model", AZURE_OPENAI_ENDPOINT=strict.url)
    assert is_wrong(found["model: chat"], "AZURE_OPENAI_API_KEY is refused")
    found = setup.examine("model", AZURE_OPENAI_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    assert is_wrong(found["model: embedding"], "AZURE_OPENAI_ENDPOINT")


def test_each_model_is_asked_once_and_briefly(setup: SetUp) -> None:
    before = len(setup.outside.openai.requests)
    setup.examine("model")
    asked = setup.outside.openai.requests[before:]
    assert [one.where for one in asked] == ["chat", "embeddings"]
    assert len(json.dumps([one.json for one in asked])) < 500


def test_who_has_not_signed_in_to_azure_is_told_so_briefly(tmp_path: Path) -> None:
    """Where the app goes by its identity, doctor goes by the person's: by `az`, a real program here."""
    cli = AzureCli(tmp_path)
    cli.fail("az account get-access-token", "Please run 'az login' to setup account.")
    given = {
        "AZURE_TOKEN_CREDENTIALS": "AzureCliCredential",
        "AZURE_OPENAI_ENDPOINT": "http://127.0.0.1:9",
        "AZURE_OPENAI_CHAT_DEPLOYMENT": "chat",
        "AZURE_OPENAI_EMBEDDING_DEPLOYMENT": "embedding",
        "AzureWebJobsStorage__accountName": "nobody",
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
        "DATABASE_AUTH": "entra",
    }
    done = run(given | cli.environment, "database", "model", "storage", "--json", folder=tmp_path)
    checks = json.loads(done.stdout)["checks"]
    assert [one["state"] for one in checks] == ["ok", "wrong", "left out", "left out", "left out"]
    assert all("run `az login`." in one["said"] for one in checks[1:])
    assert "azure" not in done.stderr.lower()


# --- Twilio


@pytest.mark.parametrize(("status", "kind", "state"), [("suspended", "Full", "wrong"), ("active", "Trial", "advice")])
def test_an_account_that_is_not_quite_there(setup: SetUp, status: str, kind: str, state: str) -> None:
    setup.outside.twilio.account.status, setup.outside.twilio.account.kind = status, kind
    assert setup.examine("twilio")["twilio: account"].state == state


def test_a_clock_is_held_against_the_middle_of_the_call() -> None:
    assert is_wrong(compare("app", 1_300.0, 999.0, 1_001.0), "It is 300 s ahead of this machine's")
    assert is_wrong(compare("app", 880.0, 999.0, 1_001.0), "It is 120 s behind this machine's")
    assert [compare("app", theirs, 999.0, 1_001.0).state for theirs in (1_031.0, 969.0)] == [State.OK] * 2
    assert is_wrong(compare("app", 1_031.5, 999.0, 1_001.0))  # thirty, and what the call may have taken one way


def test_twilio_away_and_a_clock_that_is_wrong(setup: SetUp) -> None:
    setup.outside.twilio.conditions.clock_offset = 300
    assert is_wrong(setup.examine("twilio")["clock: Twilio"], " s ahead of", "set-ntp")
    setup.outside.twilio.faults.add("account", "status", status=503)
    assert is_wrong(setup.examine("twilio")["twilio: account"], "try again")
    setup.outside.twilio.faults.clear()
    setup.outside.twilio.faults.add("senders", "drop_before")
    assert is_wrong(setup.examine("twilio")["twilio: sender"], "try again")


@pytest.mark.parametrize(
    ("changes", "check", "state", "words"),
    [
        ({"sender_id": "whatsapp:+31201111111"}, "twilio: sender", "wrong", "it has whatsapp:+31201111111"),
        ({"status": "OFFLINE"}, "twilio: sender", "wrong", "is OFFLINE"),
        ({"callback_url": "https://old.example.org/x"}, "twilio: webhook", "wrong", "/api/twilio/inbound#rc=5&rp=all"),
        ({"callback_url": None}, "twilio: webhook", "wrong", "It is not set"),
        ({"callback_method": "GET"}, "twilio: webhook", "wrong", "set it to POST"),
        ({"fallback_url": None}, "twilio: webhook", "advice", "fallback"),
        ({"status_callback_url": "https://old.example.org/y"}, "twilio: status URL", "wrong", "/api/twilio/status"),
    ],
    ids=["another-number", "offline", "other-webhook", "no-webhook", "get", "no-fallback", "other-status"],
)
def test_a_sender_that_is_set_otherwise(
    setup: SetUp, changes: dict[str, Any], check: str, state: str, words: str
) -> None:
    setup.outside.twilio.senders = [setup.sender(**changes)]
    found = setup.examine("twilio")
    assert found[check].state == state, found
    assert words in found[check].said


def test_a_webhook_without_retries_and_with_a_right_status_url(setup: SetUp) -> None:
    base = setup.environment["PUBLIC_BASE_URL"]
    setup.outside.twilio.senders = [
        setup.sender(callback_url=f"{base}/api/twilio/inbound", status_callback_url=f"{base}/api/twilio/status")
    ]
    found = setup.examine("twilio")
    assert found["twilio: webhook"].state is State.ADVICE
    assert "#rc=5&rp=all&ct=2000&rt=5000" in found["twilio: webhook"].said
    assert found["twilio: status URL"].state is State.OK


def test_the_sandbox_cannot_be_read(setup: SetUp) -> None:
    found = setup.examine("twilio", TWILIO_WHATSAPP_FROM=SANDBOX)
    assert found["twilio: webhook"].state is State.LEFT_OUT
    assert f"{setup.environment['PUBLIC_BASE_URL']}/api/twilio/inbound" in found["twilio: webhook"].said


# --- the application from outside


def test_another_token_there_than_here(setup: SetUp) -> None:
    assert is_wrong(setup.examine("app", TWILIO_AUTH_TOKEN="another-token-0123")["app: signature"], "TWILIO_AUTH_TOKEN")


def test_another_site_and_none_at_all(setup: SetUp) -> None:
    found = setup.examine("app", PUBLIC_BASE_URL=setup.outside.twilio.url)
    assert is_wrong(found["app: health"], "another site")
    assert found["app: signature"].state is found["app: forged sign-in"].state is State.LEFT_OUT
    found = setup.examine("app", PUBLIC_BASE_URL=f"http://127.0.0.1:{free_port()}")
    assert is_wrong(found["app: health"], "PUBLIC_BASE_URL")
    assert found["app: forged sign-in"].state is State.LEFT_OUT


@pytest.mark.parametrize(
    ("changes", "check", "words"),
    [
        ({"health": HEALTHY | {"version": "0.0.1"}}, "app: health", "azd deploy"),
        ({"health": HEALTHY | {"migration": 1}}, "app: health", "another database"),
        (
            {"health": {"version": VERSION, "reason": "Run migrate."}, "health_status": 503},
            "app: health",
            "Run migrate.",
        ),
        ({"clock_offset": -120.0}, "clock: app", " s behind"),
        ({"forged": 204}, "app: signature", "let in"),
        ({"signed": 403}, "app: signature", "is refused"),
        ({"signed": 307, "forged": 307}, "app: signature", "redirects"),
        ({"signed": 503}, "app: signature", "503"),
        ({"console": 200}, "app: forged sign-in", "OPS_AUTH=off now"),
        ({"console": 302, "location": "/api/ops/jobs"}, "app: forged sign-in", "OPS_AUTH=off now"),
        ({"console": 500}, "app: forged sign-in", "500"),
    ],
    ids=[
        "version",
        "migration",
        "down",
        "clock",
        "open",
        "closed",
        "redirect",
        "broken",
        "entered",
        "inside",
        "console-broken",
    ],
)
def test_an_application_that_is_not_as_it_should_be(
    setup: SetUp, changes: dict[str, Any], check: str, words: str
) -> None:
    with Site(**({"health": HEALTHY} | changes)) as site:
        found = setup.examine("app", PUBLIC_BASE_URL=site.url)
    assert is_wrong(found[check], words)
    others = {one.check for one in found.values() if one.state is State.WRONG} - {check}
    assert not others, found


@pytest.mark.parametrize(
    "location", ["/.auth/login/aad?post_login_redirect_uri=x", "https://login.microsoftonline.com/x"]
)
def test_who_is_sent_to_sign_in_was_not_believed_and_was_forged_well(setup: SetUp, location: str) -> None:
    with Site(HEALTHY, console=302, location=location) as site:
        found = setup.examine("app", PUBLIC_BASE_URL=site.url, OPS_AUTH="entra", OPS_TENANT_ID=TENANT)
    assert found["app: forged sign-in"].state is State.OK
    headers = next(headers for path, headers in site.seen if path.startswith("/api/ops"))
    principal = json.loads(base64.b64decode(headers["x-ms-client-principal"]))
    from shared.ops.principal import read_principal

    believed = read_principal(headers, TENANT, "Antwoord.Admin")
    assert believed is not None
    assert believed.refusal is None  # an app that trusts these headers lets this one in, and would be found out
    assert principal["auth_typ"] == "aad"


@pytest.mark.parametrize(
    "text", ["<html>", "[" * 200_000, "[1]", "null", '{"status": "ok"}'], ids=lambda text: text[:8]
)
def test_what_is_not_this_app_is_said_to_be_another(setup: SetUp, text: str) -> None:
    with Site(HEALTHY, text=text) as site:
        assert is_wrong(setup.examine("app", PUBLIC_BASE_URL=site.url)["app: health"], "another site")


def test_an_address_that_redirects_is_not_the_final_one(setup: SetUp) -> None:
    with Site({}, health_status=301, location="https://elsewhere.example.org/") as site:
        found = setup.examine("app", PUBLIC_BASE_URL=site.url)
    assert is_wrong(found["app: health"], "final address")


def test_a_peer_that_nobody_foresaw_is_a_line_too() -> None:
    def check(_: Setup) -> Iterator[Finding]:
        yield ok("one", "Well.")
        raise LookupError("https://u:geheim123@peer.example.org/ is odd")

    found = list(look("peer", check, read_setup({}, ())))
    assert [(one.check, one.state) for one in found] == [("one", State.OK), ("peer", State.WRONG)]
    assert "LookupError" in found[1].said
    assert "geheim123" not in found[1].said


def test_storage_that_drips_is_not_waited_for() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError, match="no answer within"):
        _within(0.01, lambda: int(never.wait()))
    never.set()
    assert _within(10.0, lambda: 7) == 7
    with pytest.raises(KeyError):
        _within(10.0, lambda: dict[str, int]()["absent"])


def test_every_area_is_tried_here() -> None:
    assert set(AREAS) == {"settings", "database", "storage", "model", "twilio", "app"}
