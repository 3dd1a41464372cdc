"""Imports of people: a file, what it would do, and what became of it."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from starlette.responses import Response

from shared.errors import UserError
from shared.knowledge.people import ImportRow, ReportRow, import_report, list_imports, read_table, start_import
from shared.knowledge.people_columns import NAMES
from shared.knowledge.people_file import SIZE_LIMIT
from shared.ops import failures, imports_file, imports_report
from shared.ops.refusal import chosen
from shared.ops.render import url
from shared.ops.routes import Route, action, form, page
from shared.ops.times import start_of
from shared.ops.visit import Visit

LISTED = 50
REJECTED_SHOWN = 100
NAME_CHARACTERS = 300
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
ENCODINGS = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8", "cp1252": "Windows-1252"}


def imports(visit: Visit) -> Response:
    """The newest ones."""
    return visit.page("imports/list.html", **_listed(visit))


def live_imports(visit: Visit) -> Response:
    """Their rows."""
    return visit.live("imports", "imports/rows.html", url("/live/people/imports"), **_listed(visit))


def new(visit: Visit) -> Response:
    """The form to choose a file."""
    return _form(visit)


def look(visit: Visit) -> Response:
    """What a file would do: which column is which, and its first rows. Nothing is stored yet."""
    upload = visit.form.file("file")
    try:
        file = chosen(upload)
        table = read_table(file.name, file.data)
        seen = imports_file.preview(table)
    except UserError as wrong:
        return _form(visit, wrong, upload.name if upload else "")
    return visit.page(
        "imports/preview.html",
        table=table,
        seen=seen,
        people=[(row, _day(row.last_day)) for row in seen.people],
        bad=_in_words(visit, [ReportRow(row.line, "rejected", row.reason) for row in seen.bad]),
        content=imports_file.packed(file.data),
        kilobytes=max(round(len(file.data) / 1000), 1),
        delimiter=DELIMITERS[table.delimiter],
        encoding=ENCODINGS.get(table.encoding, table.encoding),
    )


def start(visit: Visit) -> Response:
    """Import the file that was looked at, or try it; `mode` says which."""
    is_trial = visit.form.choice("mode", ("try", "import")) != "import"
    name = visit.form.text("name", NAME_CHARACTERS) or ""
    try:
        table = read_table(name, imports_file.unpacked(visit.form.raw("content")))
    except UserError as wrong:
        return _form(visit, wrong, name)
    with visit.database.connection() as connection:
        import_id = start_import(connection, table, who=visit.who, dry_run=is_trial)
    visit.wake()
    return visit.back(f"/people/imports/{import_id}")


def one(visit: Visit) -> Response:
    """One import."""
    shown = _one(visit)
    return visit.page("imports/one.html", **shown) if shown else visit.missing()


def live_one(visit: Visit) -> Response:
    """How far it is."""
    shown = _one(visit)
    return visit.live("import", "imports/import.html", shown["live_url"], **shown) if shown else visit.missing()


def report(visit: Visit) -> Response:
    """What became of its rows, as a file: the rejected ones, or with `all` every one."""
    with visit.database.connection() as connection:
        if not list_imports(connection, import_id=visit.id(), limit=1):
            return visit.missing()
        if visit.query.flag("all"):
            rows = import_report(connection, visit.id(), outcomes=("added", "changed", "unchanged", "rejected"))
        else:
            rows = import_report(connection, visit.id())
    name = visit.words.text("imports.report_name")
    return Response(
        imports_report.csv_of(visit.words, rows),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _listed(visit: Visit) -> dict[str, Any]:
    with visit.database.connection() as connection:
        rows = list_imports(connection, limit=LISTED)
    return {"rows": rows, "most": LISTED}


def _one(visit: Visit) -> dict[str, Any] | None:
    with visit.database.connection() as connection:
        found: ImportRow | None = next(iter(list_imports(connection, import_id=visit.id(), limit=1)), None)
        if found is None:
            return None
        bad = import_report(connection, found.id, limit=REJECTED_SHOWN) if found.rejected else []
    return {
        "it": found,
        "rejected": _in_words(visit, bad),
        "columns": [(name, found.column_map[name]) for name in NAMES if name in found.column_map],
        "live_url": url(f"/live/people/imports/{found.id}"),
        "problem": (found.reason or "").partition(":")[0],
        "detail": (found.reason or "").partition(": ")[2],
    }


def _day(given: str | None) -> datetime | None:
    return start_of(date.fromisoformat(given)) if given else None


def _in_words(visit: Visit, rows: list[ReportRow]) -> list[tuple[int, str]]:
    return [(row.line, imports_report.reason_for_page(visit.words, row)) for row in rows]


def _form(visit: Visit, wrong: UserError | None = None, name: str = "") -> Response:
    return visit.page(
        "imports/new.html",
        409 if wrong else 200,
        sentence=failures.sentence(visit, wrong) if wrong else None,
        exactly=str(wrong) if wrong else None,
        file_name=name,
        megabytes=SIZE_LIMIT // 1_000_000,
    )


ROUTES: tuple[Route, ...] = (
    page("/people/imports", imports),
    page("/live/people/imports", live_imports),
    action("/people/imports", start, upload=True),
    form("/people/imports/new", new),
    action("/people/imports/new", look, upload=True),
    page("/people/imports/{id:uuid}", one),
    page("/live/people/imports/{id:uuid}", live_one),
    page("/people/imports/{id:uuid}/report", report),
)
