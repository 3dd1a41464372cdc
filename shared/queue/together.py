"""What types do for several of their jobs in one statement (`job.Together`), around a worker's turn.

It only saves round trips: whatever goes wrong here is left to each job by itself, which then meets it again, or does not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from uuid import UUID

from shared import telemetry
from shared.db.pool import Conn
from shared.errors import classify
from shared.queue.job import Job, JobType
from shared.queue.outcome import Returned


def prepare(types: Mapping[str, JobType], connection: Conn, jobs: Sequence[Job]) -> Mapping[UUID, object]:
    """What the types of jobs that were just claimed have made ready, by lease token."""
    by_type: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_type[job.type].append(job)
    prepared: dict[UUID, object] = {}
    for name, of_type in by_type.items():
        if together := types[name].together:
            try:
                prepared |= together.prepare(connection, of_type)
            except Exception as error:  # noqa: BLE001 - each job meets it by itself, or does not
                telemetry.warning("not_together", type=name, step="prepare", error=classify(error).text)
    return prepared


def record(types: Mapping[str, JobType], connection: Conn, done: Sequence[Returned]) -> Sequence[Returned]:
    """Record the notes of these jobs; those that have none, or whose note is recorded now."""
    by_type: dict[str, list[Returned]] = defaultdict(list)
    for item in done:
        if item.note is not None:
            by_type[item.job.type].append(item)
    if not by_type:
        return done
    recorded: set[UUID] = set()
    for name, of_type in by_type.items():
        if together := types[name].together:
            try:
                recorded |= set(together.record(connection, [(item.job, item.note) for item in of_type]))
            except Exception as error:  # noqa: BLE001 - each job meets it by itself, or does not
                telemetry.warning("not_together", type=name, step="record", error=classify(error).text)
    return [item for item in done if item.note is None or item.job.lease_token in recorded]
