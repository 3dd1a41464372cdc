"""One conversation, one at a time: messages, workers of all kinds, rescuers and people race on twenty conversations.

Workers fail, reuse their drafts, bury, crash (write nothing) and freeze beyond a lease of 60 ms. At the end nothing is left open,
nothing was answered twice, every late write was refused, and no message's insert ran into a deadlock.
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self
from uuid import uuid4

import psycopg
import pytest

from shared.conversation import inbound, thread
from shared.db.pool import LENT_SECONDS, POOL_WAIT_SECONDS, Conn, Database
from shared.errors import Failure, FailureKind, LeaseLost
from shared.jobs.autoreply import COVER_BURIED
from shared.queue import replay, store
from shared.queue.closing import cancel
from shared.queue.job import Complete, Job, JobType, Lease, Write
from shared.queue.outcome import Outcomes
from tests.fakes.bare_reply import COVER, GIVE_UP, SAVE_DRAFT, TO_SENDING, TO_SENT
from tests.fakes.eventually import eventually
from tests.fakes.lent import Lent
from tests.fakes.world import World

SECONDS = 5.0
CONVERSATIONS = [f"+316000001{n:02}" for n in range(20)]
INSERTERS, WORKERS = 6, 4
LEASE_SECONDS = 0.06
TYPES = ["autoreply"]
TABLES = ("conversations", "messages", "ai_jobs", "job_attempts", "job_types")
RARE = (
    "refused late",
    "rescued",
    "retry",
    "bury",
    "freeze",
    "restarted",
    "joined",
    "cancelled",
)  # all must have happened
FLAKY = Failure(FailureKind.TRANSIENT, "flaky", "the other side is tired")
REFUSED = Failure(FailureKind.PERMANENT, "refused", "never")
WAITING = Failure(FailureKind.TRANSIENT, "waiting", "not yet")

DRAFTED = "SELECT FROM messages WHERE reply_id = %(id)s"
SET_LANGUAGE = "UPDATE conversations SET language = 'nl' WHERE id = %(conversation_id)s"
FLAG = """
    UPDATE conversations SET needs_person_since = now(), needs_person_reason = 'refused' WHERE id = %(conversation_id)s
"""
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
)
NOT_ANSWERED = """
    SELECT m.id, m.answered_by, j.status FROM messages m LEFT JOIN ai_jobs j ON j.id = m.answered_by
    WHERE NOT m.from_self AND NOT EXISTS (
        SELECT FROM messages r WHERE r.reply_id = m.answered_by AND r.status = 'sent')
"""
TWO_AT_ONCE = """
    SELECT conversation_id FROM ai_jobs WHERE status = 'processing' GROUP BY conversation_id HAVING count(*) > 1
