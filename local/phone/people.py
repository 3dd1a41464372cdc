"""The people whose phones the page shows."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Person:
    """One phone: a name, an E.164 number, and the language of its suggested questions."""

    name: str
    phone: str
    language: str = "nl"


def read_people(path: Path) -> list[Person]:
    """Read name, phone and language from a CSV file with those columns."""
    with path.open(encoding="utf-8", newline="") as lines:
        return [Person(row["name"], row["phone"], row.get("language") or "nl") for row in csv.DictReader(lines)]


def is_number(phone: str) -> bool:
    """Whether this is a phone number in E.164."""
    return re.fullmatch(r"\+[1-9]\d{6,14}", phone) is not None
