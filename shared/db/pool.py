"""Connections to Postgres: few, checked, and never waited for without end.

Four limits together bound how long the database can hold up a caller: opening a connection (`connect_timeout`, 2 s), waiting
for one of the pool's (`PoolTimeout`), a statement on the server (`statement_timeout` of the role, set by `migrate`), and
a `deadline` on this side, for a server that has stopped answering altogether.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, LiteralString

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolTimeout

from shared import backoff, telemetry
from shared.db.roots import trusted_roots
from shared.errors import DatabaseAway, FailureKind, SettingsError, classify, shorten

CONNECT_SECONDS = 2
POOL_WAIT_SECONDS = 3.0
REASON_SECONDS = 1.0  # how much longer than somebody waits the reason for it may be old
LENT_SECONDS = 30.0  # nobody needs a connection for longer: what is slow is not done while holding one
LOST_SQLSTATES = ("08", "57P", "53300", "25006")  # broken, shut down, full, or a standby that is not yet promoted
RETRIED_SQLSTATES = ("40P01", "40001")

# PgBouncer in transaction mode keeps no session state: no prepared statements, no `options` at start-up.
_CONNECTION = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
    "application_name": "antwoord",
}


class _Reasons(logging.Filter):
    """Why the pool gets no connection: it tells its log alone, in lines unlike ours. Kept for the error that we raise."""

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[float, str] | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Leave out what the pool says of a failed try, and remember why it failed."""
        if not str(record.msg).startswith(("error connecting in", "reconnection attempt in")):
            return True
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, BaseException):
                self._last = time.monotonic(), shorten(argument)
        return False

    def within(self, seconds: float) -> str:
        """The last one, if it is hardly older, as the end of a sentence."""
        last = self._last
        return f": {last[1]}" if last and time.monotonic() - last[0] <= seconds + REASON_SECONDS else ""


_reasons = _Reasons()
logging.getLogger("psycopg.pool").addFilter(_reasons)

type Row = TupleRow
type Conn = Connection[TupleRow]
type TokenSource = Callable[[], str]


