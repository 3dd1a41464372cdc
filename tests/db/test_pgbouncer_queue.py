"""The queue's tests once more, through PgBouncer in transaction mode."""

from tests.db.test_queue import *  # noqa: F403 - collected here again, with the `database` below
from tests.fakes.pgbouncer import database, pgbouncer_url  # noqa: F401 - fixtures
