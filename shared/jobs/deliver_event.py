"""`deliver_event`: bring one event to one endpoint (shared/webhooks/deliver.py)."""

from __future__ import annotations

from collections.abc import Sequence

from shared.errors import Failure
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
