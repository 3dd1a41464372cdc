"""What a job's payload names."""

from __future__ import annotations

from uuid import UUID

from shared.errors import PermanentError
from shared.queue.job import Job


def id_in(job: Job, name: str) -> UUID:
    """The id that the payload has under this name. Raises PermanentError("bad_payload"): no retry will find it there."""
    try:
        return UUID(job.payload[name])
    except (KeyError, ValueError, TypeError, AttributeError):
        raise PermanentError("bad_payload", f"the payload of a job of type {job.type} names no {name}") from None
