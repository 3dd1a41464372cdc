"""What the templates will be deployed with: the defaults in main.bicep, under what main.parameters.json and azd say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.azure.values import OFF, ON

FOLDER = Path(__file__).resolve().parents[2] / "infra"
_DEFAULT = re.compile(r"^param (\w+) \w+\??\s*=\s*('[^'\n]*'|-?\d+|true|false)\s*$", re.MULTILINE)
_TYPE = re.compile(r"^param (\w+) (bool|int)\b", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{(\w+)(?:=([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Parameters:
    """`values` by the parameter's name; `unset` are azd variables without a default that nobody has set, `mistyped` those whose
    value azd cannot read as the template's type: it says nothing, and takes the template's default."""

    values: Mapping[str, Any]
    unset: tuple[str, ...]
    mistyped: tuple[str, ...] = ()

    def text(self, name: str, default: str = "") -> str:
        """One value as text."""
        value = self.values.get(name)
        return default if value is None or value == "" else str(value)

    def number(self, name: str, default: int) -> int:
        """One value as a whole number."""
        text = self.text(name)
        return int(text) if text.isdecimal() else default


def read_parameters(
    given: Mapping[str, str], folder: Path = FOLDER, answered: Mapping[str, str] | None = None
) -> Parameters:
    """Read both files. Only plain defaults are understood: text, numbers, true and false.

    `answered` are parameters that azd has asked for: it takes them where a variable is not set.
    """
    values: dict[str, Any] = {}
    types: dict[str, str] = {}
    unset: list[str] = []
    mistyped: list[str] = []
    bicep = folder / "main.bicep"
    if bicep.exists():
        source = bicep.read_text("utf-8")
        values |= {name: _literal(text) for name, text in _DEFAULT.findall(source)}
        types = dict(_TYPE.findall(source))
    named = folder / "main.parameters.json"
    if named.exists():
        for name, item in json.loads(named.read_text("utf-8"))["parameters"].items():
            missing: list[str] = []
            values[name] = _filled_in(item.get("value"), given, missing)
            if missing and answered and answered.get(name):
                values[name], missing = answered[name], []
            unset += missing
            if not _is_readable(values[name], types.get(name)):
                mistyped.append(" ".join(variable for variable, _ in _VARIABLE.findall(item["value"])))
    return Parameters(values, tuple(dict.fromkeys(unset)), tuple(mistyped))


def _is_readable(value: Any, kind: str | None) -> bool:
    """Whether azd can make the template's type of the text."""
    if not isinstance(value, str) or kind is None:
        return True
    return value in ON + OFF if kind == "bool" else re.fullmatch(r"[+-]?\d+", value) is not None


def _filled_in(value: Any, given: Mapping[str, str], unset: list[str]) -> Any:
    if not isinstance(value, str):
        return value

    def fill(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        if given.get(name, "").strip():
            return given[name].strip()
        if default is None:
            unset.append(name)
        return default or ""

    return _VARIABLE.sub(fill, value)


def _literal(text: str) -> Any:
    return text[1:-1] if text.startswith("'") else json.loads(text)
