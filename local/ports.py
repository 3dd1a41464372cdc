"""Ports of the loopback address for what is started, killed and started again on this machine."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """One that nobody listens on at this moment, and that the system gives to nobody by itself.

    Those that it gives are above 32,768: one of them may be somebody else's before what it was found for has it, or has it
    again.
    """
    while True:
        port = random.randrange(12_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
