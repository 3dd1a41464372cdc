"""The report of an import as a CSV file, harmless to the spreadsheet that opens it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from markupsafe import Markup

from shared.knowledge.people import ReportRow
from shared.ops.words import Words

# A spreadsheet takes what begins so for a formula; what it strips before it looks is looked past here too.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
BYTE_ORDER_MARK = "\ufeff"  # without it a spreadsheet takes UTF-8 for Windows-1252


def reason_of(words: Words, row: ReportRow) -> str:
    """Why a row was rejected, in words; empty for the others. A reason that this version does not know is given as it is."""
    if row.name and words.has("row_problem", row.name):
        return words.text(f"row_problem.{row.name}", detail=row.detail)
    return row.reason or ""


def csv_of(words: Words, rows: Iterable[ReportRow]) -> bytes:
    """Line, outcome and reason; with the delimiter that a spreadsheet in the reader's language expects."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";" if words.language == "nl" else ",")
    writer.writerow([words.text(f"imports.{name}") for name in ("line", "outcome", "reason")])
    for row in rows:
        outcome = words.text(f"outcomes.{row.outcome}")
        writer.writerow([harmless(cell) for cell in (str(row.line), outcome, reason_of(words, row))])
    return (BYTE_ORDER_MARK + text.getvalue()).encode()


def harmless(cell: str) -> str:
    """The cell, with an apostrophe before what would be a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) or cell.lstrip()[:1] in _FORMULA else cell


def reason_for_page(words: Words, row: ReportRow) -> Markup | str:
    """The same for a page: what the file said is isolated, so that its direction turns nothing around."""
    if row.name and words.has("row_problem", row.name):
        return words.of("row_problem", row.name, detail=Markup("<bdi>{}</bdi>").format(row.detail))
    return row.reason or ""
