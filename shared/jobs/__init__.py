"""The one explicit table of job types. To add one: a file here, a row below, a row in job_types by a migration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from shared.db.pool import Conn
from shared.errors import Failure
from shared.jobs.autoreply import is_unsettled as unsettled_autoreply
from shared.jobs.autoreply import on_bury as bury_autoreply
from shared.jobs.autoreply import run as autoreply
from shared.jobs.deliver_event import Together as DeliveriesTogether
from shared.jobs.deliver_event import on_bury as bury_deliver_event
from shared.jobs.deliver_event import run as deliver_event
from shared.jobs.embed_record import on_bury as bury_embed_record
from shared.jobs.embed_record import run as embed_record
from shared.jobs.import_people import on_bury as bury_import_people
from shared.jobs.import_people import run as import_people
from shared.jobs.send_message import is_unsettled as unsettled_send_message
from shared.jobs.send_message import on_bury as bury_send_message
from shared.jobs.send_message import run as send_message
from shared.jobs.services import Services
from shared.jobs.suggest import on_bury as bury_suggest
from shared.jobs.suggest import run as suggest
from shared.queue.job import Job, JobType, Lease, Together, Verdict, Write, always_settled
from shared.queue.policy import ANSWERS, DELIVERIES, LINES, RECORDS, Policy

type Run = Callable[[Services, Job, Lease], Verdict]
type OnBury = Callable[[Services, Job, Failure], Sequence[Write]]

TYPES: dict[str, tuple[Run, Policy, OnBury]] = {
    "autoreply": (autoreply, ANSWERS, bury_autoreply),
    "send_message": (send_message, LINES, bury_send_message),
    "suggest": (suggest, ANSWERS, bury_suggest),
    "embed_record": (embed_record, RECORDS, bury_embed_record),
    "import_people": (import_people, RECORDS, bury_import_people),
    "deliver_event": (deliver_event, DELIVERIES, bury_deliver_event),
}


# These may have changed the world when they fail, and find out whether they did before they are buried.
UNSETTLED: dict[str, Callable[[Conn, Job], bool]] = {
    "autoreply": unsettled_autoreply,
    "send_message": unsettled_send_message,
}


# These do in one statement for several of their jobs what each would else do by itself.
TOGETHER: dict[str, Callable[[Services], Together]] = {"deliver_event": DeliveriesTogether}


def table(services: Services) -> dict[str, JobType]:
    """Every type that this version can run, by name."""
    return {
        name: JobType(
            name,
            partial(run, services),
            policy,
            partial(on_bury, services),
            UNSETTLED.get(name, always_settled),
            TOGETHER[name](services) if name in TOGETHER else None,
        )
        for name, (run, policy, on_bury) in TYPES.items()
    }
