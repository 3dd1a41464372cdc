"""The values of the azd environment: what a hook is given, and what is written back for the templates to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.azure.programs import Programs
from cli.environment import ROOT
from shared.errors import UserError

# What azd takes for a bool; for anything else it takes the template's default, and does not say so.
ON = ("1", "t", "T", "TRUE", "true", "True")
OFF = ("0", "f", "F", "FALSE", "false", "False")


@dataclass(frozen=True, slots=True)
class Values:
    """Reads the environment's variables and outputs, and sets variables."""

    programs: Programs
    given: Mapping[str, str]

    def get(self, name: str, default: str = "") -> str:
        """One value; the default when it is absent or empty."""
        return self.given.get(name, "").strip() or default

    def is_on(self, name: str) -> bool:
        """Whether a switch is on, as azd and the templates understand it."""
        return self.get(name) in ON

    def need(self, *names: str) -> list[str]:
        """These values. Raises UserError that names all that are missing."""
        missing = [name for name in names if not self.get(name)]
        if missing:
            raise UserError(
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set: run this as a hook of azd, or "
                "after `azd provision` with the right environment chosen (`azd env select`)."
            )
        return [self.get(name) for name in names]

    def put(self, name: str, value: str) -> bool:
        """Set a variable of the azd environment if it has another value; whether it had."""
        if self.get(name) == value:
            return False
        self.programs.azd("env", "set", name, value)
        return True


def read_answers(name: str, folder: Path = ROOT / ".azure") -> dict[str, str]:
    """What somebody has answered when azd asked for a parameter: it keeps that beside the variables of its environment."""
    try:
        known = json.loads((folder / Path(name).name / "config.json").read_text("utf-8"))["infra"]["parameters"]
        return {str(parameter): str(value) for parameter, value in known.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def read_values(environment: Mapping[str, str]) -> Values:
    """What a hook of azd finds in its environment; outside of a hook azd is asked."""
    programs = Programs(environment)
    given = dict(environment)
    if not given.get("AZURE_ENV_NAME") and programs.has("azd"):
        try:
            known = dict(json.loads(programs.azd("env", "get-values", "--output", "json")))
        except (UserError, ValueError, TypeError):  # no environment was made yet: what needs a value says which
            known = {}
        given = {name: str(value) for name, value in known.items()} | given
    return Values(programs, given)
