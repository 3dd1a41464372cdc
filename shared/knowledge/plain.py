"""Text that is safe to hand on: without characters that Postgres refuses, or that a reader cannot see but a model obeys."""

from __future__ import annotations

import re

# Control characters but tab and newline; lone surrogates; marks that turn the direction of writing; invisible "tag" letters.
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)


def plain(text: str) -> str:
    """The text without them; newlines are made `\\n`."""
    return _HIDDEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str) -> str:
    """The text on one line, without them, its white space collapsed."""
    return " ".join(plain(text).split())
