"""The rows of a file of people: what each says about one person, or why it cannot be imported. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from shared.knowledge import Language
from shared.knowledge.people_file import Record, Table, records
from shared.knowledge.people_reasons import BadRow
from shared.knowledge.people_values import external_id_of, language_of, leaving_of
from shared.knowledge.phone import to_e164
from shared.knowledge.plain import one_line, plain

CELL_CHARACTERS = 1000
NAME_CHARACTERS = 200
EXTERNAL_ID_CHARACTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRow:
    """One row: a person, or the reason why it is none; `line` is the file's, from 1.

    What the file has no column for is None here and left alone in people. `last_day` is an ISO 8601 date.
    """

    line: int
    reason: str | None = None
    phone: str | None = None
    name: str | None = None
    language: Language | None = None
    department: str | None = None
    external_id: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    has_left: bool = False
    last_day: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For Postgres' jsonb_to_recordset."""
        return asdict(self)


def rows_of(table: Table) -> Iterator[PersonRow]:
    """Every row that is not empty, in order. Of two rows with one phone or employee number the first counts."""
    text = table.data.decode(table.encoding)
    read = _reader(table)
    phones: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for record in records(table.source, text, table.delimiter):
        if record.line <= table.header_line:
            continue
        try:
            row = read(record)
            _once(row.phone, phones, "phone_twice")
            _once(row.external_id, numbers, "external_id_twice")
        except BadRow as bad:
            yield PersonRow(line=record.line, reason=bad.reason)
        else:
            yield row
            phones[row.phone or ""] = row.line
            numbers[row.external_id or ""] = row.line


def _once(value: str | None, seen: Mapping[str, int], problem: str) -> None:
    if value and value in seen:
        raise BadRow(problem, str(seen[value]))


def _reader(table: Table) -> Callable[[Record], PersonRow]:
    """The function that reads a record, for this table's columns."""
    place = {field: table.columns.index(column) for field, column in table.map.items()}
    attributes = [(column, table.columns.index(column)) for column in table.attributes]
    parts = [part for part in _PARTS if part in place]
    width = len(table.columns)

    def read(record: Record) -> PersonRow:
        cells = record.cells
        while len(cells) > width and not cells[-1].strip():
            cells = cells[:-1]
        if len(cells) > width:
            raise BadRow("too_many_cells", str(len(cells)))
        cells = [*cells, *[""] * (width - len(cells))]
        long = next(
            (column for column, cell in zip(table.columns, cells, strict=True) if len(cell) > CELL_CHARACTERS), None
        )
        if long is not None:
            raise BadRow("too_long", long)

        def cell(name: str) -> str:
            return cells[place[name]].strip() if name in place else ""

        leaving = leaving_of(cell("left_at"))
        return PersonRow(
            line=record.line,
            phone=to_e164(cell("phone")),
            name=_limited(_name({part: one_line(cell(part)) for part in parts}), NAME_CHARACTERS, "name", table),
            language=language_of(cell("language")),
            department=_limited(one_line(cell("department")), NAME_CHARACTERS, "department", table) or None,
            external_id=_limited(
                external_id_of(cell("external_id")) or "", EXTERNAL_ID_CHARACTERS, "external_id", table
            )
            or None,
            attributes={column: text for column, n in attributes if (text := plain(cells[n]).strip())},
            has_left=leaving.has_left,
            last_day=leaving.last_day.isoformat() if leaving.last_day else None,
        )

    return read


_PARTS = ("name", "first_name", "infix", "last_name")


def _name(parts: Mapping[str, str]) -> str:
    """The name to call somebody by.

    A column for the whole name wins. Beside a column for the first name alone it mostly holds the last name, so the first
    name goes before it where it is not in it already.
    """
    whole, first, infix, last = (parts.get(part, "") for part in _PARTS)
    if whole and (not first or last or _words(first) <= _words(whole)):
        return whole
    name = " ".join(filter(None, (first, infix, whole or last)))
    if not name:
        raise BadRow("name_missing")
    return name


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _limited(text: str, limit: int, what: str, table: Table) -> str:
    if len(text) > limit:
        raise BadRow("too_long", table.map.get(what, what))
    return text


def fields_of(table: Table) -> Sequence[str]:
    """The fields of people that the file has a column for, whose empty cells therefore empty them."""
    return [name for name in ("language", "department", "left_at") if name in table.map]
