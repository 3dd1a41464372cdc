"""`host`: only the Functions host on this app; all else comes from the environment."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer


def command(
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 7071,
    no_timer: Annotated[bool, typer.Option("--no-timer", help="Timers do not run.")] = False,
    no_wake: Annotated[bool, typer.Option("--no-wake", help="No queue is listened to, and no wake is sent.")] = False,
) -> None:
    """Run only the Functions host on this app; prints `ready http://127.0.0.1:N`."""
    arguments = ["--port", str(port), *(["--no-timer"] if no_timer else []), *(["--no-wake"] if no_wake else [])]
    os.execv(sys.executable, [sys.executable, "-m", "local.host", *arguments])  # noqa: S606 - itself, no shell
