"""Texts as WhatsApp, Postgres and Twilio can hold them."""

from __future__ import annotations

import re

from shared.db.text import storable as storable

MESSAGE_UNITS = 1600  # Twilio's limit for one WhatsApp message, counted in UTF-16 code units


def utf16_units(text: str) -> int:
    """The length in UTF-16 code units, as Twilio counts it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def shorten(text: str, units: int = MESSAGE_UNITS) -> str:
    """The text, cut at the end of a sentence (else a word, else a grapheme) so that it fits, with … where it was cut."""
    if utf16_units(text) <= units:
        return text
    from semantic_text_splitter import TextSplitter

    first = TextSplitter.from_callback(utf16_units, units - 2).chunks(text)[0]
    sentences = re.compile(r"[.!?…](?=[\s\"')\]]|$)")
    end = max((found.end() for found in sentences.finditer(first)), default=0)
    kept = first[:end] if end > len(first) // 2 else first
    return kept.rstrip() + " …"
