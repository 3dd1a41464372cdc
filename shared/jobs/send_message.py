"""`send_message`: the saga for everything that is not an autoreply; a person's answer, an apology, a notice, a confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from shared.conversation import attention, doubts, parts, reply
from shared.db.pool import Conn
from shared.errors import Failure, FailureKind, PermanentError
from shared.jobs.payload import id_in
from shared.jobs.services import Services
from shared.queue.job import Job, Lease, Verdict, Write


def run(services: Services, job: Job, lease: Lease) -> Verdict:
    """Send the message that the payload names, and the parts behind it."""
    with services.database.connection() as connection:
        found = parts.of_reply(connection, _reply_id(job))
    if not found:
        raise PermanentError("bad_payload", "the message that was to be sent does not exist")
    return reply.Sender(services.line, services.settings, services.checkpoint).deliver(lease, found)


def is_unsettled(connection: Conn, job: Job) -> bool:
    """Whether something of it may be with the employee and is still being looked up: then it is not buried."""
    return doubts.keep_alive(connection, _reply_id(job))


def on_bury(services: Services, job: Job, failure: Failure) -> Sequence[Write]:
    """Hold what may have left, mark what has not, and ask for a person."""
    del services
    held = failure.kind is FailureKind.AMBIGUOUS
    reason = failure.text if held else failure.error_class
    writes = [parts.give_up(_reply_id(job), reason=reason, word=failure.error_class)]
    if job.conversation_id is not None:
        writes.append(attention.flag(job.conversation_id, "held" if held else failure.error_class))
    return writes


def _reply_id(job: Job) -> UUID:
    """What is sent by this type is a reply of its own: its first message has the reply's id."""
    return id_in(job, "message_id")
