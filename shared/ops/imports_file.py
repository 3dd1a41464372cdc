"""A file of people between its preview and its import: carried by the page itself, so that nothing of it is kept meanwhile.

It goes to the browser compressed and comes back with the button that is pressed; it is then looked at as any upload is.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import zlib
from collections import Counter
from dataclasses import dataclass

from shared.errors import UserError
from shared.knowledge.people_file import SIZE_LIMIT, Table
from shared.knowledge.people_rows import PersonRow, rows_of

ROWS_LOOKED_AT = 500
ROWS_SHOWN = 8
REJECTED_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the file and what it holds: `field` is a name of people_columns, "extra" for an attribute, or "" for none."""

    name: str
    field: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What the first rows of a file say. `looked_at` of its rows were read, `rejected` of them are no people."""

    columns: list[Column]
    people: list[PersonRow]
    bad: list[PersonRow]
    looked_at: int
    rejected: int


def preview(table: Table) -> Preview:
    """Read the first rows."""
    field_of = {column: field for field, column in table.map.items()}
    columns = [Column(name, field_of.get(name, "extra" if name else "")) for name in table.columns]
    rows = list(itertools.islice(rows_of(table), ROWS_LOOKED_AT))
    kinds = Counter(row.reason is None for row in rows)
    return Preview(
        columns=columns,
        people=[row for row in rows if row.reason is None][:ROWS_SHOWN],
        bad=[row for row in rows if row.reason is not None][:REJECTED_SHOWN],
        looked_at=len(rows),
        rejected=kinds[False],
    )


def packed(data: bytes) -> str:
    """The file for a hidden field."""
    return base64.urlsafe_b64encode(zlib.compress(data)).decode("ascii")


def unpacked(text: str) -> bytes:
    """The file from a hidden field, at most a byte more than may be imported. Raises UserError for anything else."""
    try:
        compressed = base64.b64decode(text, altchars=b"-_", validate=True)
        reader = zlib.decompressobj()
        data = reader.decompress(compressed, SIZE_LIMIT + 1)
    except (binascii.Error, ValueError, zlib.error) as wrong:
        raise UserError("The file did not come along: choose it once more.", name="file_lost") from wrong
    if not reader.eof and len(data) <= SIZE_LIMIT:
        raise UserError("The file did not come along: choose it once more.", name="file_lost")
    return data
