"""A secret that somebody gives: a command line is seen by others, standard input is not."""

from __future__ import annotations

import sys

STANDARD_INPUT = "-"


def given(secret: str | None) -> str | None:
    """What stands behind `--secret`; `-` is the first line of standard input."""
    return sys.stdin.readline().strip() if secret == STANDARD_INPUT else secret
