"""What the tests of azd's hooks share: a deployer who is signed in, a hook's command as a process, and its findings."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

from cli.azure import preflight as checks
from cli.azure.parameters import read_parameters
from cli.doctor.finding import Finding, State
from tests.fakes.azure_cli import REGION, ROOT, SUBSCRIPTION, AzureCli
from tests.fakes.site import Site

TODAY = datetime.datetime.now(datetime.UTC).date()


def signed_in(folder: Path) -> AzureCli:
    """A signed-in deployer with a fresh azd environment."""
    found = AzureCli(folder)
    found.change(
        "azd", AZURE_ENV_NAME="proef", AZURE_LOCATION=REGION, AZURE_SUBSCRIPTION_ID=SUBSCRIPTION, AZURE_PRINCIPAL_ID="p",
        ALERT_EMAIL="beheer@example.org", TWILIO_ACCOUNT_SID="AC" + "0" * 32, TWILIO_WHATSAPP_FROM="whatsapp:+31201234567",
    )  # fmt: skip
    return found


def run(cli: AzureCli, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """One hook's command, with nothing in its environment but what azd gives."""
    given = cli.environment | {"PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/")} | more
    return subprocess.run(
        [sys.executable, "-m", "cli", "azure", *arguments], env=given, cwd=ROOT, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


class Address(Site):
    """Answers every path with one address, as the public services do."""

    def __init__(self, text: str) -> None:
        super().__init__(health={}, text=text)


def preflight(cli: AzureCli, address: str) -> dict[str, Finding]:
    """The findings by name, in this process; of several with one name the wrong one."""
    values = cli.values
    by_name: dict[str, Finding] = {}
    for one in checks.check(values, read_parameters(values.given), address_service=address, today=TODAY):
        if one.check not in by_name or one.state is State.WRONG:
            by_name[one.check] = one
    return by_name
