"""How many connections the application may come to hold, and whether the server has so many.

A process holds its pool's and one more, over which the leases of running jobs are renewed; a server keeps a few for its
administrators. Looked at when work starts and by the command, never on the way of a webhook.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from shared import telemetry
from shared.db.pool import Conn, Database, one
from shared.errors import DatabaseAway, UserError

HEARTBEATS = 1  # connections of a process beside its pool's

# A role or a database may have a limit of its own (-1: none). PgBouncer shows the limits of the server behind it, and they are
# what counts: in transaction mode it opens no more than it is told to.
LIMITS = """
    SELECT current_setting('max_connections')::int,
        current_setting('superuser_reserved_connections')::int
            + coalesce(current_setting('reserved_connections', true), '0')::int,
        (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
        (SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
        (SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'antwoord' AND pid <> pg_backend_pid())
"""


@dataclass(frozen=True, slots=True)
class Budget:
    """All in connections. `available` is what the server gives to users such as ours, `open` what we have of them now."""

    per_process: int
    available: int
    open: int

    @property
    def processes(self) -> int:
        """How many processes of this application fit at most."""
        return self.available // self.per_process


def read_budget(connection: Conn, pool_max: int) -> Budget:
    """The server's limits against one process with a pool of at most `pool_max`."""
    row = one(connection, LIMITS)
    assert row is not None
    limit, reserved, of_role, of_database, opened = row
    limits = [int(limit) - int(reserved), *(int(own) for own in (of_role, of_database) if own is not None and own >= 0)]
    return Budget(pool_max + HEARTBEATS, min(limits), int(opened))


def require_room(budget: Budget) -> None:
    """Raise UserError when the server could not serve even this one process."""
    if budget.available < budget.per_process:
        raise UserError(
            f"The database gives this user at most {budget.available} connections, and one process needs "
            f"{budget.per_process} (DB_POOL_MAX {budget.per_process - HEARTBEATS} and {HEARTBEATS} for renewing leases): "
            f"raise the server's max_connections, or set DB_POOL_MAX to {max(budget.available - HEARTBEATS, 1)} or less."
        )


class Teller:
    """Logs the budget once in a process, when its database first answers."""

    def __init__(self, database: Database, pool_max: int) -> None:
        self._database = database
        self._pool_max = pool_max
        self._told = False

    def tell(self) -> None:
        """Log it if that has not been done; an error when there is no room. Never raises."""
        if self._told:
            return
        try:
            with self._database.connection() as connection:
                budget = read_budget(connection, self._pool_max)
        except (DatabaseAway, psycopg.Error):
            return  # the next time
        self._told = True
        telemetry.event("connection_budget", per_process=budget.per_process, available=budget.available,
                        processes=budget.processes, open=budget.open)  # fmt: skip
        try:
            require_room(budget)
        except UserError as too_small:
            telemetry.error("too_few_connections", error=str(too_small))
