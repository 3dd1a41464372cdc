"""The one explicit table of job types. To add one: a file here, a row below, a row in job_types by a migration."""

from __future__ import annotations

from functools import partial

from shared.jobs import autoreply, embed_record, send_message
from shared.jobs.services import Services
from shared.queue.job import JobType
from shared.queue.policy import ANSWERS, LINES, RECORDS


def table(services: Services) -> dict[str, JobType]:
    """Every type that this version can run, by name."""
    types = [
        JobType("autoreply", partial(autoreply.run, services), ANSWERS, partial(autoreply.on_bury, services)),
        JobType("send_message", partial(send_message.run, services), LINES, partial(send_message.on_bury, services)),
        JobType("embed_record", partial(embed_record.run, services), RECORDS, partial(embed_record.on_bury, services)),
    ]
    return {job_type.name: job_type for job_type in types}
