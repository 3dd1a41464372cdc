"""Read a file of people: its encoding, its delimiter, its header and its records. No I/O.

What is wrong with the whole file is one UserError sentence that says what to do; what is wrong with a row is its own
(people_rows.py).
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shared.errors import UserError
from shared.knowledge.people_columns import column_map, is_header, recognised
from shared.knowledge.people_encoding import decoded
from shared.knowledge.plain import one_line

SIZE_LIMIT = 10_000_000  # bytes
ROWS_LIMIT = 100_000
COLUMNS_LIMIT = 100
NAME_CHARACTERS = 200
COLUMN_CHARACTERS = 100
DELIMITERS = (",", ";", "\t")

_LOOKED_AT = 50  # records, to find the delimiter
_HEADER_WITHIN = 10  # records: a title or a `sep=;` may stand above the header


@dataclass(frozen=True, slots=True)
class Table:
    """A file of people that has been looked at; rows_of() reads its rows.

    `columns` are the header's cells ("" for one without a name), `map` the column of each field that was found, by the fields
    of people_columns.NAMES; every other column is an attribute. `rows_total` counts the rows that are not empty.
    """

    source: str
    data: bytes = field(repr=False)
    encoding: str
    delimiter: str
    columns: tuple[str, ...]
    map: Mapping[str, str]
    header_line: int
    rows_total: int

    @property
    def attributes(self) -> tuple[str, ...]:
        """The columns that become attributes, in their order."""
        fields = set(self.map.values())
        return tuple(column for column in self.columns if column and column not in fields)


@dataclass(frozen=True, slots=True)
class Record:
    """The cells of one record, and the line that it begins on, from 1."""

    line: int
    cells: list[str]


def read_table(name: str, data: bytes) -> Table:
    """Look at a file. Raises UserError when people cannot be imported from it."""
    source = _shown(name)
    if len(data) > SIZE_LIMIT:
        raise UserError(
            f"{source} is larger than {SIZE_LIMIT // 1_000_000} MB. Cut it into several files.",
            name="file_too_large",
        )
    text, encoding = decoded(source, data)
    delimiter = _delimiter(text)
    header = _header(source, text, delimiter)
    columns = columns_of(header)
    if len(columns) > COLUMNS_LIMIT:
        raise UserError(
            f"{source} has {len(columns)} columns; at most {COLUMNS_LIMIT} can be imported.", name="too_many_columns"
        )
    mapped = column_map(source, columns)
    total = sum(1 for record in records(source, text, delimiter) if record.line > header.line)
    if not total:
        raise UserError(f"{source} has a header but no rows under it.", name="file_without_rows")
    if total > ROWS_LIMIT:
        raise UserError(
            f"{source} has {total:,} rows; at most {ROWS_LIMIT:,} can be imported at once. Cut it into several files.",
            name="too_many_rows",
        )
    return Table(source, data, encoding, delimiter, columns, mapped, header.line, total)


def reopened(source: str, data: bytes, *, encoding: str, delimiter: str, mapped: Mapping[str, str]) -> Table:
    """A file whose encoding, delimiter and columns are known from before, whatever would be found now."""
    text, needed = data.decode(encoding), set(mapped.values())
    header = next(record for record in records(source, text, delimiter) if needed <= set(columns_of(record)))
    total = sum(1 for record in records(source, text, delimiter) if record.line > header.line)
    return Table(source, data, encoding, delimiter, columns_of(header), mapped, header.line, total)


def columns_of(header: Record) -> tuple[str, ...]:
    """The names of the columns, as they are shown; those without one at the end are left out."""
    names = [one_line(cell)[:COLUMN_CHARACTERS] for cell in header.cells]
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def records(source: str, text: str, delimiter: str) -> Iterator[Record]:
    """The records that are not empty, with the line of the file that each begins on. Raises UserError."""
    lines = _Lines(text)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    line = 1
    try:
        for cells in reader:
            if lines.have_ended:  # in the middle of a record
                raise UserError(
                    f"{source}: the quotation mark that opens in the row of line {line} is never closed.",
                    name="quote_open",
                )
            if any(cell and not cell.isspace() for cell in cells):
                yield Record(line, cells)
            line = reader.line_num + 1
    except csv.Error as wrong:
        raise UserError(
            f"{source} cannot be read from line {line} on: {wrong}. Is a quotation mark missing?",
            name="file_unreadable",
        ) from wrong


class _Lines:
    """The lines of a text, whatever ends them; knows whether somebody has asked for more than there are."""

    def __init__(self, text: str) -> None:
        self._lines = io.StringIO(text, newline="")
        self.have_ended = False

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._lines.readline()
        if not line:
            self.have_ended = True
            raise StopIteration
        return line


def _shown(name: str) -> str:
    """The file's own name, for people to recognise it by; never used as a path."""
    last = one_line(name.replace("\\", "/").rsplit("/", 1)[-1])
    shown = "".join(character for character in last if character.isprintable())[:NAME_CHARACTERS]
    return shown or "The file"


def _delimiter(text: str) -> str:
    """The one that makes most of the header known; then the one that gives the rows as many cells as the header has."""
    return max(DELIMITERS, key=lambda delimiter: _score(text, delimiter))


def _score(text: str, delimiter: str) -> tuple[int, float, int]:
    looked_at: list[Record] = []
    with contextlib.suppress(UserError):  # it is told when the file is read by the delimiter that is found
        looked_at.extend(itertools.islice(records("", text, delimiter), _LOOKED_AT))
    if not looked_at:
        return (0, 0.0, 0)
    place = max(range(len(looked_at[:_HEADER_WITHIN])), key=lambda n: recognised(looked_at[n].cells))
    width = len(looked_at[place].cells)
    following = looked_at[place + 1 :]
    alike = sum(len(record.cells) == width for record in following) / max(len(following), 1)
    return (recognised(looked_at[place].cells), alike, width)


def _header(source: str, text: str, delimiter: str) -> Record:
    """The first record that names a phone and a name column; or else the one that comes nearest, for the error."""
    beginning = list(itertools.islice(records(source, text, delimiter), _HEADER_WITHIN))
    header = next((record for record in beginning if is_header(record.cells)), None) or max(
        beginning, key=lambda record: recognised(record.cells), default=None
    )
    if header is None:
        raise UserError(f"{source} is empty.", name="file_empty")
    if not recognised(header.cells) and _holds_a_number(header.cells):
        raise UserError(
            f"{source} has no header: its first line must name the columns, such as naam and telefoon.",
            name="no_header",
        )
    return header


def _holds_a_number(cells: Sequence[str]) -> bool:
    return any(sum(character.isdigit() for character in cell) >= 8 for cell in cells)
