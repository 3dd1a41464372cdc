"""Messages that ask nothing: thanks, a thumb. And those that say nothing in words, which can only be answered so."""

from __future__ import annotations

import re
import unicodedata


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A message of these alone is no question; one of the first group has to be among them.
_MEANT = _words(
    """
    dank dankje dankjewel dankjulliewel dankuwel bedankt thanks thank thx thnx ty tnx merci
    ok oke oké okay okee okidoki top prima super fijn perfect begrepen duidelijk helder great understood
    """
)
_AROUND = _words(
    """
    je jij jou jullie u wel voor de het alvast heel erg zeer veel hartelijk hartstikke super ja nou goed mooi uitleg info
    informatie antwoord hulp you so very much a lot many for the your help answer yes good then dan
    """
)
_FRIENDLY = frozenset("👍👌🙏👏🙌💪🤝🫶❤♥💙💚💛🧡💜🤍😊🙂😀😃😄😁😉☺🥰😘😍🤗🎉✅✔💯")
_MODIFIERS = re.compile("[\ufe0e\ufe0f\u200d\U0001f3fb-\U0001f3ff]")
_LETTERS = re.compile(r"[^\W_]+")
_QUESTION = re.compile("[?？]")


def asks_nothing(text: str) -> bool:
    """Whether the whole message is thanks or assent: no answer is due to it."""
    said = _MODIFIERS.sub("", unicodedata.normalize("NFC", text)).casefold()
    if _QUESTION.search(said):
        return False
    words = set(_LETTERS.findall(said))
    signs = {sign for sign in said if unicodedata.category(sign) in ("So", "Sk", "Cn")}
    if not words <= _MEANT | _AROUND or not signs <= _FRIENDLY:
        return False
    return bool(words & _MEANT) if words else bool(signs)


def has_words(text: str) -> bool:
    """Whether there is anything in it that could be a question: a letter or a digit, in any script."""
    return bool(_LETTERS.search(text))
