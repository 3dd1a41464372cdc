"""The receive store against a small model of it: whatever senders, crashes, time and pruning do in whatever order, they agree.

Time is moved in the rows, not on a clock: locks and ages are that much older. RECEIVE_EXAMPLES=2000 in the environment tries as
many stories, drawn anew each time; without it, a few that are always the same.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shared.db.pool import Conn, Database
from shared.idempotency import Completed, Conflict, NewEvent, Receipt, ReceiveStore, Running, Stored, Taken, body_hash
from tests.fakes.senders import Sending

EXAMPLES = int(os.environ.get("RECEIVE_EXAMPLES", "0"))
SETTINGS = settings(
    max_examples=EXAMPLES or 60,
    stateful_step_count=40,
    derandomize=not EXAMPLES,
    phases=[Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate],
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LOCK, KEPT = 60.0, 72 * 3600.0
CONNECTIONS = 2
BODIES = (b'{"n":1}', b'{"n":2}')

JUMP = """
    UPDATE webhook_receipts SET locked_until = locked_until - by, completed_at = completed_at - by
    FROM make_interval(secs => %(by)s) AS by
"""
RECEIPTS = "SELECT key, state, owner, body_sha256, idempotency_key, event_id, status FROM webhook_receipts ORDER BY key"
EVENTS = """
    SELECT e.source_event_id, e.id, e.raw, (SELECT count(*) FROM webhook_deliveries d WHERE d.event_id = e.id),
        (SELECT count(*) FROM webhook_deliveries d JOIN ai_jobs j ON j.id = d.job_id WHERE d.event_id = e.id)
    FROM webhook_events e ORDER BY e.source_event_id
"""


@dataclass(slots=True)
class Row:
    """What the model knows of one key; `left` are the lock's seconds, `age` those since it was completed."""

    body: bytes
    idempotency_key: str | None
    owner: UUID | None
    left: float = LOCK
    age: float = 0.0
    event: UUID | None = None


@dataclass(slots=True)
class Try:
    """One request that is under way, for ever: it may do any of its steps again at any time."""

    receipt: Receipt
    body: bytes
    event: UUID = field(default_factory=uuid4)


