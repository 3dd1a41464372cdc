"""Checkov's Azure policies over infra/: nothing fails, and what is left out says why beside the resource."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.bicep import FILES, INFRA

PINS = INFRA / "requirements-check.txt"
FOLDER = INFRA.parent / ".antwoord"
INSTALL_SECONDS, RUN_SECONDS = 300, 300


@pytest.fixture(scope="module")
def checkov() -> Path:
    """The program, in an environment of its own that is made once for these pins; some ten seconds."""
    place = FOLDER / f"checkov-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]}"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        python = place / "bin" / "python"
        for step in (
            [sys.executable, "-m", "venv", "--without-pip", str(place)],
            [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-compile",
             "--requirement", str(PINS)],
        ):  # fmt: skip
            subprocess.run(step, check=True, capture_output=True, timeout=INSTALL_SECONDS)
        (place / "complete").touch()
    return place / "bin" / "checkov"


def run(checkov: Path, folder: Path) -> dict[str, Any]:
    """What it says of a folder; without its descriptions, which it would download."""
    command = [str(checkov), "--directory", str(folder), "--framework", "bicep", "--skip-download", "--output", "json"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=RUN_SECONDS, cwd=folder)
    said: dict[str, Any] = json.loads(ran.stdout)
    return said


@pytest.mark.timeout(INSTALL_SECONDS + RUN_SECONDS)
def test_no_policy_is_broken_without_a_reason(checkov: Path) -> None:
    said = run(checkov, INFRA)
    failed = [f"{one['check_id']} {one['check_name']}: {one['resource']}" for one in said["results"]["failed_checks"]]
    assert failed == []
    assert said["summary"]["parsing_errors"] == 0
    assert said["summary"]["passed"] >= 30  # it has understood what it read
    # Every exception names a check that there is, and that looks at the resource it stands in.
    assert said["summary"]["skipped"] == sum(len(re.findall(r"// checkov:skip=", path.read_text())) for path in FILES)


def test_every_exception_gives_its_reason() -> None:
    for path in FILES:
        for check, reason in re.findall(r"checkov:skip=(\w+)(.*)", path.read_text("utf-8")):
            assert re.fullmatch(r":(as before.*|.{20,})", reason), f"{path.name}: {check}"
