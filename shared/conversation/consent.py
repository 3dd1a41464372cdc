"""STOP and START: the words by which somebody opts out and in again, and what asks for a person.

Only a whole message counts, in any case, with spaces and punctuation around it. The English words are the ones that Twilio
handles by default (https://help.twilio.com/articles/223134027), the Dutch ones their equivalents.
"""

from __future__ import annotations

import re
from typing import Literal

type Language = Literal["nl", "en"]
type Change = Literal["stop", "start"]

_STOP: dict[str, Language | None] = {
    "stop": None, "stopall": "en", "unsubscribe": "en", "cancel": "en", "end": "en", "quit": "en", "optout": "en",
    "revoke": "en", "stoppen": "nl", "afmelden": "nl", "uitschrijven": "nl",
}  # fmt: skip
_START: dict[str, Language | None] = {
    "start": None, "unstop": "en", "subscribe": "en", "optin": "en", "aanmelden": "nl", "inschrijven": "nl",
}  # fmt: skip
_PERSON = frozenset({"medewerker", "help", "hulp", "mens", "agent", "human", "person"})


def change(text: str, opt_out_type: str | None = None) -> tuple[Change | None, Language | None]:
    """Whether a message opts out or in, and the language of its word.

    `opt_out_type` is Twilio's own verdict (OptOutType: STOP, START or HELP), which wins over ours.
    """
    word = _word(text)
    language = _STOP.get(word) or _START.get(word)
    if opt_out_type and opt_out_type.upper() in ("STOP", "START"):
        return ("stop" if opt_out_type.upper() == "STOP" else "start"), language
    if word in _STOP:
        return "stop", language
    if word in _START:
        return "start", language
    return None, None


def asks_for_person(text: str) -> bool:
    """Whether the whole message asks for a person."""
    return _word(text) in _PERSON


def _word(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()
