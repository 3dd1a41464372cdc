"""The small lines that employees read, in Dutch and English."""

from __future__ import annotations

from typing import Final

from shared.conversation.consent import Language

LINES: Final[dict[str, dict[Language, str]]] = {
    "notice": {
        "nl": "Je praat met een digitale assistent; stuur “medewerker” als je liever een mens spreekt.",
        "en": "You are talking to a digital assistant; send “help” if you would rather talk to a person.",
    },
    "unanswered": {
        "nl": "Dat staat niet in het handboek. Ik heb je vraag doorgegeven: een collega kijkt ernaar en laat het je weten.",
        "en": "The handbook does not say. I have passed your question on: a colleague will look at it and let you know.",
    },
    "apology": {
        "nl": "Sorry, het lukt me nu niet om te antwoorden. Ik heb je bericht doorgegeven aan een collega.",
        "en": "Sorry, I cannot answer right now. I have passed your message on to a colleague.",
    },
    "decline": {
        "nl": "Dit nummer is alleen voor medewerkers, en ik ken je nummer niet. Vraag HR om het toe te voegen.",
        "en": "This number is for employees only, and I do not know yours. Ask HR to add it.",
    },
    "limit": {
        "nl": "Je hebt vandaag veel vragen gesteld; morgen help ik je graag weer. Haast? Stuur “medewerker”.",
        "en": "You have asked many questions today; I will gladly help again tomorrow. Urgent? Send “help”.",
    },
    "media": {
        "nl": "Foto’s, spraakberichten, bestanden, locaties en contacten kan ik niet bekijken. "
        "Wil je je vraag als tekst sturen?",
        "en": "I cannot look at photos, voice messages, files, locations or contacts. "
        "Could you send your question as text?",
    },
    "unseen": {
        "nl": "Wat je hebt meegestuurd kan ik niet bekijken; ik antwoord op je tekst.",
        "en": "I cannot look at what you sent along; this answers your text.",
    },
    "unclear": {
        "nl": "Dat begrijp ik niet. Wil je je vraag in woorden stellen?",
        "en": "I do not understand that. Could you ask your question in words?",
    },
    "welcome": {
        "nl": "Je kunt hier je vragen stellen. Stuur STOP als je geen berichten meer wilt.",
        "en": "You can ask your questions here. Send STOP if you want no more messages.",
    },
    "person": {
        "nl": "Ik heb een collega gevraagd om mee te lezen. Je hoort zo snel mogelijk van ons.",
        "en": "I have asked a colleague to have a look. You will hear from us as soon as possible.",
    },
    "stop": {
        "nl": "Je ontvangt geen berichten meer van ons. Stuur START om weer mee te doen.",
        "en": "You will receive no more messages from us. Send START to take part again.",
    },
    "start": {
        "nl": "Welkom terug. Stel gerust je vraag.",
        "en": "Welcome back. Feel free to ask your question.",
    },
}


def line(name: str, language: Language) -> str:
    """One of the lines. Raises KeyError for a name that is not in the catalogue."""
    return LINES[name][language]


def notice(language: Language) -> str:
    """The line that a digital assistant answers, as it stands above an answer."""
    return line("notice", language) + "\n\n"


def unseen(language: Language) -> str:
    """The line that something was sent along which nobody has looked at, as it stands above an answer."""
    return line("unseen", language) + "\n\n"