"""
OPEN = "SELECT count(*) FROM messages WHERE NOT from_self AND answered_by IS NULL"
DEAD = "SELECT id FROM dead_letters ORDER BY random() LIMIT %(size)s"
PENDING = "SELECT id FROM ai_jobs WHERE status = 'pending' ORDER BY random() LIMIT 1"


class Holding(Database):
    """Lends its connections in a transaction that stays open for a while after what was done in it."""

    def __init__(self, url: str, size: int, counts: Counter[str]) -> None:
        super().__init__(url, size)
        self._counts = counts

    @contextlib.contextmanager
    def connection(self, *, wait: float = POOL_WAIT_SECONDS, deadline: float = LENT_SECONDS) -> Iterator[Conn]:
        del wait, deadline  # a slow machine is no deadlock
        try:
            with super().connection(wait=LENT_SECONDS) as connection, connection.transaction():
                yield connection
                time.sleep(random.choice([0.0, 0.0, 0.002, 0.02]))
        except psycopg.Error as error:
            self._counts[f"inbound {error.sqlstate}"] += 1
            raise


class Race:
    """The moves of everybody who takes part; each thread draws from a chance of its own."""

    def __init__(self, database: Database, counts: Counter[str]) -> None:
        self.database = database
        self.counts = counts
        self.ends = threading.Event()

    def until_the_end(self, move: Callable[[random.Random], None], seed: int) -> None:
        chance = random.Random(seed)
        while not self.ends.is_set():
            move(chance)

    def pause(self, seconds: float) -> None:
        self.ends.wait(seconds)

    def freeze(self, chance: random.Random) -> None:
        """Some stand still for less than a lease, some for longer."""
        time.sleep(chance.uniform(0.02, 0.15))

    # Employees

    def write(self, database: Database, chance: random.Random) -> None:
        sid = f"SM{uuid4().hex}"
        said = inbound.Inbound(sid, chance.choice(CONVERSATIONS), None, None, "hoeveel verlof heb ik?", [], None, {})
        assert inbound.store(database, said, settle_seconds=0.0, default_language="nl").is_new
        self.counts["stored"] += 1

    # Workers

    def work(self, chance: random.Random) -> None:
        with self.database.connection() as connection:
            jobs = store.claim(connection, chance.randint(1, 3), TYPES, LEASE_SECONDS)
        if not jobs:
            self.pause(0.005)
        for job in jobs:
            try:
                self.run(job, chance)
            except LeaseLost:
                self.counts["refused late"] += 1

    def run(self, job: Job, chance: random.Random) -> None:
        """As an autoreply goes: read and draft, or reuse the draft; and what can happen in between."""
        what = chance.choices(
            ["done", "retry", "bury", "snooze", "crash", "crash after the draft", "freeze", "freeze before the draft"],
            [8, 3, 1, 1, 1, 1, 2, 1],
        )[0]
        if what == "crash":
            return
        if what == "freeze before the draft":
            self.freeze(chance)
        drafted = self.draft(job, saves=what != "retry" or chance.random() < 0.5)
        if what == "crash after the draft":
            return
        if what == "freeze":
            self.freeze(chance)
        with self.database.transaction() as connection:
            match what:
                case "retry" if job.attempts < job.max_attempts:
                    store.requeue_with_backoff(connection, job, FLAKY, chance.choice([0.0, 0.01]))
                case "snooze":
                    store.snooze(connection, job, WAITING, 0.005)
                case "bury" | "retry":
                    store.mark_failed(connection, job, REFUSED, on_bury(job, REFUSED))
                case _ if drafted:
                    key = {"id": job.id}
                    store.mark_done(connection, job, [Write(TO_SENDING, key), Write(TO_SENT, key)])
                case _:
                    store.mark_done(connection, job)
        self.counts[what] += 1

    def draft(self, job: Job, *, saves: bool) -> bool:
        """Whether the job has a draft; one that has does not read again, and one that reads covers all that is open."""
        key = {"id": job.id, "conversation_id": job.conversation_id}
        with Lease(self.database, job, LEASE_SECONDS).transaction() as connection:
            if connection.execute(DRAFTED, key).rowcount:
                return True
            assert job.conversation_id is not None
            found = thread.read(connection, job, job.conversation_id)
        if not found.open or not saves:
            return False
        with Lease(self.database, job, LEASE_SECONDS).transaction() as connection:
            covered = connection.execute(COVER, key | {"ids": [message.id for message in found.open]}).rowcount
            if covered:
                connection.execute(SAVE_DRAFT, key)
                connection.execute(SET_LANGUAGE, key)
            return covered > 0

    # Rescuers and people

    def rescue(self, chance: random.Random) -> None:
        with self.database.connection() as connection:
            self.counts["rescued"] += store.rescue(connection)
            self.counts["two at once"] += connection.execute(TWO_AT_ONCE).rowcount
            poisoned = store.poisoned(connection, TYPES)
        if chance.random() < 0.5:
            self.pause(0.02)  # what it has seen may move on
        types = {name: JobType(name, lambda job, lease: Complete(), on_bury=on_bury) for name in TYPES}
        outcomes = Outcomes(self.database, types, lambda seconds: None, LEASE_SECONDS, threading.Event())
        for job in poisoned:
            outcomes.bury_poisoned(job)
        self.pause(0.01)

    def restart(self, chance: random.Random) -> None:
        with self.database.connection() as connection:
            dead = [job for (job,) in connection.execute(DEAD, {"size": chance.randint(1, 4)})]
            self.counts.update(replay.restart(connection, dead, who="anna").values())
        self.pause(0.02)

    def cancel_one(self, chance: random.Random) -> None:
        with self.database.connection() as connection:
            waiting = [job for (job,) in connection.execute(PENDING)]
            self.counts.update(cancel(connection, waiting, who="anna").values())
        self.pause(chance.uniform(0.1, 0.3))


def on_bury(job: Job, failure: Failure) -> Sequence[Write]:
    """What an autoreply's burial writes, the conversation's flag included, without the apology."""
    del failure
    key = {"id": job.id, "job_id": job.id, "conversation_id": job.conversation_id}
    return (Write(COVER_BURIED, key), Write(GIVE_UP, key), Write(FLAG, key))


@pytest.fixture
def world(database: Database) -> World:
    found = World(database)
    # Pages are compared: no vacuum may come in between, and each row has room beside it for its next version, which else is or is
    # not written into all indexes anew, by chance.
    for table in TABLES:
        found.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false, fillfactor = 50)")
    found.execute("TRUNCATE message_events, suggestions, messages, job_attempts, ai_jobs, conversations CASCADE")
    return found


def test_no_message_is_lost_and_none_answered_twice_whoever_races(world: World, database_url: str) -> None:
    counts: Counter[str] = Counter()
    deadlocks, sessions = world.value(DEADLOCKS), world.value(SESSIONS)
    with (
        contextlib.closing(Database(database_url, 16)) as database,
        contextlib.closing(Holding(database_url, INSERTERS, counts)) as holding,
    ):
        race = Race(database, counts)
        moves: list[Callable[[random.Random], None]] = [
            *[partial(race.write, holding)] * INSERTERS, *[race.work] * WORKERS,
            race.rescue, race.rescue, race.restart, race.cancel_one,
        ]  # fmt: skip
        with ThreadPoolExecutor(len(moves)) as pool:
            running = [pool.submit(race.until_the_end, move, seed) for seed, move in enumerate(moves)]
            race.ends.wait(SECONDS)
            with contextlib.suppress(AssertionError):  # a slow machine takes longer to meet everything; told below
                eventually(lambda: all(counts[rare] for rare in RARE), 40)
            race.ends.set()
            for mover in running:
                mover.result()

    finish(world)
    told = dict(counts)
    assert world.value("SELECT count(*) FROM messages WHERE NOT from_self") == counts["stored"] > 0, told
    assert world.value(OPEN) == 0, told
    for message, answered_by, status in world.rows(NOT_ANSWERED):
        assert status == "failed", (message, answered_by, told)  # a dead letter, or cancelled: there to be seen
    # One reply each, sent once, and only by a job that is done.
    assert (
        world.rows(
            "SELECT r.id FROM messages r JOIN ai_jobs j ON j.id = r.reply_id"
            " WHERE (r.status = 'sent') <> (j.status = 'done') OR r.send_attempt > 1"
        )
        == []
    )
    # Each claim ended once: in order, none twice, none left out.
    assert (
        world.rows(
            "SELECT j.id FROM ai_jobs j JOIN job_attempts a ON a.job_id = j.id AND a.run = j.run"
            " GROUP BY j.id HAVING count(*) <> j.claims OR max(a.claim) <> j.claims"
        )
        == []
    )
    assert world.value("SELECT count(*) FROM job_attempts WHERE outcome = 'done'") == world.value(
        "SELECT count(*) FROM ai_jobs WHERE status = 'done'"
    )
    assert not [name for name in counts if name.startswith("inbound ")], told
    assert counts["two at once"] == 0, told
    eventually(lambda: world.value(SESSIONS) <= sessions)  # each has reported what it met
    assert world.value(DEADLOCKS) == deadlocks, told
    for rare in RARE:
        assert counts[rare] > 0, told


def finish(world: World) -> None:
    """Nobody disturbs any more: what is left is read, answered and done."""
    race = Race(world.database, Counter())
    chance = random.Random(1)

    def nothing_is_left() -> bool:
        race.rescue(chance)
        with world.database.connection() as connection:
            jobs = store.claim(connection, 20, TYPES, 30)
        for job in jobs:
            drafted = race.draft(job, saves=True)
            key = {"id": job.id}
            with world.database.transaction() as connection:
                store.mark_done(connection, job, [Write(TO_SENDING, key), Write(TO_SENT, key)] if drafted else ())
        return bool(world.value("SELECT count(*) = 0 FROM ai_jobs WHERE status IN ('pending', 'processing')"))

    eventually(nothing_is_left, what="the end of all jobs")


# One long conversation

HOT, QUIET, OTHERS = "+31600000200", "+31600000201", [f"+3161{n:07}" for n in range(1000)]
ADD_OTHERS = "INSERT INTO conversations (address, language) SELECT unnest(%(addresses)s::text[]), 'nl'"
FILL = """
    INSERT INTO messages (id, conversation_id, from_self, source, body, status, provider_sid, answered_by, reply_id, part, parts)
    SELECT made, c.id, ours, CASE WHEN ours THEN 'ai' ELSE 'contact' END, repeat('tekst ', 20),
        CASE WHEN ours THEN 'read' ELSE 'received' END, 'SM' || made, CASE WHEN NOT ours THEN made END,
        CASE WHEN ours THEN made END, CASE WHEN ours THEN 1 END, CASE WHEN ours THEN 1 END
    FROM conversations c CROSS JOIN generate_series(1, 10000 / cardinality(%(addresses)s::text[])) AS n
    CROSS JOIN LATERAL (SELECT md5(c.address || n)::uuid AS made, mod(n, 2) = 0 AS ours) AS of
    WHERE c.address = ANY (%(addresses)s) ORDER BY n
