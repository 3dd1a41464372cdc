"""What every command prints and returns: exit statuses, `--json`, tables, and errors as sentences.

    Status.DONE 0 · FAILED 1 · USAGE 2 (usage or settings) · NOTHING 3 (nothing matched)

A command raises what is wrong (UserError, SettingsError, DatabaseAway, NothingMatched) and the sentence goes to stderr
with the right status; only what nobody foresaw shows a traceback. With `--json` stdout holds one object and nothing else.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shared.errors import AntwoordError, DatabaseAway, FailureKind, SettingsError, UserError, classify

WIDTH_WITHOUT_TERMINAL = 160  # columns of a table in a pipe or a file, where 80 would cut most cells off

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, all else on stderr.")]


class Status(IntEnum):
    """The exit statuses; scripts rely on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOTHING = 3


class NothingMatched(AntwoordError):
    """The command ran, but what was asked for does not exist; the text says what was looked for."""


@dataclass(frozen=True, slots=True)
class Told:
    """An error as a person and a script see it."""

    sentence: str
    status: Status


class Output:
    """Where one run of a command writes."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        width = None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
        self._console = Console(markup=False, highlight=False, emoji=False, width=width)

    def note(self, text: str) -> None:
        """Something for the person who waits: always on stderr."""
        print(plain(text), file=sys.stderr, flush=True)

    def result(self, data: Mapping[str, Any], show: Callable[[Console], None]) -> None:
        """The result: `data` as one JSON object with `--json`, and otherwise what `show` prints on the console."""
        if self.as_json:
            print(json.dumps(data, ensure_ascii=False, default=_simple), flush=True)
        else:
            show(self._console)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table whose cells are shown as they are: no markup, no control characters, an empty cell for None."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(Text("" if cell is None else plain(str(cell))) for cell in row))
    return shown


def plain(text: str) -> str:
    """Text from outside without what a terminal would obey (escape sequences, backspaces), or cannot show."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "�", text)


def tell(error: BaseException) -> Told | None:
    """The sentence and status of an error that people can do something about; None for a bug, which needs its traceback."""
    if isinstance(error, NothingMatched):
        return Told(str(error), Status.NOTHING)
    if isinstance(error, SettingsError | UserError):
        return Told(str(error), Status.USAGE)
    if isinstance(error, DatabaseAway):
        return Told(f"The database cannot be reached: {error}", Status.FAILED)
    if isinstance(error, AntwoordError):
        return Told(str(error), Status.FAILED)
    if isinstance(error, Exception):
        failure = classify(error)
        if failure.kind is FailureKind.DATABASE:
            return Told(f"The database cannot be reached: {failure.text}", Status.FAILED)
    return None


def _simple(value: object) -> object:
    """What JSON has no word for: times as ISO 8601, ids and words as text, rows as objects."""
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, uuid.UUID | StrEnum):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
