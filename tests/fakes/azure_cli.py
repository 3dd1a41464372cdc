"""`az` and `azd` as real programs on PATH: they keep a little state in a file, note each call, and fail when told to.

`programs` does the same without a process for each call, for the many tests of what follows from an answer.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli.azure.models import Wanted, wanted
from cli.azure.parameters import read_parameters
from cli.azure.programs import ProgramFailed, Programs
from cli.azure.values import Values
from tests.fakes.azure_program import Failure, answer

ROOT = Path(__file__).resolve().parents[2]
REGION = "swedencentral"
SUBSCRIPTION = "00000000-0000-0000-0000-00000000cafe"
DEPLOYER = "deployer@example.org"
TEMPLATES = read_parameters({})  # their defaults are what everything here offers
[CHAT, EMBEDDING] = wanted(TEMPLATES)

PROGRAM = """#!{python} -IS
import sys
sys.path.append({root!r})
from pathlib import Path
from tests.fakes.azure_program import main
sys.exit(main(Path({folder!r}), {program!r}, sys.argv[1:]))
"""


def token_of(object_id: str, name: str) -> str:
    """An access token as Entra writes it; its signature is nobody's business here."""
    claims = json.dumps({"oid": object_id, "upn": name}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.token-of-the-deployer-0123456789"


def offered(one: Wanted, version: str | None = None, retires: str = "2099-01-01") -> dict[str, Any]:
    """One model of a region."""
    model = {
        "name": one.model,
        "version": version or one.version,
        "skus": [{"name": one.sku}, {"name": "ProvisionedManaged"}],
    }
    return {"kind": "OpenAI", "model": model | {"deprecation": {"inference": f"{retires}T00:00:00Z"}}}


def usage(one: Wanted, left: int = 1000) -> dict[str, Any]:
    """One line of a region's quota, in thousands of tokens a minute."""
    return {"name": {"value": f"OpenAI.{one.sku}.{one.model}"}, "currentValue": 5.0, "limit": left + 5.0}


ANSWERS: dict[str, Any] = {
    "az version": {"azure-cli": "2.83.0", "azure-cli-core": "2.83.0"},
    "azd version": "azd version 1.22.0 (commit 0)",
    "az account show": {
        "id": SUBSCRIPTION, "name": "Proef", "state": "Enabled", "tenantId": "t", "user": {"name": DEPLOYER, "type": "user"},
    },
    "az account get-access-token": {"accessToken": token_of("1", DEPLOYER)},
    "azd auth token": json.dumps({"token": token_of("1", DEPLOYER), "expiresOn": "2099-01-01T00:00:00Z"}),
    "az ad signed-in-user show": {"userPrincipalName": DEPLOYER},
    "az ad sp show": {"displayName": "antwoord-deployer"},
    "az functionapp list-flexconsumption-locations": [{"name": "Sweden Central"}, {"name": "West Europe"}],
    "az functionapp list-flexconsumption-runtimes": [{"runtime": "python", "version": "3.12"}, {"version": "3.13"}],
    "az provider show": {"registrationState": "Registered"},
    "az functionapp show": {"id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg-proef/providers/Microsoft.Web/sites/app"},
    "az postgres flexible-server list-skus": [{"editions": [{"skus": [{"name": TEMPLATES.text("databaseSku").lower()}]}]}],
    "az cognitiveservices model list": [offered(CHAT), offered(EMBEDDING)],
    "az cognitiveservices usage list": [usage(CHAT), usage(EMBEDDING)],
    "az cognitiveservices account list-deleted": [],
    "az keyvault list-deleted": [],
}  # fmt: skip


class AzureCli:
    """The two programs in a folder of their own, first on the PATH that `environment` gives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for program in ("az", "azd"):
            path = folder / program
            path.write_text(PROGRAM.format(python=sys.executable, root=str(ROOT), folder=str(folder), program=program))
            path.chmod(0o755)
        self._write({"answers": ANSWERS, "failures": {}, "secrets": {}, "deleted_secrets": {}, "apps": [], "azd": {}})

    @property
    def environment(self) -> dict[str, str]:
        """PATH, and the variables of the azd environment as they are now."""
        return {"PATH": f"{self._folder}{os.pathsep}{os.environ['PATH']}", **self.state["azd"]}

    @property
    def programs(self) -> Programs:
        """The same programs, in this process."""
        return _Inside(self.environment, self)

    @property
    def values(self) -> Values:
        """What a hook is given now, with the programs in this process."""
        return Values(self.programs, self.environment)

    @property
    def state(self) -> dict[str, Any]:
        """What the programs know."""
        return dict(json.loads((self._folder / "state.json").read_text()))

    def change(self, part: str, **values: Any) -> None:
        """Change values of one part of what they know; None takes one away."""
        state = self.state
        state[part] = {name: value for name, value in (state[part] | values).items() if value is not None}
        self._write(state)

    def answer(self, begins: str, answer: Any) -> None:
        """What is answered to calls that begin so."""
        state = self.state
        state["answers"][begins] = answer
        self._write(state)

    def fail(self, begins: str, says: str, times: int | None = None) -> None:
        """Let calls that begin so fail, `times` times (None: always)."""
        state = self.state
        state["failures"][begins] = {"says": says, "times": times}
        self._write(state)

    def calls(self) -> list[list[str]]:
        """Every call since the last look."""
        log = self._folder / "calls.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def ask(self, program: str, arguments: tuple[str, ...]) -> str:
        """One call in this process."""
        state = self.state
        with (self._folder / "calls.jsonl").open("a") as log:
            log.write(json.dumps([program, *arguments]) + "\n")
        try:
            return answer(state, program, arguments)
        finally:
            self._write(state)

    def _write(self, state: dict[str, Any]) -> None:
        (self._folder / "state.json").write_text(json.dumps(state))


class _Inside(Programs):
    __slots__ = ("_cli",)

    def __init__(self, environment: Mapping[str, str], cli: AzureCli) -> None:
        super().__init__(environment)
        object.__setattr__(self, "_cli", cli)

    def _run(self, program: str, *arguments: str) -> str:
        cli: AzureCli = self._cli  # type: ignore[attr-defined]
        try:
            return cli.ask(program, arguments)
        except Failure as failure:
            raise ProgramFailed(f"`{program}` failed: {failure}", str(failure)) from failure
