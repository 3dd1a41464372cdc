"""`host`: only the Functions host on this app; all else comes from the environment."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from cli.environment import environment


def command(
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 7071,
    no_timer: Annotated[bool, typer.Option("--no-timer", help="Timers do not run.")] = False,
    no_wake: Annotated[bool, typer.Option("--no-wake", help="No queue is listened to, and no wake is sent.")] = False,
) -> None:
    """Run only the Functions host on this app; prints `ready http://127.0.0.1:N`."""
    require_connections()
    arguments = ["--port", str(port), *(["--no-timer"] if no_timer else []), *(["--no-wake"] if no_wake else [])]
    os.execv(sys.executable, [sys.executable, "-m", "local.host", *arguments])  # noqa: S606 - itself, no shell


def require_connections() -> None:
    """Refuse to start where the database has too few connections for this process. What else is wrong the host says itself."""
    import psycopg

    from shared.app import open_database
    from shared.db.budget import read_budget, require_room
    from shared.errors import SettingsError
    from shared.settings import load

    try:
        settings = load(environment(), only=["database_url"])
        database = open_database(settings)
        with database.dedicated() as connection:
            budget = read_budget(connection, settings.db_pool_max)
    except (SettingsError, psycopg.Error):
        return
    require_room(budget)
