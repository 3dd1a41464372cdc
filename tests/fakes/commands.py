"""Whether a command line of ours, as a page or a script has it, is one that the command knows."""

from __future__ import annotations

import re
from typing import Any

import typer.main

from cli.__main__ import COMMANDS, build

_CALL = re.compile(r"(?<![\w/])\./antwoord((?: [^\s`|&;<>()#]+)*)")


def calls(text: str) -> list[list[str]]:
    """The words behind each `./antwoord` of a text, up to the end of the line or of the code."""
    return [found.split() for found in _CALL.findall(text)]


def unknown_in(words: list[str]) -> str | None:
    """What the command does not know in these words: a command, a subcommand or an option; None when all is well."""
    if not words or words[0].startswith("-"):
        return None
    if words[0] not in COMMANDS:
        return words[0]
    command: Any = typer.main.get_command(build(words[0], COMMANDS))
    rest = list(words)
    while hasattr(command, "commands"):
        name = next((word for word in rest if not word.startswith("-")), None)
        if name is None:
            break
        if name not in command.commands:
            return name
        rest = rest[rest.index(name) + 1 :]
        command = command.commands[name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.split("=")[0] for word in rest if word.startswith("--")]
    return next((option for option in given if option not in known | {"--help"}), None)
