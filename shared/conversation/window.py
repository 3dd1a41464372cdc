"""WhatsApp's 24 hours: after them an answer goes out inside an approved template, or not at all.

The template's one variable takes the answer. A variable may hold no line breaks, no tabs and no more than four spaces in a
row, and a template with what is filled in 1,024 characters
(https://www.twilio.com/docs/content/using-variables-with-content-api).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shared.clients.twilio import Template
from shared.conversation.text import shorten, utf16_units

VARIABLE_UNITS = 900  # leaves room for the template's own words
_SOURCES = re.compile(r"\n\n((?:Bron|Bronnen|Source|Sources): \[)")


def template_for(sid: str, bodies: Sequence[str]) -> Template:
    """The template that carries a reply, given as the parts that are left of it: shortened, its sources whole if they fit."""
    whole = "".join(bodies)
    found = list(_SOURCES.finditer(whole))
    text, sources = (whole[: found[-1].start()], whole[found[-1].start() :]) if found else (whole, "")
    sources = shorten(_flat(sources), VARIABLE_UNITS // 2)
    room = VARIABLE_UNITS - utf16_units(sources) - 1
    return Template(sid, {"1": " ".join(filter(None, (shorten(_flat(text), room), sources)))})


def _flat(text: str) -> str:
    return " ".join(text.split())
