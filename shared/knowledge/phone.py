"""Phone numbers as people and spreadsheets write them, to E.164. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.knowledge.people_reasons import BadRow
from shared.knowledge.plain import one_line
from shared.knowledge.spreadsheet import is_rounded, restored

# It loads where it is first used: every worker imports this module, and few of them import people.
if TYPE_CHECKING:
    from phonenumbers import PhoneNumber

REGION = "NL"  # of a number that is written without a country

_ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060\ufeff]")
_EXTENSION = re.compile(r"(?i)\s*(?:\(\s*)?(?:ext|extension|toestel|tst|x|#)\s*[.:]?\s*\d{1,6}\s*\)?\s*$")
# Words before and after the number: "Mobiel: 06…", "06… (privé)". Letters inside it are no digits here, whatever the keys say.
_WORDS_BEFORE = re.compile(r"^[^\d+(]*(?:\([^\d)]*\)[^\d+(]*)?")
_WORDS_AFTER = re.compile(r"[^\d]*$")
_BETWEEN = re.compile(r"(?i)[/;,|&\n]|\b(?:en|of|and|or)\b|\s(?=\+|00)")
_DIGITS_OF_A_NUMBER = 8
_NOT_IN_A_NUMBER = re.compile(r"[^\d\s()+./\u00a0\u2010-\u2015\u2212-]")


def to_e164(text: str, region: str = REGION) -> str:
    """The number in E.164. Raises BadRow.

    A number that is written nationally must be in use as a range (`is_valid_number`), for a lost or doubled digit mostly
    shows there. One with a country code need only be possible: its writer has said which country is meant, and ranges are
    opened sooner than a copy of the tables is renewed. Yet it may not be shorter than the country's mobile numbers, nor be a
    valid number with digits too many.
    """
    import phonenumbers as pn
    from phonenumbers import NumberParseException, PhoneNumberType, ValidationResult

    shown = one_line(_ZERO_WIDTH.sub("", text))
    if not shown:
        raise BadRow("phone_missing")
    given = restored(shown)
    if is_rounded(given):
        raise BadRow("phone_mangled", shown)
    if sum(len(re.sub(r"\D", "", part)) >= _DIGITS_OF_A_NUMBER for part in _BETWEEN.split(given)) > 1:
        raise BadRow("phone_two", shown)
    digits = given
    if _NOT_IN_A_NUMBER.search(digits):
        digits = _WORDS_AFTER.sub("", _WORDS_BEFORE.sub("", _EXTENSION.sub("", given), count=1))
        if _NOT_IN_A_NUMBER.search(digits):
            raise BadRow("phone_invalid", shown)
    try:
        number = pn.parse(digits, region)
    except NumberParseException:
        raise BadRow("phone_invalid", shown) from None
    good = pn.is_valid_number(number)
    if not good and re.match(r"\(?(?:\+|00)", digits):
        for_mobile = pn.is_possible_number_for_type_with_reason(number, PhoneNumberType.MOBILE)
        good = (
            pn.is_possible_number_with_reason(number) == ValidationResult.IS_POSSIBLE
            and for_mobile != ValidationResult.TOO_SHORT
            and not _is_too_long(number)
        )
    written = pn.format_number(number, pn.PhoneNumberFormat.E164)
    if not good or not re.fullmatch(r"\+[1-9][0-9]{6,14}", written):
        raise BadRow("phone_invalid", shown)
    return written


def _is_too_long(number: PhoneNumber) -> bool:
    """Whether leaving digits off at the end makes it a number that is in use."""
    import phonenumbers as pn

    shorter = pn.PhoneNumber()
    shorter.merge_from(number)
    return bool(pn.truncate_too_long_number(shorter))
