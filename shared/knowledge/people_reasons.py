"""Why a row of people was rejected: a machine name, with a few words of the row where they help, and a sentence for each.

A reason is kept as `name` or `name: detail`, so that a page can say it in its reader's language.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.errors import UserError
from shared.knowledge.plain import one_line

DETAIL_CHARACTERS = 100  # of the row at most: a report is passed on, and must not carry a person's whole record

# `{}` stands for the detail.
SENTENCES: Mapping[str, str] = {
    "name_missing": "There is no name.",
    "phone_missing": "There is no phone number.",
    "phone_invalid": "“{}” is not a phone number that can be reached.",
    "phone_mangled": "“{}” was rounded by a spreadsheet: give its column the format Text and fill in the number again.",
    "phone_two": "“{}” holds more than one phone number: keep the one that WhatsApp is on.",
    "phone_twice": "The same phone number stands on line {}; the first one counts.",
    "phone_taken": (
        "The phone number belongs to somebody else at present ({}). If that person's number changes in this file too, "
        "import it once more."
    ),
    "external_id_mangled": "“{}” was rounded by a spreadsheet: give its column the format Text and fill it in again.",
    "external_id_twice": "The same employee number stands on line {}; the first one counts.",
    "language_unknown": "“{}” is not a language that answers are given in: Dutch (nl) and English (en) are.",
    "date_invalid": "“{}” is not a date of leaving: write the day first (31-12-2026), or 2026-12-31.",
    "too_long": "The column “{}” holds too much text.",
    "too_many_cells": "The row has {} cells, more than there are columns: is a quotation mark missing?",
}


class BadRow(UserError):
    """A row that cannot be imported: `name` is its machine name, `reason` what is kept, the text its sentence."""

    def __init__(self, name: str, detail: str = "") -> None:
        shown = one_line(detail)
        shown = shown if len(shown) <= DETAIL_CHARACTERS else shown[: DETAIL_CHARACTERS - 1] + "…"
        self.reason = f"{name}: {shown}" if shown else name
        super().__init__(sentence(self.reason), name=name)


def split_reason(reason: str) -> tuple[str, str]:
    """The machine name and the detail (empty when there is none)."""
    name, _, detail = reason.partition(": ")
    return name, detail


def sentence(reason: str) -> str:
    """The reason in English; a reason of another version of this code as it is kept."""
    name, detail = split_reason(reason)
    return SENTENCES[name].replace("{}", detail) if name in SENTENCES else reason