"""
FILL_JOBS = """
    INSERT INTO ai_jobs (payload, conversation_id, status, run_started_at)
    SELECT jsonb_build_object('type', 'autoreply', 'conversation_id', conversation_id), conversation_id, 'done', now()
    FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE c.address = ANY (%(addresses)s) AND NOT from_self
"""

A_FEW_PAGES = 30


class Counting(psycopg.Cursor[Any]):
    """Has each statement explained first, in a savepoint that is rolled back, and adds up the pages of 8 kB that it touches."""

    pages = 0
    plans = ""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        with self.connection.transaction(force_rollback=True):
            lines = psycopg.Cursor(self.connection).execute(b"EXPLAIN (ANALYZE, BUFFERS) " + query.encode(), params)
            plan = "\n".join(str(line) for (line,) in lines)
        touched = re.search(r"Buffers: ([^\n]*)", plan)
        Counting.pages += sum(int(n) for n in re.findall(r"(?:hit|read)=(\d+)", touched[1])) if touched else 0
        Counting.plans += plan
        return super().execute(query, params, **options)


def pages_of_an_answer(connection: Conn, address: str) -> dict[str, int]:
    """The pages that each step of an answer touches, from the message that comes in to the completion."""
    touched: dict[str, int] = {}

    def counted[T](name: str, step: Callable[[], T]) -> T:
        Counting.pages = 0
        with connection.transaction():
            result = step()
        touched[name] = Counting.pages
        return result

    said = inbound.Inbound(f"SM{uuid4().hex}", address, None, None, "hoeveel verlof heb ik?", [], None, {})
    counted("message", lambda: inbound.store(Lent(connection), said, settle_seconds=0.0, default_language="nl"))
    (job,) = counted("claim", lambda: store.claim(connection, 1, TYPES, 30))
    assert job.conversation_id is not None
    conversation = job.conversation_id
    (read,) = counted("reading", lambda: thread.read(connection, job, conversation)).open
    covers = Write(COVER, {"id": job.id, "ids": [read.id]})
    counted("completion", lambda: store.mark_done(connection, job, [covers]))
    return touched


def fill(world: World, addresses: Sequence[str]) -> None:
    """Ten thousand messages of these conversations together, half of them answers; the tables are tidy afterwards."""
    with contextlib.closing(world.database.dedicated()) as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute(FILL, {"addresses": list(addresses)})
        connection.execute(FILL_JOBS, {"addresses": list(addresses)})
        for table in TABLES:
            connection.execute(f"VACUUM (ANALYZE) {table}".encode())


def pages_at_rest(connection: Conn, address: str) -> dict[str, int]:
    """The second of two answers: what a session reads once is warm by then."""
    pages_of_an_answer(connection, address)
    Counting.plans = ""
    return pages_of_an_answer(connection, address)


def test_a_conversation_of_ten_thousand_messages_slows_no_other(world: World) -> None:
    """The same ten thousand in a thousand conversations and in one: another conversation reads as many pages beside either."""
    with contextlib.closing(world.database.dedicated()) as connection:
        connection.cursor_factory = Counting
        for address in (HOT, QUIET):
            pages_of_an_answer(connection, address)  # both exist
        world.execute(ADD_OTHERS, addresses=OTHERS)
        fill(world, OTHERS)
        spread = pages_at_rest(connection, QUIET)
        fill(world, [HOT])
        beside = pages_at_rest(connection, QUIET)
        assert "Seq Scan on messages" not in Counting.plans
        hot = pages_at_rest(connection, HOT)
    # The long thread itself would be hundreds of pages. Only its reading knows how long it is.
    for step, pages in spread.items():
        assert beside[step] <= pages + A_FEW_PAGES, (spread, beside)
        assert step == "reading" or hot[step] <= pages + A_FEW_PAGES, (spread, hot)
