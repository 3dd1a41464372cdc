"""Bring the database to the newest version: plain SQL files, forward only, each in a transaction of its own.

A file `migrations/NNNN_name.sql` is applied once and recorded with its checksum. Two `migrate` at once are serialised by an
advisory lock that lives as long as the transaction, so that it works through PgBouncer in transaction mode. It may run beside
live traffic: what finds its tables in use gives way to it, and tries again.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from shared.db.pool import Conn, one
from shared.errors import UserError

MIGRATIONS = Path(__file__).parent / "migrations"

LOCK = "SELECT pg_advisory_xact_lock(7247001)"
NO_TIME_LIMIT = "SET LOCAL statement_timeout = 0"
# Whoever comes after a migration that waits for a table waits too, so it waits briefly, and tries again. That is shorter than
# the server takes to look for a deadlock, so it is mostly the migration that gives way, and not a job.
BRIEFLY = "SET LOCAL lock_timeout = '500ms'"
TRIES = 20
PAUSE_SECONDS = 0.5
HELD = (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable)
CREATE_TABLE = """
    CREATE TABLE IF NOT EXISTS schema_migrations (
        version int PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())
"""
APPLIED = "SELECT version, checksum FROM schema_migrations ORDER BY version"
HAS_TABLE = "SELECT to_regclass('schema_migrations') IS NOT NULL"
NEWEST = "SELECT max(version) FROM schema_migrations"
RECORD = "INSERT INTO schema_migrations (version, name, checksum) VALUES (%(version)s, %(name)s, %(checksum)s)"
HAS_VECTOR = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector')"
CREATE_VECTOR = "CREATE EXTENSION IF NOT EXISTS vector"

# The webhook's single statement must not hang longer than this; what may take longer says so with SET LOCAL.
LIMIT_ROLE = """
    DO $limits$
    DECLARE
        setting text;
    BEGIN
        FOREACH setting IN ARRAY ARRAY[
            'statement_timeout = ''3s''', 'idle_in_transaction_session_timeout = ''15s''', 'jit = off'
        ] LOOP
            EXECUTE format('ALTER ROLE %I IN DATABASE %I SET ', current_user, current_database()) || setting;
        END LOOP;
    END
    $limits$
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, its name and its text."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def available(folder: Path = MIGRATIONS) -> list[Migration]:
    """The migrations on disk, in order. Raises UserError on a gap or a double number."""
    found = [
        Migration(int(path.name[:4]), path.stem, path.read_text("utf-8"))
        for path in sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    ]
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise UserError(f"The migrations in {folder.name}/ must be numbered 0001, 0002, … without a gap or a double.")
    return found


def migrate(connection: Conn, folder: Path = MIGRATIONS, *, tries: int = TRIES) -> list[str]:
    """Apply what is missing and set the role's limits; returns the names of what was applied.

    Raises UserError when an applied file has changed, when the database is newer than this code, when pgvector has to be
    created by an administrator first, or when a file's tables were in use at each of so many `tries`, half a second apart.
    """
    _ensure_vector(connection)
    applied = [migration.name for migration in available(folder) if _apply(connection, migration, tries)]
    _refuse_newer(connection, len(available(folder)))
    with connection.transaction():  # two that change the same role at once would fail each other
        connection.execute(LOCK)
        limit_role(connection)
    return applied


def version(connection: Conn) -> int:
    """The newest applied migration's number, 0 for a database that was never migrated."""
    row = one(connection, HAS_TABLE)
    if row is None or not row[0]:
        return 0
    newest = one(connection, NEWEST)
    return int(newest[0] or 0) if newest else 0


def _apply(connection: Conn, migration: Migration, tries: int) -> bool:
    """Apply one file, unless it has been; whether it was applied now."""
    for tries_left in reversed(range(tries)):
        try:
            return _apply_once(connection, migration)
        except HELD as held:
            if not tries_left:
                raise UserError(
                    f"{migration.name} is not applied: its tables were in use at each of {tries} tries, and nothing is "
                    "changed. Run migrate again when it is quieter, or end what holds them (pg_stat_activity, xact_start)."
                ) from held
            time.sleep(PAUSE_SECONDS)
    raise AssertionError("unreachable")


def _apply_once(connection: Conn, migration: Migration) -> bool:
    with connection.transaction():
        connection.execute(NO_TIME_LIMIT)
        connection.execute(LOCK)
        connection.execute(CREATE_TABLE)
        if _is_applied(connection, migration):
            return False
        connection.execute(BRIEFLY)
        connection.execute(migration.text)
        connection.execute(
            RECORD, {"version": migration.version, "name": migration.name, "checksum": migration.checksum}
        )
        return True


def _is_applied(connection: Conn, migration: Migration) -> bool:
    known: dict[int, str] = dict(connection.execute(APPLIED).fetchall())
    if migration.version not in known:
        return False
    if known[migration.version] != migration.checksum:
        raise UserError(
            f"{migration.name}.sql has changed since it was applied to this database: put it back as it was "
            "and write a new migration for the change."
        )
    return True


def _refuse_newer(connection: Conn, newest_here: int) -> None:
    if version(connection) > newest_here:
        raise UserError(
            f"The database is at version {version(connection)}, this code knows {newest_here}: "
            "deploy the newer code, or point DATABASE_URL at another database."
        )


def _ensure_vector(connection: Conn) -> None:
    """pgvector is not a trusted extension: only an administrator can create it."""
    row = one(connection, HAS_VECTOR)
    if row and row[0]:
        return
    try:
        connection.execute(CREATE_VECTOR)
    except psycopg.Error as refused:
        raise UserError(
            "The database has no pgvector yet, and this user may not create it. An administrator runs once, in this "
            "database:  CREATE EXTENSION vector;  (on Azure, first allow VECTOR in the server parameter azure.extensions)"
            f"  Postgres said: {' '.join(str(refused).split())}"
        ) from refused


def limit_role(connection: Conn) -> None:
    """Give this user its limits in this database; they hold for new connections."""
    connection.execute(LIMIT_ROLE)
