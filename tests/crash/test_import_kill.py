"""An import of 20,000 people whose worker is killed with SIGKILL: it goes on, and nobody is there twice or by half."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from shared.db.pool import Database
from tests.fakes.eventually import eventually
from tests.fakes.people import RECORD_JOBS, counts, found, imported, many, start
from tests.fakes.world import World

REPOSITORY = Path(__file__).resolve().parents[2]
ROWS = 20_000
WORKER = """
import sys
import time
from shared.db.pool import Database
from tests.fakes.world import World
World(Database(sys.argv[1], 4), JOB_LEASE_SECONDS="60").app.worker.drain(1, 60)
"""
OUTCOMES = """
    SELECT outcome FROM job_attempts a JOIN ai_jobs j ON j.id = a.job_id WHERE j.type = 'import_people' ORDER BY claim
"""


def test_killed_in_the_middle_it_goes_on_and_writes_each_row_once(database: Database, database_url: str) -> None:
    world = World(database, JOB_LEASE_SECONDS="60")  # none ends by itself on a busy machine
    import_id = start(world, many(ROWS))
    running = subprocess.Popen([sys.executable, "-c", WORKER, database_url], cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: found(world, import_id).rows_done >= 1_000)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait(30)
    world.execute("UPDATE ai_jobs SET lease_until = now() - interval '1 second' WHERE status = 'processing'")
    stopped = found(world, import_id)
    # The progress, the people, their jobs and the report are those of whole batches.
    assert (stopped.state, stopped.rows_done % 500) == ("running", 0)
    assert world.value("SELECT count(*) FROM people") == stopped.rows_done == stopped.added
    assert world.value("SELECT count(*) FROM import_rows") == len(world.rows(RECORD_JOBS)) == stopped.rows_done
    # Nothing else runs while the import is rescued and goes on.
    world.execute("UPDATE ai_jobs SET next_run_at = now() + interval '1 hour' WHERE status = 'pending'")
    # All 20,000 take 2.5 s on two quiet cores.
    eventually(lambda: (world.app.worker.poll_once(1), found(world, import_id).state)[1] == "done", 80)
    assert counts(found(world, import_id)) == {"added": ROWS}
    expected = [(f"Mens {n}", f"+316{n + 10000000}", f"W{n}", {"verlof": f"{n} uur"}) for n in range(ROWS)]
    assert world.rows("SELECT name, phone, external_id, attributes FROM people ORDER BY phone") == expected
    jobs = [job for job, _ in world.rows(RECORD_JOBS)]
    assert len(jobs) == len(set(jobs)) == ROWS
    assert world.rows("SELECT count(*), min(line), max(line) FROM import_rows") == [(ROWS, 2, ROWS + 1)]
    outcomes = [outcome for (outcome,) in world.rows(OUTCOMES)]
    assert (outcomes[0], outcomes[-1], outcomes.count("crashed")) == ("crashed", "done", 1)
    # Beside 20,000 jobs that wait, a batch is still far from the limit of a statement.
    assert imported(world, many(1_000, hours="uren")) == {"changed": 1_000}
    assert len(world.rows(RECORD_JOBS)) == ROWS
