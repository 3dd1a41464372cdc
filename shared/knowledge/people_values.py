"""The other cells of a person's row: the language, the employee number, and whether and when somebody left. Pure."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass

from shared.knowledge import Language
from shared.knowledge.people_reasons import BadRow
from shared.knowledge.plain import one_line
from shared.knowledge.spreadsheet import is_rounded, restored

_DUTCH = {"nl", "nld", "ned", "dut", "nederlands", "nederlandstalig", "hollands", "dutch", "vlaams", "flemish"}
_ENGLISH = {"en", "eng", "engels", "engelstalig", "english"}
_NO = {"nee", "neen", "no", "n", "false", "onwaar", "0", "niet", "-", "actief", "active"}
_YES = {"ja", "yes", "y", "j", "true", "waar", "1", "x"}

_MONTHS = {
    "jan": 1, "feb": 2, "mrt": 3, "maa": 3, "mar": 3, "apr": 4, "mei": 5, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9,
    "okt": 10, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip
_TIME = r"(?:[T ]+\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\s*(?:Z|[+-]\d{2}:?\d{2})?)?"
_YEAR_FIRST = re.compile(rf"(?P<y>\d{{4}})(?P<s>[-/.]?)(?P<m>\d{{1,2}})(?P=s)(?P<d>\d{{1,2}}){_TIME}")
_DAY_FIRST = re.compile(rf"(?P<d>\d{{1,2}})\s*[-/. ]\s*(?P<m>\d{{1,2}})\s*[-/. ]\s*(?P<y>\d{{4}}|\d{{2}}){_TIME}")
_IN_WORDS = re.compile(rf"(?P<d>\d{{1,2}})[-. ]*(?P<m>[a-z]{{3,9}})\.?[-,. ]*(?P<y>\d{{4}}|\d{{2}}){_TIME}")
_SERIAL = re.compile(r"[2-7]\d{4}")
_SERIAL_BEGIN = datetime.date(1899, 12, 30)  # day 0 of a spreadsheet's dates
_NEVER = 9999  # the year of "no end" in payroll systems; 0000 is the other one


@dataclass(frozen=True, slots=True)
class Leaving:
    """Whether somebody leaves, and the last day, where the file says it."""

    has_left: bool
    last_day: datetime.date | None = None


def language_of(text: str) -> Language | None:
    """nl, en, Nederlands, English, en-GB, … ; None for an empty cell. Raises BadRow."""
    given = one_line(text).casefold() if text else ""
    if not given:
        return None
    word = re.split(r"[-_ (/,]", given)[0]
    if word in _DUTCH:
        return "nl"
    if word in _ENGLISH:
        return "en"
    raise BadRow("language_unknown", text)


def external_id_of(text: str) -> str | None:
    """An employee number as it was meant; None for an empty cell. Raises BadRow."""
    given = restored(one_line(text))
    if is_rounded(given):
        raise BadRow("external_id_mangled", text)
    return given or None


def leaving_of(text: str) -> Leaving:
    """A last day with the day before the month, or year first, or in words, or yes or no. Raises BadRow.

    A month that cannot be one is not taken for a day: a file that writes the month first would be half misread.
    """
    given = one_line(text).casefold() if text else ""
    if not given or given in _NO:
        return Leaving(False)
    if given in _YES:
        return Leaving(True)
    if _SERIAL.fullmatch(restored(given)):
        return Leaving(True, _SERIAL_BEGIN + datetime.timedelta(days=int(restored(given))))
    found = _YEAR_FIRST.fullmatch(given.upper()) or _DAY_FIRST.fullmatch(given.upper()) or _IN_WORDS.fullmatch(given)
    if found is None:
        raise BadRow("date_invalid", text)
    year = int(found["y"])
    if year == _NEVER or (year == 0 and len(found["y"]) == 4):
        return Leaving(False)
    if len(found["y"]) == 2:
        year += 2000 if year < 70 else 1900
    month = int(found["m"]) if found["m"].isdigit() else _MONTHS.get(found["m"][:3].casefold(), 0)
    try:
        day = datetime.date(year, month, int(found["d"]))
    except ValueError:
        raise BadRow("date_invalid", text) from None
    if not 1950 <= year <= 2150:
        raise BadRow("date_invalid", text)
    return Leaving(True, day)
