"""`send_message`: the saga for everything that is not an autoreply; an apology, a notice, a confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from shared.conversation import attention, reply
from shared.errors import Failure, FailureKind, PermanentError
from shared.jobs.services import Services
from shared.queue.job import Job, Lease, Verdict, Write


def run(services: Services, job: Job, lease: Lease) -> Verdict:
    """Send the message that the payload names."""
    with services.database.connection() as connection:
        message = reply.by_id(connection, UUID(job.payload["message_id"]))
    if message is None:
        raise PermanentError("bad_payload", "the message that was to be sent does not exist")
    return reply.Sender(services.line, services.settings.public_base_url).deliver(lease, message)


def on_bury(services: Services, job: Job, failure: Failure) -> Sequence[Write]:
    """Hold what may have left, mark what has not, and ask for a person."""
    del services
    held = failure.kind is FailureKind.AMBIGUOUS
    message_id = UUID(job.payload["message_id"])
    writes = [reply.give_up(message_id=message_id, reason=failure.text if held else failure.error_class)]
    if job.conversation_id is not None:
        writes.append(attention.flag(job.conversation_id, "held" if held else failure.error_class))
    return writes
