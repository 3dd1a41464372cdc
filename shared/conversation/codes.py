"""Twilio's error codes: what each says about a message of ours, in words and in class.

From Twilio's Error and Warning Dictionary (https://www.twilio.com/docs/api/errors, one page a code) and its table of WhatsApp's
own codes behind them (https://www.twilio.com/docs/whatsapp/api/error-code-mapping). Twilio adds codes and splits them up: one
that is not here is shown as it is, and never sent again by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.conversation.consent import Language


class Kind(StrEnum):
    """What follows from a code, for the employee, the administrator or an engineer."""

    UNREACHABLE = "unreachable"  # this recipient cannot be reached
    OUTSIDE_WINDOW = "outside_window"  # more than 24 hours after their last message
    OPTED_OUT = "opted_out"  # they said STOP to Twilio or WhatsApp
    TEMPLATE = "template"  # the template was rejected, paused or filled in wrongly
    RATE_LIMIT = "rate_limit"  # too much at once, or in a day
    ACCOUNT = "account"  # our account was suspended, locked or has not paid
    CONTENT = "content"  # what the message says or carries was refused
    PROVIDER = "provider"  # a failure inside Twilio or WhatsApp
    OURS = "ours"  # our settings or our request are wrong: for an engineer
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Meaning:
    """`is_passing`: it surely did not arrive, and the same message may well arrive a little later."""

    kind: Kind
    is_passing: bool
    words: dict[Language, str]


def meaning(code: str | int | None) -> Meaning:
    """What a code means; of one that is not in the table that it is unknown."""
    return _CODES.get(str(code or "").strip(), _UNKNOWN)


def known() -> list[str]:
    """The codes of the table, in their order."""
    return list(_CODES)


_ENGINEER: Final[dict[Language, str]] = {"nl": " Vraag een technicus.", "en": " Ask an engineer."}


def _of(kind: Kind, nl: str, en: str, *, is_passing: bool = False) -> Meaning:
    asks = _ENGINEER if kind in (Kind.OURS, Kind.ACCOUNT, Kind.TEMPLATE) else {"nl": "", "en": ""}
    return Meaning(kind, is_passing, {"nl": nl + asks["nl"], "en": en + asks["en"]})


_UNKNOWN = _of(Kind.UNKNOWN, "WhatsApp heeft dit bericht niet bezorgd.", "WhatsApp did not deliver this message.")
_NO_NUMBER = _of(Kind.UNREACHABLE, "Dit is geen geldig telefoonnummer.", "This is not a valid phone number.")
_NO_PHONE = _of(Kind.UNREACHABLE, "Op dit nummer kunnen geen berichten binnenkomen.",
                "This number cannot receive messages.")  # fmt: skip
_GONE = _of(Kind.UNREACHABLE, "Dit nummer is bij WhatsApp niet (meer) bekend.",
            "WhatsApp does not know this number (any more).")  # fmt: skip
_OFF = _of(Kind.UNREACHABLE, "De telefoon was niet bereikbaar.", "The phone could not be reached.")
_TOO_FAST = _of(Kind.RATE_LIMIT, "Er gingen te veel berichten tegelijk uit.", "Too many messages went out at once.",
                is_passing=True)  # fmt: skip
_TOO_MANY = _of(Kind.RATE_LIMIT, "Het aantal berichten voor een dag is bereikt.",
                "The number of messages for one day is reached.")  # fmt: skip
_FILLED_IN = _of(Kind.TEMPLATE, "Het sjabloon is niet juist ingevuld.", "The template was not filled in correctly.")
_NOT_ACCEPTED = _of(Kind.CONTENT, "WhatsApp nam de inhoud van dit bericht niet aan.",
                    "WhatsApp did not accept what this message says.")  # fmt: skip
_CANNOT_HANDLE = _of(Kind.CONTENT, "WhatsApp kan de inhoud van dit bericht niet aan.",
                     "WhatsApp cannot handle what this message contains.")  # fmt: skip
_FROM = _of(Kind.OURS, "Het nummer waarmee wij versturen is bij WhatsApp niet ingesteld.",
            "The number that we send from is not set up with WhatsApp.")  # fmt: skip
_STOPPED = _of(Kind.OPTED_OUT, "De medewerker heeft zich bij WhatsApp afgemeld met STOP.",
               "The employee has opted out on WhatsApp with STOP.")  # fmt: skip
_SUSPENDED = _of(Kind.ACCOUNT, "Ons account is geblokkeerd.", "Our account is suspended.")

_CODES: Final[dict[str, Meaning]] = {
    "20429": _TOO_FAST,
    "21211": _NO_NUMBER,
    "21408": _of(Kind.OURS, "Ons account mag niet naar dit land versturen.", "Our account may not send to this country."),
    "21610": _STOPPED,
    "21611": _TOO_FAST,
    "21612": _of(Kind.OURS, "Twilio kan met ons nummer geen berichten naar dit nummer sturen.",
                 "Twilio cannot send messages from our number to this number."),
    "21614": _NO_PHONE,
    "21617": _of(Kind.OURS, "Het bericht was te lang.", "The message was too long."),
    "21655": _of(Kind.TEMPLATE, "Dit sjabloon bestaat niet.", "This template does not exist."),
    "21656": _FILLED_IN,
    "30001": _TOO_FAST,
    "30002": _SUSPENDED,
    "30003": _OFF,
    "30004": _of(Kind.UNREACHABLE, "Berichten aan dit nummer zijn geblokkeerd.", "Messages to this number are blocked."),
    "30005": _GONE,
    "30006": _NO_PHONE,
    "30007": _of(Kind.CONTENT, "Het bericht is als ongewenst tegengehouden.", "The message was filtered as unwanted."),
    "30008": _UNKNOWN,
    "30009": _of(Kind.PROVIDER, "Een deel van het bericht ging onderweg verloren.",
                 "A part of the message was lost on its way."),
    "30010": _of(Kind.OURS, "Het bericht kost meer dan wij toestaan.", "The message costs more than we allow."),
    "30022": _TOO_FAST,
    "30023": _TOO_MANY,
    "63001": _of(Kind.OURS, "Twilio kon zich niet aanmelden bij WhatsApp.", "Twilio could not sign in to WhatsApp."),
    "63002": _FROM,
    "63003": _GONE,
    "63005": _NOT_ACCEPTED,
    "63006": _CANNOT_HANDLE,
    "63007": _FROM,
    "63008": _FROM,
    "63010": _of(Kind.PROVIDER, "Twilio had een storing.", "Twilio had a failure of its own.", is_passing=True),
    "63012": _of(Kind.PROVIDER, "WhatsApp had een storing.", "WhatsApp had a failure of its own.", is_passing=True),
    "63013": _of(Kind.CONTENT, "Het bericht past niet bij de regels van WhatsApp.",
                 "The message is against WhatsApp's rules."),
    "63014": _of(Kind.UNREACHABLE, "De medewerker heeft ons nummer geblokkeerd.", "The employee has blocked our number."),
    "63015": _of(Kind.UNREACHABLE, "Dit nummer doet niet mee aan de proefomgeving van Twilio.",
                 "This number has not joined Twilio's sandbox."),
    "63016": _of(Kind.OUTSIDE_WINDOW,
                 "De medewerker schreef meer dan 24 uur geleden; WhatsApp staat dan geen gewoon antwoord toe.",
                 "The employee wrote more than 24 hours ago; WhatsApp allows no ordinary answer then."),
    "63017": _TOO_FAST,
    "63018": _TOO_FAST,
    "63019": _of(Kind.CONTENT, "Een bijlage kon niet worden opgehaald.", "An attachment could not be fetched."),
    "63020": _of(Kind.ACCOUNT, "Er is iets mis met ons zakelijke account bij WhatsApp.",
                 "Something is wrong with our business account at WhatsApp."),
    "63021": _CANNOT_HANDLE,
    "63022": _of(Kind.OURS, "De weergavenaam van ons nummer is bij WhatsApp niet in orde.",
                 "WhatsApp does not accept the display name of our number."),
    "63023": _UNKNOWN,
    "63024": _of(Kind.UNREACHABLE, "Dit nummer kan dit bericht niet ontvangen.", "This number cannot receive this message."),
    "63027": _of(Kind.TEMPLATE, "Het sjabloon bestaat niet in deze taal.", "The template does not exist in this language."),
    "63028": _FILLED_IN,
    "63029": _of(Kind.TEMPLATE, "De telefoon kon het sjabloon niet ophalen.", "The phone could not fetch the template."),
    "63030": _of(Kind.OURS, "WhatsApp kent iets niet dat wij meestuurden.", "WhatsApp does not know something that we sent."),
    "63031": _of(Kind.OURS, "Het bericht ging naar ons eigen nummer.", "The message went to our own number."),
    "63032": _of(Kind.UNREACHABLE, "WhatsApp bezorgt op dit moment geen berichten aan deze gebruiker.",
                 "WhatsApp does not deliver messages to this user at present."),
    "63033": _STOPPED,
    "63036": _OFF,
    "63038": _TOO_MANY,
    "63040": _of(Kind.TEMPLATE, "WhatsApp heeft het sjabloon afgekeurd.", "WhatsApp has rejected the template."),
    "63041": _of(Kind.TEMPLATE, "WhatsApp heeft het sjabloon stilgezet.", "WhatsApp has paused the template."),
    "63042": _of(Kind.TEMPLATE, "WhatsApp heeft het sjabloon uitgeschakeld.", "WhatsApp has disabled the template."),
    "63049": _of(Kind.UNREACHABLE, "WhatsApp koos ervoor dit bericht niet te bezorgen.",
                 "WhatsApp chose not to deliver this message."),
    "63051": _of(Kind.ACCOUNT, "Ons zakelijke account bij WhatsApp is geblokkeerd.",
                 "Our business account at WhatsApp is locked."),
}  # fmt: skip
