"""The command's entry: the one table of commands, each loaded only when it is the one that runs.

A command is a module in cli/ with a function `command` (its parameters are typer's), or, for several under one name, a
`typer.Typer` called `app`; and one line in COMMANDS.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence

import typer

# name: (what is run, its line in the list of commands)
COMMANDS: Mapping[str, tuple[str, str]] = {
    "up": ("cli.up:command", "Start everything on this machine and print the links."),
    "test": ("cli.test:command", "Run the tests: all of them, or unit, db, crash, e2e."),
    "check": ("cli.check:command", "Check the formatting, the style, the types, and the import and SQL rules."),
    "host": ("cli.host:command", "Run only the Functions host on this app."),
    "console": ("cli.console:command", "Make a new link that signs in to the console of `up`."),
    "migrate": ("cli.migrate:command", "Bring the database to the newest version."),
    "doctor": ("cli.doctor.command:command", "Check a live set-up from this machine, and say what to do."),
    "azure": ("cli.azure.command:app", "What `azd` runs around a deployment: preflight, provisioned, deployed."),
    "bench": ("cli.bench:command", "Measure the figures."),
    "jobs": (
        "cli.jobs:app",
        "Look at the queue, run again what failed, pause and limit types: list, show, retry, cancel, types, …",
    ),
    "dlq": ("cli.dlq:app", "What failed for good: list, replay at a rate, replays, stop, resume, close."),
    "docs": ("cli.docs:app", "The documents that answers come from: add, list, search, remove."),
    "people": ("cli.people:app", "The people who may ask: import, list."),
    "sources": ("cli.sources:app", "Who may send us events: add, list, rotate, disable, enable."),
    "endpoints": (
        "cli.endpoints:app",
        "Where events are delivered: add, list, show, change, rotate, test, disable, enable.",
    ),
    "events": ("cli.events:app", "What came in by webhook and where it went: list, show, resend one delivery."),
    "secrets": ("cli.secrets:app", "The key that seals webhooks' secrets: new-key, reseal."),
    "conversations": ("cli.conversations:app", "Look at conversations: list, show."),
    "stats": ("cli.stats:command", "Show how the queue and the conversations stand."),
}
PROGRAM = "./antwoord"


def main(arguments: Sequence[str], commands: Mapping[str, tuple[str, str]] = COMMANDS) -> int:
    """Run one command and return its exit status; an error that people can mend is one sentence on stderr."""
    try:
        build(arguments[0] if arguments else None, commands)(list(arguments), prog_name=PROGRAM)
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


def build(chosen: str | None, commands: Mapping[str, tuple[str, str]]) -> typer.Typer:
    """All commands by name and summary; of these only the chosen one is real."""
    root = typer.Typer(
        help="Antwoord answers WhatsApp messages from an organisation's own documents, exactly once.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    root.callback()(_nothing)  # keeps the name of a command necessary, however few there are
    for name, (place, summary) in commands.items():
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
