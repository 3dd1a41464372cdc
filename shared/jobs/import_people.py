"""`import_people`: a file of people, in batches that are each written as a whole.

Where an import was killed, the next run goes on: the progress is committed with the batch that it tells of. A run reads the
file once and writes batches for a few seconds, because the first of two rows with one number can only be known by reading
from the beginning.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from shared.errors import Failure
from shared.jobs.payload import id_in
from shared.jobs.services import Services
from shared.knowledge import people_batch
from shared.knowledge.people_rows import rows_of
from shared.queue.job import Complete, Continue, Job, Lease, Verdict, Write

BATCH_ROWS = 500
STEP_SECONDS = (
    5.0  # of writing: what is read again to get there does not count, so that a long file does not end in small steps
)


def run(services: Services, job: Job, lease: Lease) -> Verdict:
    """Import the rows that are left, or find that it has been done."""
    with services.database.connection() as connection:
        found = people_batch.read_import(connection, id_in(job, "import_id"))
    if found is None or found.state == "done":
        return Complete()
    table = people_batch.table_of(found)
    line, ends = found.next_line, None
    left = (row for row in rows_of(table) if row.line >= found.next_line)
    for batch in itertools.batched(left, BATCH_ROWS, strict=False):
        if ends is None:
            ends = time.monotonic() + STEP_SECONDS
        elif lease.is_stopping() or time.monotonic() > ends:
            return Continue()
        with lease.transaction() as connection:
            line = people_batch.write_batch(
                connection, table, batch, import_id=found.id, this_line=line, dry_run=found.dry_run
            )
    return Complete([people_batch.finish(found.id)])


def on_bury(services: Services, job: Job, failure: Failure) -> Sequence[Write]:
    """Say on the import why it stopped."""
    del services
    return [people_batch.fail(id_in(job, "import_id"), f"{failure.error_class}: {failure.text}")]
