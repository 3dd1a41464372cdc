"""`deliver_event`: bring one event to one endpoint (shared/webhooks/deliver.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from shared.db.pool import Conn
from shared.errors import Failure, PermanentError
from shared.jobs.payload import id_in
from shared.jobs.services import Services
from shared.queue.job import Job, Lease, Verdict, Write
from shared.webhooks import deliver


def run(services: Services, job: Job, lease: Lease) -> Verdict:
    """Make an attempt, or wait for the endpoint's moment."""
    return services.courier.deliver(job, lease, id_in(job, "delivery_id"))


def on_bury(services: Services, job: Job, failure: Failure) -> Sequence[Write]:
    """Say on the delivery that it is dead."""
    del services, failure
    return deliver.on_bury(id_in(job, "delivery_id"))


@dataclass(frozen=True, slots=True)
class Together:
    """Several deliveries begin, and are recorded as accepted, in one statement."""

    services: Services

    def prepare(self, connection: Conn, jobs: Sequence[Job]) -> Mapping[UUID, object]:
        """The attempts that have begun."""
        return self.services.courier.prepare(connection, list(_asking(jobs)))

    def record(self, connection: Conn, noted: Sequence[tuple[Job, deliver.Accepted]]) -> Collection[UUID]:
        """Those that are recorded."""
        return self.services.courier.record(connection, noted)

    def record_alone(self, connection: Conn, job: Job, note: deliver.Accepted) -> None:
        """One that the others did without."""
        self.services.courier.record_alone(connection, job, note)


def _asking(jobs: Sequence[Job]) -> Iterator[tuple[Job, UUID]]:
    for job in jobs:
        try:
            yield job, id_in(job, "delivery_id")
        except PermanentError:  # it meets that by itself, and is buried
            continue
