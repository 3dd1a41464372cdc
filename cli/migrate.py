"""`migrate`: the database to the newest version."""

from __future__ import annotations

from cli.environment import any_database
from cli.output import AsJson, Output
from shared.db.migrate import migrate, version


def command(as_json: AsJson = False) -> None:
    """Bring the database to the newest version."""
    output = Output(as_json=as_json)
    with any_database() as (_, pool), pool.dedicated() as opened:
        applied = migrate(opened)
        now = version(opened)
    data = {"applied": applied, "version": now}
    words = f"applied {', '.join(applied)}" if applied else "nothing to do"
    output.result(data, lambda console: console.print(f"{words}; the database is at version {now}"))
