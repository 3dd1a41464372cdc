"""Keeps the leases of running jobs: one statement for all of them, over a connection of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from uuid import UUID

from shared import telemetry
from shared.db.pool import Conn, Database
from shared.queue import store
from shared.queue.job import Job
from shared.queue.patience import Patience


class Heartbeat:
    """Renews at a third of the lease, and stops renewing a job that has run for `max_seconds`: it then loses its lease.

    The thread lives while somebody is inside `running`; the connection is only opened when a job has lasted that long.
    """

    def __init__(self, database: Database, lease_seconds: float, max_seconds: float, patience: Patience) -> None:
        self._database = database
        self._patience = patience
        self._lease = lease_seconds
        self._max = max_seconds
        self._held: dict[UUID, tuple[UUID, float]] = {}  # job id → its token, when it began
        self._changed = threading.Condition()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._missed = False  # the last renewal left one out: it was locked for a moment, or is lost

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Keep the renewal going inside; it has ended when the last one has left."""
        with self._changed:
            self._users += 1
            if self._thread is None:
                self._patience.begin()
                self._thread = threading.Thread(target=self._run, name="lease-renewal", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                leaving = self._thread if self._users == 0 else None
                if leaving:
                    self._thread = None
                    self._changed.notify_all()
            if leaving:
                leaving.join(timeout=10)

    def hold(self, job: Job) -> None:
        """Renew this job's lease from now on."""
        with self._changed:
            self._held[job.id] = (job.lease_token, time.monotonic())

    def release(self, job: Job) -> None:
        """Stop renewing it, if it is still this claim's."""
        with self._changed:
            if self._held.get(job.id, (None,))[0] == job.lease_token:
                del self._held[job.id]

    def _run(self) -> None:
        me, connection = threading.current_thread(), None
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._thread is not me, timeout=self._lease / (10 if self._missed else 3)
                )
                if self._thread is not me:
                    break
                oldest = time.monotonic() - self._max
                held = {job: token for job, (token, began) in self._held.items() if began > oldest}
            if held:
                connection = self._renew(connection, held)
        if connection is not None:
            connection.close()

    def _renew(self, connection: Conn | None, held: dict[UUID, UUID]) -> Conn | None:
        try:
            connection = connection or self._database.dedicated()
            with self._database.limit(connection, self._lease / 3):
                self._missed = store.renew(connection, held, self._lease) < len(held)
        except Exception as failed:  # noqa: BLE001 - a token may be refused, too; the next round tries again; a lease has room for three
            telemetry.warning("lease_renewal_failed", error_class=type(failed).__name__)
            self._missed = True
            self._patience.failed()
            if connection is not None:
                connection.close()
            return None
        self._patience.answered()
        return connection
