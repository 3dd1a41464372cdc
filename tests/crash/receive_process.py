"""An event taken in by a process of its own, which kills itself at a boundary: `python -m tests.crash.receive_process URL AT`.

The secret, the id and the body are lines of standard input.
"""

from __future__ import annotations

import os
import signal
import sys

from shared.app import App
from shared.boundary import Boundary
from shared.clients.wake import NoWake
from shared.request import Request
from tests.fakes.senders import SECRETS_KEY, signed
from tests.fakes.world import settings


def main() -> None:
    """Send it once."""
    url, boundary = sys.argv[1:]
    secret, identity, body = (line.rstrip("\n") for line in sys.stdin)

    def checkpoint(passed: Boundary) -> None:
        if passed == boundary:
            os.kill(os.getpid(), signal.SIGKILL)

    app = App(settings(DATABASE_URL=url, SECRETS_KEY=SECRETS_KEY), wake=NoWake(), checkpoint=checkpoint)
    raw = body.encode()
    app.receive_event("openai", Request("", signed("standard", secret, raw, identity=identity), raw))


if __name__ == "__main__":
    main()
