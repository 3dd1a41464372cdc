"""Ports of the loopback address for what is started, killed and started again on this machine."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """One that nobody listens on at this moment, and that the system gives to nobody by itself.

    Those that it gives are above 32,768: one of them may be somebody else's before what it was found for has it, or has it
    again. Nor is it given to another process that asks here while this one lives: its namesake of UDP is held for that.
    """
    while True:
        address = ("127.0.0.1", random.randrange(12_000, 32_000))
        with (
            contextlib.suppress(OSError),
            socket.socket() as probe,
            socket.socket(type=socket.SOCK_DGRAM) as held,
        ):
            held.bind(address)
            probe.bind(address)
            held.detach()  # it stays open
            return address[1]
