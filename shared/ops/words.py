"""What administrators read, in Dutch and English: flat catalogues, words/{nl,en}/*.json, with the same keys."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Final, Literal, get_args

from markupsafe import Markup, escape

from shared.ops.text import plain

type Language = Literal["nl", "en"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language.__value__)
NAME_LIMIT = 80
FOLDER = Path(__file__).parent / "words"


@cache
def catalogue(language: Language) -> dict[str, str]:
    """The lines of one language, by key."""
    lines: dict[str, str] = {}
    for path in sorted((FOLDER / language).glob("*.json")):
        lines |= json.loads(path.read_text("utf-8"))
    return lines


class Words:
    """The lines of one language. Unknown keys raise KeyError: a test holds that templates use known ones only."""

    def __init__(self, language: Language) -> None:
        self.language: Language = language
        self._lines = catalogue(language)

    def __call__(self, key: str, /, **values: object) -> Markup:
        """A line for a page: what is put into it is escaped, unless it is markup already."""
        line = escape(self._lines[key])
        return line.format(**values) if values else line

    def text(self, key: str, /, **values: object) -> str:
        """A line as plain text, for where no markup goes."""
        line = self._lines[key]
        return line.format(**values) if values else line

    def of(self, group: str, name: object, /, **values: object) -> Markup:
        """The line of a name that data holds (a state, an error's class); an unknown one is shown as it is, if shortened."""
        key = f"{group}.{name}"
        return self(key, **values) if key in self._lines else escape(plain(name, NAME_LIMIT))

    def has(self, group: str, name: object) -> bool:
        """Whether there is a line for a name."""
        return f"{group}.{name}" in self._lines

    def names(self, group: str) -> list[str]:
        """The names of a group, in the catalogue's order."""
        return [key.removeprefix(f"{group}.") for key in self._lines if key.startswith(f"{group}.")]

    def count(self, key: str, number: int, /, **values: object) -> Markup:
        """The line for one or for more: `key.one` or `key.other`, with `{n}`."""
        return self(f"{key}.{'one' if number == 1 else 'other'}", n=self.number(number), **values)

    def number(self, number: float) -> str:
        """12,345 as this language writes it."""
        return f"{number:,}".replace(",", "\N{NO-BREAK SPACE}" if self.language == "nl" else ",")
