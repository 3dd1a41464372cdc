"""People and their imports, for the console and the command: start an import, and look at people, imports and reports."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from shared import audit
from shared.db.pool import Conn, one
from shared.knowledge import Language
from shared.knowledge.people_file import Table, read_table
from shared.knowledge.people_reasons import sentence, split_reason
from shared.queue.store import enqueue

__all__ = [
    "ImportRow",
    "ListedPerson",
    "ReportRow",
    "Table",
    "count_people",
    "import_report",
    "list_imports",
    "list_people",
    "read_table",
    "start_import",
]

type Outcome = Literal["added", "changed", "unchanged", "rejected"]

ADD_IMPORT = """
    INSERT INTO imports (source, content, column_map, delimiter, encoding, dry_run, rows_total, created_by)
    VALUES (%(source)s, %(content)s, %(column_map)s, %(delimiter)s, %(encoding)s, %(dry_run)s, %(rows_total)s, %(who)s)
    RETURNING id
"""
# A search is for a part of the name or department, the employee number, or digits of the phone number.
LIST_PEOPLE = """
    SELECT p.id, p.phone, p.name, p.language, p.department, p.attributes, p.external_id, p.left_at, p.updated_at,
        EXISTS (SELECT FROM chunks c WHERE c.person_id = p.id) AS has_record
    FROM people p
    WHERE (%(search)s::text IS NULL OR strpos(lower(p.name), %(search)s) > 0 OR strpos(lower(p.department), %(search)s) > 0
            OR lower(p.external_id) = %(search)s OR strpos(p.phone, %(digits)s) > 0)
        AND (%(with_left)s OR p.left_at IS NULL OR p.left_at > now())
    ORDER BY lower(p.name), p.id LIMIT %(limit)s OFFSET %(offset)s
"""
COUNT_PEOPLE = """
    SELECT count(*) FROM people p
    WHERE (%(search)s::text IS NULL OR strpos(lower(p.name), %(search)s) > 0 OR strpos(lower(p.department), %(search)s) > 0
            OR lower(p.external_id) = %(search)s OR strpos(p.phone, %(digits)s) > 0)
        AND (%(with_left)s OR p.left_at IS NULL OR p.left_at > now())
"""
LIST_IMPORTS = """
    SELECT id, source, column_map, delimiter, encoding, dry_run, state, reason, rows_total, rows_done, added, changed, unchanged,
        rejected, created_by, created_at, ended_at
    FROM imports
    WHERE %(id)s::uuid IS NULL OR id = %(id)s
    ORDER BY created_at DESC, id LIMIT %(limit)s
"""
REPORT = """
    SELECT line, outcome, reason FROM import_rows
    WHERE import_id = %(import_id)s AND outcome = ANY (%(outcomes)s) ORDER BY line LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class ListedPerson:
    """A person in a list; `has_record` says whether their own record can be found by them."""

    id: UUID
    phone: str
    name: str
    language: Language | None
    department: str | None
    attributes: dict[str, str]
    external_id: str | None
    left_at: datetime.datetime | None
    updated_at: datetime.datetime
    has_record: bool


@dataclass(frozen=True, slots=True)
class ImportRow:
    """An import in a list, with how far it is; `column_map` is field → column of the file."""

    id: UUID
    source: str
    column_map: dict[str, str]
    delimiter: str
    encoding: str
    dry_run: bool
    state: Literal["waiting", "running", "done", "failed"]
    reason: str | None
    rows_total: int
    rows_done: int
    added: int
    changed: int
    unchanged: int
    rejected: int
    created_by: str
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


@dataclass(frozen=True, slots=True)
class ReportRow:
    """What became of one row; `line` is the file's, from 1. `reason` is `name` or `name: detail` of a rejected one."""

    line: int
    outcome: Outcome
    reason: str | None

    @property
    def name(self) -> str | None:
        """The reason's machine name."""
        return split_reason(self.reason)[0] if self.reason else None

    @property
    def detail(self) -> str:
        """The few words of the row that go with it."""
        return split_reason(self.reason)[1] if self.reason else ""

    @property
    def sentence(self) -> str | None:
        """The reason in English."""
        return sentence(self.reason) if self.reason else None


def start_import(connection: Conn, table: Table, *, who: str, dry_run: bool) -> UUID:
    """Store a file that read_table() has looked at, with the job that imports it, in one transaction; the import's id."""
    values = {
        "source": table.source,
        "content": table.data,
        "column_map": Jsonb(dict(table.map)),
        "delimiter": table.delimiter,
        "encoding": table.encoding,
        "dry_run": dry_run,
        "rows_total": table.rows_total,
        "who": who,
    }
    with connection.transaction():
        row = one(connection, ADD_IMPORT, values)
        assert row is not None
        import_id = UUID(str(row[0]))
        enqueue(connection, {"type": "import_people", "import_id": str(import_id)})
        audit.record(
            connection, who=who, what="import_people", target_type="import", target_id=import_id, source=table.source,
            rows=table.rows_total, dry_run=dry_run,
        )  # fmt: skip
    return import_id


def list_people(
    connection: Conn, *, search: str | None = None, with_left: bool = True, limit: int = 100, offset: int = 0
) -> list[ListedPerson]:
    """People by name. `search` is for a part of a name or department, an employee number, or digits of a phone number."""
    with connection.cursor(row_factory=class_row(ListedPerson)) as cursor:
        parameters = {**_filter(search, with_left), "limit": limit, "offset": offset}
        return cursor.execute(LIST_PEOPLE, parameters).fetchall()


def count_people(connection: Conn, *, search: str | None = None, with_left: bool = True) -> int:
    """How many people list_people() would give without a limit."""
    row = one(connection, COUNT_PEOPLE, _filter(search, with_left))
    return int(row[0]) if row else 0


def list_imports(connection: Conn, *, import_id: UUID | None = None, limit: int = 50) -> list[ImportRow]:
    """The newest imports first, or one of them."""
    with connection.cursor(row_factory=class_row(ImportRow)) as cursor:
        return cursor.execute(LIST_IMPORTS, {"id": import_id, "limit": limit}).fetchall()


def import_report(
    connection: Conn, import_id: UUID, *, outcomes: Sequence[Outcome] = ("rejected",), limit: int | None = None
) -> list[ReportRow]:
    """What became of an import's rows, by line: the rejected ones, or those of other outcomes too."""
    with connection.cursor(row_factory=class_row(ReportRow)) as cursor:
        parameters = {"import_id": import_id, "outcomes": list(outcomes), "limit": limit}
        return cursor.execute(REPORT, parameters).fetchall()


def _filter(search: str | None, with_left: bool) -> dict[str, object]:
    wanted = (search or "").replace("\0", "").strip().lower()
    digits = re.sub(r"\D", "", wanted).lstrip("0")
    # Fewer digits would find nearly everybody; null finds nobody.
    return {"search": wanted or None, "digits": digits if len(digits) >= 4 else None, "with_left": with_left}