class Database:
    """A pool of at most `size` connections, opened when first used.

    `token` gives the password of each new connection where signing in is by Entra ID; it is called in the pool's threads.
    """

    def __init__(self, url: str, size: int, *, token: TokenSource | None = None) -> None:
        self._url = url
        self._token = token
        self._deadlines = _Deadlines()
        check_url(url)
        self._roots = trusted_roots(url)
        self._pool = ConnectionPool(
            self._url,
            kwargs=self._arguments,
            min_size=0,
            max_size=size,
            open=False,
            timeout=POOL_WAIT_SECONDS,
            max_idle=300,
            max_lifetime=1800,
            reconnect_timeout=POOL_WAIT_SECONDS,
            num_workers=2,
            name="antwoord",
        )
        self._opening = threading.Lock()

    def _arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "autocommit": True,
            "prepare_threshold": None,
            **_CONNECTION,
            **self._roots,
        }
        if self._token:
            arguments["password"] = self._token()
        return arguments

    @contextlib.contextmanager
    def connection(self, *, wait: float = POOL_WAIT_SECONDS, deadline: float = LENT_SECONDS) -> Iterator[Conn]:
        """Lend a connection in autocommit mode.

        Waits at most `wait` seconds for one. The connection is cut when it has been lent for `deadline` seconds, and the
        statement that hangs raises OperationalError. Raises DatabaseAway when none can be had.
        """
        try:
            self._open()
            connection = self._pool.getconn(timeout=max(wait, 0.05))
        except (PoolTimeout, psycopg.OperationalError) as away:
            raise DatabaseAway(f"no connection to the database within {wait:g} s{_reasons.within(wait)}") from away
        try:
            with connection, self._deadlines.watch(connection, deadline):
                yield connection
        except psycopg.errors.ReadOnlySqlTransaction:
            connection.close()  # to a server that has become a standby: the next one opened finds its successor
            raise
        finally:
            self._pool.putconn(connection)

    @contextlib.contextmanager
    def transaction(self, *, wait: float = POOL_WAIT_SECONDS, deadline: float = LENT_SECONDS) -> Iterator[Conn]:
        """Lend a connection inside a transaction: committed at the end, rolled back by an exception."""
        with self.connection(wait=wait, deadline=deadline) as connection, connection.transaction():
            yield connection

    def insist[T](self, work: Callable[[Conn], T], seconds: float) -> T:
        """Run `work` in a transaction, again and again for at most `seconds` while the database is away, full or locked.

        For what must be recorded and is fenced: a commit whose answer was lost is found by the repetition.
        """
        ends, failures = time.monotonic() + seconds, 0
        while True:
            try:
                with self.transaction() as connection:
                    return work(connection)
            except (DatabaseAway, psycopg.Error) as error:
                failures += 1
                pause = backoff.reconnect(failures, random.random())
                failure = classify(error)
                telemetry.warning("database_insisted", failures=failures, error=failure.text)
                if failure.kind is not FailureKind.DATABASE or time.monotonic() + pause > ends:
                    raise
                time.sleep(pause)

    def limit(self, connection: Conn, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Cut a connection that is still inside after `seconds`."""
        return self._deadlines.watch(connection, seconds)

    def dedicated(self) -> Conn:
        """Open a connection outside the pool, in autocommit mode; the caller closes it."""
        return psycopg.connect(self._url, **self._arguments())

    def close(self) -> None:
        """Close the pool and its threads."""
        self._pool.close()
        self._deadlines.close()

    def _open(self) -> None:
        if self._pool.closed:
            with self._opening:
                if self._pool.closed:
                    self._pool.open()


def check_url(url: str) -> None:
    """Raise SettingsError when the URL cannot be one of Postgres; its secrets are not repeated."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except (psycopg.ProgrammingError, UnicodeError):
        parts = {}
    if not parts or not url.startswith(("postgresql://", "postgres://")):
        raise SettingsError(
            ["DATABASE_URL must look like postgresql://user:password@host:5432/database?sslmode=verify-full."]
        )


def one(connection: Conn, sql: LiteralString, parameters: dict[str, Any] | None = None) -> Row | None:
    """The first row of a statement, or None."""
    return connection.execute(sql, parameters).fetchone()


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone or the server is not taking work, as opposed to refusing this statement."""
    state = error.sqlstate or ""
    return state.startswith(LOST_SQLSTATES) if state else isinstance(error, psycopg.OperationalError)


def is_worth_repeating(error: psycopg.Error) -> bool:
    """Whether the same statement may well succeed at once: a deadlock, a serialization failure, a lost connection."""
    return (error.sqlstate or "") in RETRIED_SQLSTATES or is_lost(error)


class _Watched:
    """A lent connection's deadline; `descriptor` is a duplicate of its socket's, -1 once it is closed."""

    __slots__ = ("descriptor", "due")

    def __init__(self, due: float, descriptor: int) -> None:
        self.due = due
        self.descriptor = descriptor

    def __lt__(self, other: _Watched) -> bool:
        return self.due < other.due

    def release(self, *, cut: bool) -> None:
        """Close the duplicate, and with `cut` end the connection itself, so that whoever waits on it gets an error."""
        if self.descriptor < 0:
            return
        with socket.socket(fileno=self.descriptor) as duplicate:
            self.descriptor = -1
            if cut:
                with contextlib.suppress(OSError):
                    duplicate.shutdown(socket.SHUT_RDWR)


class _Deadlines:
    """Cuts the connections that are overdue: the wait in libpq then ends with an error.

    One thread for all of them, started when a deadline is first asked for.
    """

    def __init__(self) -> None:
        self._heap: list[_Watched] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextlib.contextmanager
    def watch(self, connection: Conn, seconds: float) -> Iterator[None]:
        # A duplicate, because libpq may close its own descriptor at any moment, and the number be given to another.
        watched = _Watched(time.monotonic() + seconds, os.dup(connection.fileno()))
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="database-deadlines", daemon=True)
                self._thread.start()
            heapq.heappush(self._heap, watched)
            if self._heap[0] is watched:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                watched.release(cut=False)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=5)

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                while self._heap and (self._heap[0].descriptor < 0 or self._heap[0].due <= now):
                    heapq.heappop(self._heap).release(cut=True)
                self._changed.wait(self._heap[0].due - now if self._heap else None)
            for watched in self._heap:
                watched.release(cut=False)
