"""The host's log: one line a record on stderr.

The app makes its own lines (JSON) on the loggers `antwoord` and `antwoord.*`: they pass as they are. All others get the
time in UTC, the level, and which function they were written in.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable

APP_LOGGER = "antwoord"

# The worker's library, the storage client and the servers tell of every call at level INFO.
_QUIET = ("asyncio", "azure", "httpcore2", "httpx2", "openai", "urllib3", "uvicorn")


class OneLine(logging.Formatter):
    """Formats as the module says. `where` is asked for the function that the record was written in."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s [%(where)s] %(name)s: %(message)s", "%H:%M:%S")
        self.where: Callable[[], str] = lambda: "-"

    def format(self, record: logging.LogRecord) -> str:
        """The record on one line; line ends within it are written as \\n."""
        if record.name == APP_LOGGER or record.name.startswith(APP_LOGGER + "."):
            return record.getMessage()
        record.where = self.where()
        return super().format(record).rstrip().replace("\r", "").replace("\n", "\\n")


def set_up() -> OneLine:
    """Log to stderr from level INFO, as the cloud's worker does; warnings only of the chatty libraries."""
    formatter = OneLine()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    return formatter