class ReceiveMachine(RuleBasedStateMachine):
    """Requests under three ids, their steps in any order, time, and the chore that forgets."""

    def __init__(self, lent: Sequence[Conn], database: Database, source: UUID) -> None:
        super().__init__()
        self.lent, self.database, self.source = lent, database, source
        self.store = ReceiveStore()
        for table in ("webhook_receipts", "webhook_deliveries", "webhook_events", "ai_jobs"):
            lent[0].execute(f"DELETE FROM {table}".encode())
        self.rows: dict[str, Row] = {}
        self.events: dict[str, tuple[UUID, bytes]] = {}
        self.tries: list[Try] = []

    @rule(
        on=st.integers(0, CONNECTIONS - 1), key=st.sampled_from("aab"), body=st.sampled_from((0, 0, 0, 1)),
        idempotency_key=st.sampled_from((None, None, "k-1", "k-2")),
    )  # fmt: skip
    def request(self, on: int, key: str, body: int, idempotency_key: str | None) -> None:
        """A request comes in."""
        self.tries.append(Try(Receipt(self.source, key, body_hash(BODIES[body]), idempotency_key), BODIES[body]))
        self.take(self.tries[-1], on)

    @precondition(lambda self: self.tries)
    @rule(on=st.integers(0, CONNECTIONS - 1), which=st.integers(0, 2**16))
    def take_again(self, on: int, which: int) -> None:
        """The answer to its first statement was lost."""
        self.take(self.tries[which % len(self.tries)], on)

    @precondition(lambda self: self.tries)
    @rule(on=st.integers(0, CONNECTIONS - 1), which=st.integers(0, 2**16))
    def complete(self, on: int, which: int) -> None:
        """Its second transaction, whether it still has the id or not."""
        mine = self.tries[-1 - which % min(len(self.tries), 4)]
        event = NewEvent(mine.event, "a", None, None, "{}", mine.body, None, b"{}")
        assert self.store.complete(self.lent[on], mine.receipt, event) == self.completed(mine)

    @precondition(lambda self: self.tries)
    @rule(on=st.integers(0, CONNECTIONS - 1), which=st.integers(0, 2**16))
    def release(self, on: int, which: int) -> None:
        """It failed, and gives the id back if it has it."""
        mine = self.tries[-1 - which % min(len(self.tries), 4)]
        row = self.rows.get(mine.receipt.key)
        has_it = row is not None and row.owner == mine.receipt.owner
        assert self.store.release(self.lent[on], mine.receipt) == has_it
        if has_it:
            del self.rows[mine.receipt.key]

    # No sum of these ends within ten seconds before a lock's end or an age's, so it does not matter how long a story takes.
    @rule(seconds=st.sampled_from((49.0, 49.0, 49.0, 61.0, 61.0, KEPT - 85.0, KEPT + 61.0)))
    def time_passes(self, seconds: float) -> None:
        self.lent[0].execute(JUMP, {"by": seconds})
        for row in self.rows.values():
            row.left -= seconds
            row.age += seconds

    @rule()
    def prune(self) -> None:
        old = [key for key, row in self.rows.items() if (row.age if row.event else -row.left) > KEPT]
        assert self.store.prune(self.database) == len(old)
        for key in old:
            del self.rows[key]

    @invariant()
    def they_agree(self) -> None:
        rows = self.lent[0].execute(RECEIPTS).fetchall()
        assert [(row[0], row[1], row[2], bytes(row[3]), *row[4:]) for row in rows] == [
            (key, "completed" if row.event else "processing", row.owner, body_hash(row.body), row.idempotency_key,
             row.event, 200 if row.event else None)
            for key, row in sorted(self.rows.items())
        ]  # fmt: skip
        events = self.lent[0].execute(EVENTS).fetchall()
        assert [(row[0], row[1], bytes(row[2]), *row[3:]) for row in events] == [
            (key, event, body, 1, 1) for key, (event, body) in sorted(self.events.items())
        ]

    def take(self, mine: Try, on: int) -> None:
        found, expected = self.store.take(self.lent[on], mine.receipt), self.taken(mine)
        if isinstance(found, Running) and isinstance(expected, Running):  # real seconds pass too
            assert expected.seconds - LOCK / 2 < found.seconds <= expected.seconds
        else:
            assert found == expected

    def taken(self, mine: Try) -> Taken | Running | Completed | Conflict:
        """What the model says to a first transaction."""
        key, given = mine.receipt.key, mine.receipt.idempotency_key
        row = self.rows.get(key)
        if row is None:
            self.rows[key] = Row(mine.body, given, mine.receipt.owner)
            return Taken()
        if row.event is None:
            if row.left > 0 and row.owner != mine.receipt.owner:
                return Running(row.left)
            self.rows[key] = Row(mine.body, given, mine.receipt.owner)  # nothing was stored of whoever had it before
            return Taken()
        if row.body != mine.body or (given and row.idempotency_key and given != row.idempotency_key):
            return Conflict()
        return Completed(200, row.event)

    def completed(self, mine: Try) -> Stored:
        """What the model says to a second transaction."""
        key = mine.receipt.key
        row = self.rows.get(key)
        if row and row.event == mine.event:
            return Stored("stored", mine.event, 1)
        if row is None or row.owner != mine.receipt.owner:
            return Stored("lost", None, 0)
        is_new = key not in self.events
        known, body = self.events.setdefault(key, (mine.event, mine.body))
        if body != mine.body:
            del self.rows[key]
            return Stored("conflict", known, 0)
        row.owner, row.event, row.age = None, known, 0.0
        return Stored("stored", known, 1) if is_new else Stored("known", known, 0)


@pytest.fixture(scope="module")
def source(database: Database) -> UUID:
    world = Sending(database)
    world.add_source()
    world.add_endpoints(["one"])
    found: UUID = world.value("SELECT id FROM webhook_sources")
    return found


def test_the_store_is_its_model(database: Database, source: UUID) -> None:
    with contextlib.ExitStack() as stack:
        lent = [stack.enter_context(contextlib.closing(database.dedicated())) for _ in range(CONNECTIONS)]
        story = partial(ReceiveMachine, lent, database, source)
        run_state_machine_as_test(story, settings=SETTINGS)  # type: ignore[arg-type]
