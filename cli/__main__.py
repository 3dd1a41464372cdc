"""The command's entry: the one table of commands, each loaded only when it is the one that runs.

A command is a module in cli/ with a function `command` (its parameters are typer's), or, for several under one name, a
`typer.Typer` called `app`; and one line in COMMANDS.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import typer

# name: (what is run, its line in the list of commands)
COMMANDS = {
    "test": ("cli.test:command", "Run the tests: all of them, or unit, db, crash, e2e."),
    "check": ("cli.check:command", "Check the formatting, the style, the types, and the import and SQL rules."),
}
PROGRAM = "./antwoord"


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status; an error that people can mend is one sentence on stderr."""
    try:
        build(arguments[0] if arguments else None)(list(arguments), prog_name=PROGRAM)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        from cli.output import plain, tell

        told = tell(error)
        if told is None:
            raise
        print(plain(told.sentence), file=sys.stderr)
        return told.status
    return 0


def build(chosen: str | None) -> typer.Typer:
    """All commands by name and summary; of these only the chosen one is real."""
    root = typer.Typer(
        help="Antwoord answers WhatsApp messages from an organisation's own documents, exactly once.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    root.callback()(_nothing)  # keeps the name of a command necessary, however few there are
    for name, (place, summary) in COMMANDS.items():
        if name != chosen:
            root.command(name, help=summary)(_nothing)
            continue
        module, _, attribute = place.partition(":")
        target = getattr(importlib.import_module(module), attribute)
        if isinstance(target, typer.Typer):
            root.add_typer(target, name=name, no_args_is_help=True)
        else:
            root.command(name)(target)
    return root


def _nothing() -> None:
    """Stands for a command that is only listed."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
