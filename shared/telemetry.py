"""Logs: one JSON line an event, with ids and figures, never a secret and never a message's text."""

from __future__ import annotations

import json
import logging
from typing import Any

log = logging.getLogger("antwoord")


def event(name: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log one event. Fields that are None are left out; a final failure is logged at ERROR."""
    if log.isEnabledFor(level):
        shown = {"event": name, **{key: value for key, value in fields.items() if value is not None}}
        log.log(level, json.dumps(shown, default=str, ensure_ascii=False))


def warning(name: str, **fields: Any) -> None:
    """Log what somebody may want to look at."""
    event(name, logging.WARNING, **fields)


def error(name: str, **fields: Any) -> None:
    """Log what somebody has to look at."""
    event(name, logging.ERROR, **fields)
