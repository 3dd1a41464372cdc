"""What people and other systems wrote, on its way into a page. Pure."""

from __future__ import annotations

import re
from typing import Final

from markupsafe import Markup

CLIP: Final = 240
# What turns the direction of text around, and what has no shape: harmless between tags, where <bdi> ends it, not in attributes.
_UNSHOWABLE = re.compile("[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def said(text: object, limit: int | None = None) -> Markup:
    """What a person or another system wrote: isolated, so that its direction changes nothing around it."""
    shown = "" if text is None else str(text)
    return Markup("<bdi>{}</bdi>").format(clip(shown, limit) if limit else shown)


def clip(text: str, limit: int = CLIP) -> str:
    """At most `limit` characters, an ellipsis at the end of what was longer."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def plain(text: object, limit: int = CLIP) -> str:
    """Text for an attribute, a title or an option, where <bdi> cannot stand: without what turns direction around."""
    return clip(_UNSHOWABLE.sub("", "" if text is None else str(text)), limit)
