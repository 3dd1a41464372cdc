"""Work that comes round: each chore has its own period, and over all instances one of them does it.

Whoever moves a chore's `ran_at` does it. A chore must be one that can be missed or repeated: a process that dies in the middle of
it leaves the rest to the next round.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import psycopg

from shared import telemetry
from shared.db.pool import Conn, Database, one
from shared.errors import DatabaseAway, classify

MINUTE = 60.0
LOOK_EVERY_SECONDS = 1.0  # while the timer's drain goes on
STOP_SECONDS = 30.0  # a chore in the middle is waited for, its statements are limited by the role

DUE = """
    SELECT wanted.name
    FROM unnest(%(names)s::text[], %(periods)s::float8[]) AS wanted (name, seconds) LEFT JOIN chores c USING (name)
    WHERE c.ran_at IS NULL OR c.ran_at <= now() - make_interval(secs => wanted.seconds)
"""
TAKE = """
    INSERT INTO chores AS c (name, ran_at) VALUES (%(name)s, now())
    ON CONFLICT (name) DO UPDATE SET ran_at = now() WHERE c.ran_at <= now() - make_interval(secs => %(seconds)s)
    RETURNING name
"""
UNKNOWN_TYPES = """
    SELECT coalesce(string_agg(DISTINCT type, ', '), ''), count(*) FROM ai_jobs
    WHERE status = 'pending' AND NOT (type = ANY (%(types)s)) AND created_at < now() - interval '1 hour'
"""


@dataclass(frozen=True, slots=True)
class Chore:
    """Something to do every so many seconds, over all instances; it makes its own transactions, and short ones."""

    name: str
    every_seconds: float
    run: Callable[[Database], object]


def on_connection(work: Callable[[Conn], object]) -> Callable[[Database], object]:
    """A chore of single statements, each a transaction of its own."""

    def run(database: Database) -> None:
        with database.connection() as connection:
            work(connection)

    return run


class Housekeeping:
    """Does the chores that are due."""

    def __init__(self, database: Database, chores: Sequence[Chore]) -> None:
        self._database = database
        self._chores = {chore.name: chore for chore in chores}

    def run_if_due(self) -> None:
        """Do the chores that nobody has done for their period. Never raises: all faults are logged."""
        try:
            for name in self._due():
                chore = self._chores[name]
                if self._take(chore):
                    self._do(chore)
        except (DatabaseAway, psycopg.Error) as away:
            telemetry.warning("housekeeping_failed", error_class=type(away).__name__)

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Do what is due, then go on looking once a second beside what is done inside; it has ended with it."""
        self.run_if_due()
        ended = threading.Event()
        in_context = contextvars.copy_context().run  # as in crew.py: so that its log lines are kept
        thread = threading.Thread(target=in_context, args=(self._go_on, ended), name="housekeeping", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(STOP_SECONDS)

    def _go_on(self, ended: threading.Event) -> None:
        while not ended.wait(LOOK_EVERY_SECONDS):
            self.run_if_due()

    def _due(self) -> list[str]:
        chores = self._chores.values()
        wanted = {"names": [c.name for c in chores], "periods": [c.every_seconds for c in chores]}
        with self._database.connection() as connection:
            return [str(name) for (name,) in connection.execute(DUE, wanted)]

    def _take(self, chore: Chore) -> bool:
        with self._database.connection() as connection:
            return one(connection, TAKE, {"name": chore.name, "seconds": chore.every_seconds}) is not None

    def _do(self, chore: Chore) -> None:
        """One chore that fails must not keep the others, nor the jobs, from being done."""
        try:
            chore.run(self._database)
        except (DatabaseAway, psycopg.OperationalError):
            raise
        except Exception as error:  # noqa: BLE001
            telemetry.error("chore_failed", chore=chore.name, error=classify(error).text)


def alert_unknown_types(connection: Conn, known: Sequence[str]) -> None:
    """Log an error for jobs that wait for an hour because this version does not know their type."""
    row = one(connection, UNKNOWN_TYPES, {"types": list(known)})
    if row and row[1]:
        telemetry.error("jobs_of_unknown_type", types=row[0], count=row[1])
