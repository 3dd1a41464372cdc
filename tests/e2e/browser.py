"""A real Chromium (the system's package), headless and without traffic of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright

from cli.test import browser

_FLAGS = [
    "--no-sandbox",  # which root, as in CI, cannot have
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


expect.set_options(timeout=30_000)  # the end of a hang: a busy machine may take more than the five seconds of before


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser until the block ends. Raises FileNotFoundError if there is none on this machine."""
    path = browser()
    if path is None:
        raise FileNotFoundError("The browser tests need Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        yield running
        running.close()
