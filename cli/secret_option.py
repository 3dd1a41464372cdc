"""A secret that somebody gives: a command line is seen by others, standard input is not."""

from __future__ import annotations

import sys

STANDARD_INPUT = "-"


def given(secret: str | None) -> str | None:
    """What stands behind `--secret`; `-` is the first line of standard input."""
    return sys.stdin.readline().strip() if secret == STANDARD_INPUT else secret


def shown_once(secret: str, *, is_given: bool) -> str:
    """The line behind what was added or rotated: a secret that was made; one that was given is not repeated on the screen."""
    return "\nsecret: the one that you gave" if is_given else f"\nsecret, shown this once: {secret}"
