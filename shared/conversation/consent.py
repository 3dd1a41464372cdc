"""STOP and START: the words by which somebody opts out and in again, and what asks for a person.

Only a whole message counts, in any case and width, with spaces, punctuation and emoji around it. The English words are the ones
that Twilio handles by default (https://help.twilio.com/articles/223134027), the Dutch ones their equivalents.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal
from uuid import UUID

from shared.queue.job import Write

type Language = Literal["nl", "en"]
type Change = Literal["stop", "start", "help"]

_STOP: dict[str, Language | None] = {
    "stop": None, "stopall": "en", "unsubscribe": "en", "cancel": "en", "end": "en", "quit": "en", "optout": "en",
    "revoke": "en", "stoppen": "nl", "afmelden": "nl", "afmelding": "nl", "meldmijaf": "nl", "meldmeaf": "nl",
    "uitschrijven": "nl", "schrijfmijuit": "nl", "schrijfmeuit": "nl",
}  # fmt: skip
_START: dict[str, Language | None] = {
    "start": None, "unstop": "en", "subscribe": "en", "optin": "en", "aanmelden": "nl", "aanmelding": "nl",
    "meldmijaan": "nl", "meldmeaan": "nl", "inschrijven": "nl",
}  # fmt: skip
_PERSON = frozenset({"medewerker", "help", "hulp", "mens", "agent", "human", "person"})

# Twilio will not deliver to them any more: as if they had said STOP to us, and nothing is confirmed.
OPT_OUT = """
    WITH stopped AS (
        UPDATE conversations SET opted_out_at = now(), consent_changed_at = now()
        WHERE id = %(conversation_id)s AND opted_out_at IS NULL
        RETURNING id
    )
    SELECT cancel_unsent(id, NULL) FROM stopped
"""


def change(text: str, opt_out_type: str | None = None) -> tuple[Change | None, Language | None]:
    """Whether a message opts out or in, and the language of its word.

    `opt_out_type` is Twilio's own verdict (OptOutType: STOP, START or HELP), which wins over ours; "help" comes from it alone,
    and means that Twilio has answered.
    """
    word = _word(text)
    language = _STOP.get(word) or _START.get(word)
    match (opt_out_type or "").upper():
        case "STOP":
            return "stop", language
        case "START":
            return "start", language
        case "HELP":
            return "help", language
    if word in _STOP:
        return "stop", language
    if word in _START:
        return "start", language
    return None, None


def begins(text: str) -> bool:
    """Whether the whole message opts in: from somebody who never opted out it is a greeting, not a question."""
    return _word(text) in _START


def asks_for_person(text: str) -> bool:
    """Whether the whole message asks for a person."""
    return _word(text) in _PERSON


def opt_out(conversation_id: UUID) -> Write:
    """The write for a refusal that says so (`codes.Kind.OPTED_OUT`), inside a transaction that has locked the conversation."""
    return Write(OPT_OUT, {"conversation_id": conversation_id})


def _word(text: str) -> str:
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text)).casefold()
