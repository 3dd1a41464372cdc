"""Calls through DeadlineTransport in tests, and how long they take."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from shared.clients.http import DeadlineTransport


@contextmanager
def takes(at_least: float, at_most: float) -> Iterator[None]:
    """What is in the block takes so many seconds; `at_most` is to be far beyond what a busy machine takes."""
    began = time.monotonic()
    yield
    assert at_least <= time.monotonic() - began < at_most


def get(url: str, *, body_limit: int = 1000, keep_alive: bool = False, trust: ssl.SSLContext | None = None) -> bytes:
    transport = DeadlineTransport(body_limit=body_limit, keep_alive=keep_alive, ssl_context=trust or plain())
    with httpx2.Client(transport=transport, timeout=20) as client:
        return client.get(url).content


def plain() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, and costs nothing to make
