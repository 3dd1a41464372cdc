"""PgBouncer in transaction mode before a test file's database: what a pooler does to whoever counts on a session.

Its few server connections are used in turn, so two transactions of one client are seldom in one session. It knows no start-up
parameter beyond its own: a client that sends `options` is refused.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cli.needs import PGBOUNCER, PROGRAMS
from shared.db.pool import Database
from tests.fakes.eventually import eventually

SERVER_CONNECTIONS = 4
SYSTEM_USER = "embedded_postgres"  # it refuses to run as root, as Postgres does, and takes Postgres's own user then
CONFIGURATION = """
[databases]
* = host={server} port={port} user={user}
[pgbouncer]
pool_mode = transaction
auth_type = any
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
max_client_conn = 200
default_pool_size = {size}
min_pool_size = {size}
server_round_robin = 1
log_connections = 0
log_disconnections = 0
"""


class PgBouncer:
    """One PgBouncer for the cluster of `url`, reachable by a unix socket; a context manager."""

    def __init__(self, url: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="antwoord-pgbouncer-"))
        parts = conninfo_to_dict(url)
        self.url = f"postgresql://{parts['user']}@/{parts['dbname']}?host={self._folder}&port=6432"
        self._write(str(parts["host"]), str(parts.get("port", 5432)), str(parts["user"]))
        self._process: subprocess.Popen[bytes] | None = None

    def _write(self, server: str, port: str, user: str) -> None:
        written = CONFIGURATION.format(
            server=server, port=port, user=user, folder=self._folder, size=SERVER_CONNECTIONS
        )
        (self._folder / "pgbouncer.ini").write_text(written, "utf-8")

    def __enter__(self) -> Self:
        program = shutil.which("pgbouncer", path=PROGRAMS)
        if program is None:
            pytest.fail(f"This test needs PgBouncer, which is not installed: {PGBOUNCER.install}.", pytrace=False)
        user = None
        if os.geteuid() == 0:
            user = SYSTEM_USER
            account = pwd.getpwnam(user)
            for path in (self._folder, *self._folder.iterdir()):
                os.chown(path, account.pw_uid, account.pw_gid)
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, "pgbouncer.ini"],
                cwd=self._folder,
                user=user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._answers, what="PgBouncer's first answer")
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            pytest.fail(f"PgBouncer did not start:\n{(self._folder / 'log').read_text('utf-8')}", pytrace=False)
        try:
            psycopg.connect(self.url, prepare_threshold=None).close()
        except psycopg.OperationalError:
            return False
        return True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="module")
def pgbouncer_url(database_url: str) -> Iterator[str]:
    """The test file's database, through a PgBouncer of the file's own."""
    with PgBouncer(database_url) as bouncer:
        yield bouncer.url


@pytest.fixture(scope="module")
def database(pgbouncer_url: str) -> Iterator[Database]:
    """For a file that imports it, in the place of the usual one: the application's pool, through PgBouncer."""
    pool = Database(pgbouncer_url, 8)
    yield pool
    pool.close()
