"""The pipeline: that it parses, may do no more than it must, and calls only what is there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.commands import calls, unknown_in

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DEPLOY = ROOT / ".github" / "workflows" / "deploy.yml"
SCRIPT = ROOT / ".github" / "azd-environment.sh"
SIGNED_IN = {"preview", "deploy"}  # the only jobs that Azure trusts


def read(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text("utf-8")))


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def scripts(path: Path) -> list[str]:
    """What the steps run, and what is run by the scripts of ours that they name and by the hooks of azd."""
    found = [step["run"] for step in steps(path) if "run" in step]
    named = {name for run in found for name in re.findall(r"(?<![\w/.-])\.[\w-]+/[\w./-]+", run)}
    hooks = [hook["run"] for hook in read(ROOT / "azure.yaml")["hooks"].values()]
    return found + [(ROOT / name).read_text("utf-8") for name in (*named, *hooks)]


def test_there_is_one_and_it_starts_when_it_should() -> None:
    assert DEPLOY in WORKFLOWS
    on = yaml.load(DEPLOY.read_text("utf-8"), yaml.BaseLoader)["on"]
    assert set(on) == {"pull_request", "push", "workflow_dispatch"}
    assert on["push"]["branches"] == ["main"]
    assert on["workflow_dispatch"]["inputs"]["environment"]["options"] == ["test", "production"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_it_may_read_the_code_and_two_jobs_may_ask_for_a_token(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        more = {"id-token": "write"} if path == DEPLOY and name in SIGNED_IN else {}
        assert job.get("permissions", {"contents": "read"}) == {"contents": "read"} | more, name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_secret_is_used_and_no_step_is_written_by_others(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "secrets." not in text
    assert "pull_request_target" not in text
    # What somebody types or calls a branch must not become a part of a script.
    assert [run for step in steps(path) if "${{" in (run := step.get("run", ""))] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_every_checkout_forgets_and_every_job_ends(path: Path) -> None:
    for step in steps(path):
        if uses := step.get("uses"):
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|[0-9a-f]{40})", uses), uses
            if uses.startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
    for name, job in read(path)["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 60, name


def test_nothing_is_deployed_untested_unseen_or_from_elsewhere_than_main() -> None:
    jobs = read(DEPLOY)["jobs"]
    assert set(jobs) == {"test", "build", "preview", "deploy"}
    assert set(jobs["preview"]["needs"]) == {"test", "build"}
    assert jobs["deploy"]["needs"] == "preview"
    assert "github.event_name != 'pull_request'" in jobs["preview"]["if"]
    assert "github.ref == 'refs/heads/main'" in jobs["preview"]["if"]
    assert jobs["preview"]["environment"] == f"{jobs['deploy']['environment']}-preview"
    assert jobs["deploy"]["concurrency"]["cancel-in-progress"] is False


def test_it_tests_builds_previews_and_deploys_in_this_order() -> None:
    jobs = read(DEPLOY)["jobs"]
    runs = {name: "\n".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()}
    assert ".ci/run" in runs["test"]
    assert "az bicep build" in runs["build"]
    assert runs["preview"].index("azd package") < runs["preview"].index("azd provision --preview")
    assert runs["deploy"].index("azd provision --no-prompt") < runs["deploy"].index("azd deploy")
    for name in SIGNED_IN:
        signs_in = [str(step.get("uses", "")).split("@")[0] for step in jobs[name]["steps"]]
        assert "azure/login" in signs_in


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_command_of_ours_that_it_calls_is_there(path: Path) -> None:
    found = [words for script in scripts(path) for words in calls(script)]
    assert ["azure", "preflight"] in found
    assert ["check"] in found
    assert ["test"] in found
    assert [words for words in found if unknown_in(words)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_file_that_it_names_is_there(path: Path) -> None:
    runs = "\n".join(step.get("run", "") for step in steps(path))
    for name in re.findall(r"(?<![\w/.-])(\.[\w-]+/[\w./-]+|infra/[\w./-]+)", runs):
        assert (ROOT / name).is_file(), name
        assert name.endswith(".bicep") or os.access(ROOT / name, os.X_OK), name


def test_the_environment_is_made_of_the_lines_that_are_given(tmp_path: Path) -> None:
    told = tmp_path / "told"
    azd = tmp_path / "azd"
    azd.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {told}\n', "utf-8")
    azd.chmod(0o755)
    values = "ALERT_EMAIL=on-call@example.org\n\n# a remark\n  POLL_SCHEDULE=*/30 * * * * *\r\nDATABASE_SKU=a=b"
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "AZURE_CLIENT_ID": "client",
        "AZURE_TENANT_ID": "tenant",
        "AZURE_SUBSCRIPTION_ID": "subscription",
        "AZD_ENVIRONMENT": "antwoord-test",
        "AZD_VALUES": values,
    }
    subprocess.run([SCRIPT], env=environment, check=True, timeout=30)
    assert told.read_text("utf-8").splitlines() == [
        "auth login --client-id client --tenant-id tenant --federated-credential-provider github",
        "env new antwoord-test --subscription subscription --no-prompt",
        "env set ALERT_EMAIL on-call@example.org",
        "env set POLL_SCHEDULE */30 * * * * *",
        "env set DATABASE_SKU a=b",
    ]
    failed = subprocess.run(
        [SCRIPT], env=environment | {"PATH": "/usr/bin:/bin"}, check=False, timeout=30, capture_output=True
    )
    assert failed.returncode != 0  # the first thing that fails ends it


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("./antwoord migrate", None),
        ("run ./antwoord jobs pause autoreply --json.", "--json."),
        ("./antwoord jobs pawse autoreply", "pawse"),
        ("./antwoord no-such-command", "no-such-command"),
        ("./antwoord dlq replay --class timeout --rate 5 && echo", None),
        ("./antwoord dlq replay --rat 5", "--rat"),
    ],
)
def test_a_command_that_is_not_there_is_found(line: str, unknown: str | None) -> None:
    [words] = calls(line)
    assert unknown_in(words) == unknown
