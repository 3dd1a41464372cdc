"""`az` and `azd`: the one place that runs them. They are found on PATH, have a time limit, and answer JSON or nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.errors import UserError

SECONDS = 180.0
INSTALL = {
    "az": "https://learn.microsoft.com/cli/azure/install-azure-cli",
    "azd": "https://learn.microsoft.com/azure/developer/azure-developer-cli/install-azd",
}


class ProgramFailed(UserError):
    """`az` or `azd` ended with an error; `said` is its own last words."""

    def __init__(self, sentence: str, said: str) -> None:
        super().__init__(sentence)
        self.said = said


class ProgramMissing(UserError):
    """It is not installed."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Runs them in this environment."""

    environment: Mapping[str, str]

    def az(self, *arguments: str) -> Any:
        """Run `az` and read its JSON; None when it prints nothing. Raises ProgramFailed or ProgramMissing."""
        printed = self._run("az", *arguments, "--only-show-errors", "--output", "json")
        try:
            return json.loads(printed) if printed.strip() else None
        except ValueError as broken:
            raise ProgramFailed(f"`az {_shown(arguments)}` did not print JSON.", "no JSON") from broken

    def az_quietly(self, *arguments: str) -> None:
        """Run `az` for what it does, with nothing printed: an answer may repeat a secret."""
        self._run("az", *arguments, "--only-show-errors", "--output", "none")

    def azd(self, *arguments: str) -> str:
        """Run `azd`; what it prints."""
        return self._run("azd", *arguments)

    def has(self, program: str) -> bool:
        """Whether it is installed."""
        return shutil.which(program, path=self.environment.get("PATH")) is not None

    def _run(self, program: str, *arguments: str) -> str:
        path = shutil.which(program, path=self.environment.get("PATH"))
        if path is None:
            raise ProgramMissing(f"`{program}` is not installed: see {INSTALL[program]}.")
        try:
            done = subprocess.run(
                [path, *arguments], env=dict(self.environment), stdin=subprocess.DEVNULL, capture_output=True,
                text=True, encoding="utf-8", errors="replace", check=False, timeout=SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            raise ProgramFailed(
                f"`{program} {_shown(arguments)}` took over {SECONDS:g} s: run it again.", "late"
            ) from late
        if done.returncode:
            said = _last_words(done.stderr)
            raise ProgramFailed(f"`{program} {_shown(arguments)}` failed: {said}", said)
        return done.stdout


@contextmanager
def secret_file(value: str) -> Iterator[str]:
    """A file with a secret that only its owner can read, for as long as a program reads it: arguments are seen by everybody."""
    with tempfile.TemporaryDirectory(prefix="antwoord-") as folder:
        path = Path(folder) / "value"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(value)
        yield str(path)


def _shown(arguments: tuple[str, ...]) -> str:
    """The command without its options: enough to know which one it was."""
    words: list[str] = []
    for argument in arguments:
        if argument.startswith("-"):
            break
        words.append(argument)
    return " ".join(words[:5])


def _last_words(stderr: str) -> str:
    """The error of az in its own words, on one line."""
    text = stderr[stderr.rfind("ERROR:") :] if "ERROR:" in stderr else stderr
    return " ".join(text.removeprefix("ERROR:").split())[:500] or "it does not say why"
