"""The database: reached, of a version that is supported, with its extension, migrated, with connections to spare."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg

from cli.doctor import clock
from cli.doctor.finding import Finding, left_out, ok, wrong
from cli.doctor.setup import Setup
from shared.app import open_database
from shared.db.budget import read_budget, require_room
from shared.db.migrate import APPLIED, available, version
from shared.db.pool import Conn, one
from shared.errors import FailureKind, SettingsError, UserError, classify, shorten

NEEDED = ("DATABASE_URL",)
VERSIONS = range(16, 19)
LOOK = """
    SELECT current_setting('server_version_num')::int, extract(epoch FROM clock_timestamp())::float8,
        EXISTS (SELECT FROM pg_extension WHERE extname = 'vector')
"""


def check(setup: Setup) -> Iterator[Finding]:
    """Look at the database, over a connection of the application's kind."""
    if missing := setup.lacks(*NEEDED):
        yield left_out("database", missing)
        return
    try:
        opened = open_database(setup.settings).dedicated()
    except SettingsError as unreadable:
        yield wrong("database", " ".join(unreadable.problems))
        return
    except Exception as away:  # noqa: BLE001 - the identity's library raises errors of its own
        yield wrong("database", _unreached(away))
        return
    with opened:
        try:
            yield from _look(opened, setup.settings.db_pool_max)
        except psycopg.Error as failed:
            yield wrong("database", f"It was reached, and then a statement failed: {shorten(failed)}")


def _look(connection: Conn, pool_max: int) -> Iterator[Finding]:
    before = time.time()
    row = one(connection, LOOK)
    assert row is not None
    number, theirs, has_vector = int(row[0]), float(row[1]), bool(row[2])
    after = time.time()
    if number // 10_000 in VERSIONS:
        yield ok("database", f"Reached; Postgres {number // 10_000}.{number % 10_000}.")
    else:
        yield wrong(
            "database",
            f"It is Postgres {number // 10_000}; {VERSIONS[0]} to {VERSIONS[-1]} are supported: upgrade it, or point "
            "DATABASE_URL at another one.",
        )
    if has_vector:
        yield ok("extensions", "pgvector is there.")
    else:
        yield wrong(
            "extensions",
            "pgvector is not there: an administrator runs CREATE EXTENSION vector; in this database (on Azure, first "
            "allow VECTOR in the server parameter azure.extensions).",
        )
    yield _migrations(connection)
    yield _connections(connection, pool_max)
    yield clock.compare("database", theirs, before, after)


def _migrations(connection: Conn) -> Finding:
    here, there = available(), version(connection)
    if there < len(here):
        return wrong("migrations", f"The database is at {there}, this code needs {len(here)}: run ./antwoord migrate.")
    if there > len(here):
        return wrong(
            "migrations",
            f"The database is at {there}, this code knows {len(here)}: check out the newer code, or point DATABASE_URL "
            "at another database.",
        )
    applied: dict[int, str] = dict(connection.execute(APPLIED).fetchall())
    changed = [file.name for file in here if applied.get(file.version) != file.checksum]
    if changed:
        return wrong(
            "migrations", f"Changed since they were applied: {', '.join(changed)}. Put them back as they were."
        )
    return ok("migrations", f"At {there}, the newest.")


def _connections(connection: Conn, pool_max: int) -> Finding:
    budget = read_budget(connection, pool_max)
    try:
        require_room(budget)
    except UserError as too_few:
        return wrong("connections", str(too_few))
    return ok(
        "connections",
        f"The database gives {budget.available}, one process takes at most {budget.per_process}: room for "
        f"{budget.processes} processes; {budget.open} are open.",
    )


def _unreached(error: Exception) -> str:
    """Why there is no connection, and what to look at."""
    text = shorten(error)
    if classify(error).kind is FailureKind.CREDENTIAL:
        return "Nobody is signed in to Azure here, and DATABASE_AUTH is entra: run `az login`."
    if "does not exist" in text:
        return f"It is reached, but the database or the user in DATABASE_URL is not there. {text}"
    if "authentication" in text or "pg_hba" in text or "no password" in text:
        return f"It refuses this user: check the user and password in DATABASE_URL, and DATABASE_AUTH. {text}"
    if "certificate" in text:
        return (
            "Its certificate is not believed: DATABASE_URL must name the server as its certificate does, and a server with an "
            f"authority of its own needs sslrootcert=FILE in it. {text}"
        )
    return f"It cannot be reached: check the host and port in DATABASE_URL, and that its firewall lets this machine in. {text}"
