"""What spreadsheets make of a number in a cell: mended where nothing is lost, told where something is. Pure."""

from __future__ import annotations

import re

_FORMULA = re.compile(r'="?(?P<text>[^"]*)"?')
_APOSTROPHES = "'’‘`´"
_FRACTION = re.compile(r"(?<=\d)[.,]0{1,2}$")  # not three: 10.000 is ten thousand
_SCIENTIFIC = re.compile(r"(?P<sign>\+?)(?P<whole>\d)(?:[.,](?P<rest>\d+))?[eE]\+?(?P<exponent>\d{1,2})")


def restored(text: str) -> str:
    """The cell as it was meant: without a leading apostrophe, a `="…"` around it or a trailing `.0`, and in full when the
    scientific notation (6,12345678E+08) still has every digit. What is rounded stays as it is."""
    text = text.strip()
    if text.startswith("=") and (formula := _FORMULA.fullmatch(text)):
        text = formula["text"].strip()
    text = text.lstrip(_APOSTROPHES).strip()
    found = _SCIENTIFIC.fullmatch(text)
    if found and len(found["rest"] or "") == int(found["exponent"]) > 0:
        return f"{found['sign']}{found['whole']}{found['rest']}"
    bare = _FRACTION.sub("", text)
    return bare if re.fullmatch(r"\+?\d+", bare) else text


def is_rounded(text: str) -> bool:
    """Whether digits are lost: scientific notation that `restored` could not write in full, or `####` for want of room."""
    return _SCIENTIFIC.fullmatch(text) is not None or re.fullmatch(r"#{2,}", text) is not None
