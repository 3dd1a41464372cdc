"""Why the host refuses to start."""

from __future__ import annotations

from shared.errors import UserError

USAGE = 2  # the exit status for a wrong flag, file or setting


class CannotStart(UserError):
    """The text for the person who started the host, and the exit status of the process."""

    def __init__(self, text: str, status: int = 1) -> None:
        self.status = status
        super().__init__(text)
