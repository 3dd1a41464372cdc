"""The queue against a small model of it: whatever is done in whatever order, on several connections, rows and model agree.

MODEL_EXAMPLES=2000 in the environment tries as many stories, drawn anew each time; without it, a few that are always the same.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shared.db.pool import Conn, Database
from shared.errors import Failure, FailureKind
from shared.queue import closing, replay, store
from tests.db.queue_model import AUTOREPLY, LEASE_SECONDS, ModelJob
from tests.db.queue_story import FLAKY, QueueStory

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "0"))
SETTINGS = settings(
    max_examples=EXAMPLES or 50,
    stateful_step_count=50 if EXAMPLES else 40,
    derandomize=not EXAMPLES,
    phases=[Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate],  # to shrink a story takes minutes
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
CONNECTIONS = 3
REST_SECONDS = 70.0
AGE_LIMIT = 200.0
WAITING = Failure(FailureKind.TRANSIENT, "waiting", "not yet")
COLUMNS = (
    "id", "type", "address", "status", "attempts", "max_attempts", "claims", "run", "token", "rerun", "has_crashed",
    "error_class", "closed_reason",
)  # fmt: skip
ATTEMPTS = "SELECT job_id, run, claim, outcome FROM job_attempts ORDER BY run, claim"
INBOUND = "SELECT provider_sid, answered_by, prompted_by FROM messages WHERE NOT from_self ORDER BY seq"
REPLIES = "SELECT reply_id, status FROM messages WHERE from_self"
SET_TRIES = "UPDATE ai_jobs SET max_attempts = %(tries)s WHERE id = %(id)s"
CONFIGURE = "UPDATE job_types SET paused = %(paused)s, max_running = %(most)s WHERE type = %(type)s"
CLEAN = (
    "DELETE FROM message_events", "DELETE FROM messages", "DELETE FROM ai_jobs", "DELETE FROM conversations",
    "DELETE FROM job_types WHERE type LIKE 'model\\_%'",
    "UPDATE job_types SET paused = false, max_running = NULL, failures_in_row = 0, resting_until = NULL, resting_reason = NULL",
)  # fmt: skip

which = st.integers(min_value=0, max_value=2**16)
connections = st.integers(min_value=0, max_value=CONNECTIONS - 1)
seconds = st.sampled_from([0.0, 10.0, 100.0, 1000.0])
seldom = st.sampled_from([False] * 5 + [True])
kinds = st.sampled_from([(0, 1, 2), (0,), (1,), (2,), (0, 1), (0, 1, 2)])


class QueueMachine(QueueStory):
    """Operations of the store and of people, each on one of several connections."""

    # What comes in

    @rule(on=connections, kind=st.integers(0, 1), delay=seconds, tries=st.sampled_from([2, 2, 1, 3]))
    def enqueue(self, on: int, kind: int, delay: float, tries: int) -> None:
        self.begin()
        job_id = store.enqueue(self.lent[on], {"type": self.types[kind]}, delay_seconds=delay)
        self.lent[on].execute(SET_TRIES, {"id": job_id, "tries": tries})
        self.model.enqueue(self.types[kind], delay, job_id=job_id, tries=tries)

    @rule(on=connections, place=st.integers(0, 1), settle=st.sampled_from([0.0, 45.0]), again=seldom)
    def message(self, on: int, place: int, settle: float, again: bool) -> None:
        """An employee writes; or Twilio tells us again what it has told before."""
        self.begin()
        known = self.model.messages[-1] if again and self.model.messages else None
        sid = known.sid if known else f"SM-{self.number}-{len(self.model.messages)}"
        self.says(self.lent[on], sid, place, settle)

    @rule(place=st.integers(0, 1), size=st.integers(1, 3))
    def claim_while_a_message_comes_in(self, place: int, size: int) -> None:
        """The job that it joins, or makes, is passed by: it is locked, or not there yet, until the message is."""
        self.begin()
        joined, seen = self.model.active(self.address(place)), self.model.due()
        with self.lent[0].transaction():
            self.says(self.lent[0], f"SM-{self.number}-{len(self.model.messages)}", place, 0.0)
            now_active = self.model.active(self.address(place))
            passed_by = [job for job in (joined, now_active) if job]
            self.take(self.lent[1], size, self.types, passed_by=passed_by, seen=seen)

    # What workers do

    @rule(on=connections, size=st.integers(1, 4), chosen=kinds)
    def claim(self, on: int, size: int, chosen: tuple[int, ...]) -> None:
        self.begin()
        self.take(self.lent[on], size, [self.types[kind] for kind in chosen])

    @rule(on=connections, indexes=st.lists(which, min_size=1, max_size=3), size=st.integers(0, 3))
    @precondition(lambda self: self.held())
    def turn(self, on: int, indexes: list[int], size: int) -> None:
        """Complete together what has nothing to write, one of it perhaps too late, and claim with the same statement."""
        self.begin()
        done = {job.lease_token: job for job in map(self.pick_late, indexes[:1] if self.late() else ())}
        for job in map(self.pick, indexes):
            holder = self.model.of(job.id)
            if holder.type != AUTOREPLY or (holder.has_nothing_to_answer and not holder.draft):
                done[job.lease_token] = job
        expected = {}
        for job in done.values():
            if (current := self.model.holder(job.lease_token)) is not None:
                expected[job.lease_token] = current.rerun
                self.model.completed(current)
        self.take(self.lent[on], size, self.types, done=list(done.values()), finished=expected)

    @rule(on=connections, indexes=st.lists(which, min_size=1, max_size=3))
    @precondition(lambda self: self.claims)
    def renew(self, on: int, indexes: list[int]) -> None:
        self.begin()
        held = {job.id: job.lease_token for job in (self.claims[-1 - index % len(self.claims)] for index in indexes)}
        still = [job for token in held.values() if (job := self.model.holder(token))]
        assert store.renew(self.lent[on], held, LEASE_SECONDS) == len(still)
        for job in still:
            self.model.renewed(job)

    @rule(on=connections, index=which, saves=st.booleans())
    @precondition(lambda self: any(job.type == AUTOREPLY for job in self.claims))
    def read(self, on: int, index: int, saves: bool) -> None:
        """Read what is open, and save a draft or leave it there; a job that has its draft does not read."""
        self.begin()
        found = [job for job in self.claims if job.type == AUTOREPLY]
        job = found[-1 - index % len(found)]
        holder = self.model.holder(job.lease_token)
        if holder is None:
            self.refused(lambda: self.draft(self.lent[on], job, saves=saves))
        elif not holder.draft:
            self.draft(self.lent[on], job, saves=saves)

    @rule(on=connections, index=which)
    @precondition(lambda self: self.held())
    def complete(self, on: int, index: int) -> None:
        self.begin()
        self.do_complete(self.lent[on], self.pick(index))

    @rule(on=connections, index=which, seconds=st.sampled_from([10.0, 20.0, 100.0]))
    @precondition(lambda self: self.held())
    def fail(self, on: int, index: int, seconds: float) -> None:
        """A transient failure: another try after a wait, or none if it was the last."""
        self.begin()
        job = self.pick(index)
        holder = self.model.holder(job.lease_token)
        if holder and holder.attempts >= holder.max_attempts:
            self.do_bury(self.lent[on], job)
            return
        with self.lent[on].transaction():
            store.requeue_with_backoff(self.lent[on], job, FLAKY, seconds)
        assert holder
        self.model.put_back(holder, "retry", seconds, error_class="flaky", given_back=False)

    @rule(on=connections, index=which)
    @precondition(lambda self: self.held())
    def bury(self, on: int, index: int) -> None:
        self.begin()
        self.do_bury(self.lent[on], self.pick(index))

    @rule(on=connections, index=which, outcome=st.sampled_from(["snoozed", "continued", "returned"]), seconds=seconds)
    @precondition(lambda self: self.held())
    def put_back(self, on: int, index: int, outcome: str, seconds: float) -> None:
        """Without using an attempt: it waits, it goes on with its next step, or its worker stops."""
        self.begin()
        job = self.pick(index)
        holder = self.model.of(job.id)
        match outcome:
            case "snoozed":
                store.snooze(self.lent[on], job, WAITING, seconds)
                self.model.put_back(holder, outcome, seconds, error_class="waiting")
            case "continued":
                with self.lent[on].transaction():
                    store.continue_job(self.lent[on], job, ())
                self.model.put_back(holder, outcome)
            case _:
                store.give_back(self.lent[on], job)
                self.model.put_back(holder, outcome)

    @rule(on=connections, index=which)
    @precondition(lambda self: self.reading())
    def end_after_a_message_in_between(self, on: int, index: int) -> None:
        """A job reads, another message joins, and the job ends without an answer: that message is the next job's."""
        self.begin()
        found = self.reading()
        job, connection = found[-1 - index % len(found)], self.lent[on]
        holder = self.model.of(job.id)
        self.draft(connection, job, saves=False)
        assert holder.address is not None
        self.says(connection, f"SM-{self.number}-{len(self.model.messages)}", int(holder.address[-1]), 0.0)
        self.agree()
        if holder.has_nothing_to_answer:
            self.model.completed(holder)
            self.take(connection, 0, self.types, done=[job], finished={job.lease_token: True})
        else:
            self.do_bury(connection, job)

    @rule(on=connections, index=which)
    @precondition(lambda self: self.late())
    def come_back_late(self, on: int, index: int) -> None:
        """A worker that was frozen, or whose job was taken care of, wakes up and writes: nothing happens."""
        self.begin()
        self.write_late(self.lent[on], self.pick_late(index))

    @rule(on=connections, chosen=kinds)
    @precondition(lambda self: self.held())
    def take_over(self, on: int, chosen: tuple[int, ...]) -> None:
        """All workers freeze; what they had is rescued and claimed by others. Then they wake up."""
        self.begin()
        self.pass_time(150.0)
        assert store.rescue(self.lent[on]) == len(self.model.rescued())
        self.agree()
        others = self.take(self.lent[on], 4, [self.types[kind] for kind in chosen])
        for late in [job for job in self.late() if any(job.id == other.id for other in others)]:
            self.write_late(self.lent[(on + 1) % CONNECTIONS], late)

    # What rescuers do

    @rule(on=connections)
    @precondition(lambda self: self.model.expired())
    def rescue(self, on: int) -> None:
        self.begin()
        assert store.rescue(self.lent[on]) == len(self.model.rescued())

    @rule(on=connections, wakes=st.booleans())
    @precondition(lambda self: self.held())
    def keep_crashing(self, on: int, wakes: bool) -> None:
        """Every worker dies with what it has, again and again, and a rescuer looks for what has used up its tries by that.

        One that was only frozen, wakes up after the look and renews its lease, keeps its job.
        """
        for _ in range(2):
            self.begin()
            self.pass_time(150.0)
            assert store.rescue(self.lent[on]) == len(self.model.rescued())
            self.agree()
            self.take(self.lent[on], 4, self.types)
            self.agree()
        self.begin()
        self.pass_time(150.0)
        found = store.poisoned(self.lent[on], self.types)
        assert {job.id for job in found} == {j.id for j in self.model.expired() if j.attempts >= j.max_attempts}
        self.poisoned += found
        if wakes and found:
            assert store.renew(self.lent[on], {j.id: j.lease_token for j in found}, LEASE_SECONDS) == len(found)
            for job in found:
                self.model.renewed(self.model.of(job.id))
                self.do_bury_poisoned(self.lent[on], job)

    @rule(on=connections, index=which)
    @precondition(lambda self: self.poisoned)
    def bury_poisoned(self, on: int, index: int) -> None:
        """What was seen may have moved on: another rescuer buried it, or its worker renewed or finished it after all."""
        self.begin()
        self.do_bury_poisoned(self.lent[on], self.poisoned[-1 - index % len(self.poisoned)])

    @rule(on=connections, kind=st.integers(0, 2))
    @precondition(lambda self: self.model.step % 3 == 0)
    def rest(self, on: int, kind: int) -> None:
        """The model is away: the type gives one job at a time, to see whether it is back."""
        self.begin()
        assert store.note_failure(self.lent[on], self.types[kind], "away", limit=1, rest_seconds=REST_SECONDS)
        self.model.rests(self.types[kind], REST_SECONDS)

    @rule(on=connections, kind=st.integers(0, 2), crashes=st.booleans())
    @precondition(lambda self: any(self.model.overaged(name, AGE_LIMIT) for name in self.types))
    def bury_overaged(self, on: int, kind: int, crashes: bool) -> None:
        self.begin()
        overaged = self.model.overaged(self.types[kind], AGE_LIMIT)
        found = store.claim_overaged(self.lent[on], self.types[kind], AGE_LIMIT, LEASE_SECONDS)
        assert {job.id for job in found} == {job.id for job in overaged}
        for job in found:
            self.model.claimed(self.model.of(job.id), job.lease_token, is_attempt=False)
        self.agree()
        for job in found if not crashes else ():
            self.do_bury(self.lent[on], job)

    @rule(seconds=st.sampled_from([60.0, 150.0, 1500.0]))
    def jump(self, seconds: float) -> None:
        self.begin()
        self.pass_time(seconds)

    # What people do

    @rule(on=connections, index=which)
    @precondition(lambda self: any(job.is_dead for job in self.model.jobs))
    def restart(self, on: int, index: int) -> None:
        self.begin()
        job = self.any_job(index, lambda job: job.is_dead)
        assert job.id is not None
        assert replay.restart(self.lent[on], [job.id], who="anna") == {job.id: self.model.restarted(job)}

    @rule(on=connections, index=which, closes=seldom)
    @precondition(lambda self: any(job.status == "pending" for job in self.model.jobs))
    def put_aside(self, on: int, index: int, closes: bool) -> None:
        """Close a dead letter, or cancel what waits."""
        self.begin()
        job = self.any_job(index, lambda job: job.is_dead if closes else job.status == "pending")
        assert job.id is not None
        if closes:
            assert closing.close(self.lent[on], [job.id], who="anna", reason="x") == {
                job.id: self.model.closed(job, "x")
            }
        else:
            assert closing.cancel(self.lent[on], [job.id], who="anna") == {job.id: self.model.cancelled(job)}

    @rule(kind=st.integers(0, 2), paused=seldom, most=st.sampled_from([None, 1, 2]))
    def configure(self, kind: int, paused: bool, most: int | None) -> None:
        """An operator pauses a type, or limits it over all instances."""
        self.begin()
        settings = self.model.types[self.types[kind]]
        settings.paused, settings.max_running = paused, most
        self.lent[0].execute(CONFIGURE, {"type": self.types[kind], "paused": paused, "most": most})

    # What must hold

    @invariant()
    def rows_and_model_agree(self) -> None:
        self.agree()
        self.agreed_at = self.model.step

    def agree(self) -> None:
        """Every row is what the model says; also in the middle of a step that has several."""
        rows = self.bind()
        places: dict[tuple[str, str], list[ModelJob]] = defaultdict(list)
        for job in self.model.jobs:
            places[job.type, job.status].append(job)
        for jobs in places.values():
            jobs.sort(key=lambda job: job.place)
        for row, job in zip(rows, self.model.jobs, strict=True):
            assert {name: row[name] for name in COLUMNS} == {name: getattr(job, name) for name in COLUMNS}
            assert row["is_expired"] == (job in self.model.expired())
            if job.status == "pending":
                assert row["waits"] == (job.due > self.model.moment)
                assert row["place"] == places[job.type, job.status].index(job) + 1
            self.moved(row["id"], "closed" if row["closed_reason"] else row["status"])
            assert 0 <= job.attempts <= job.max_attempts
        attempts: dict[UUID, list[tuple[Any, ...]]] = defaultdict(list)
        for job_id, *attempt in self.lent[1].execute(ATTEMPTS):
            attempts[job_id].append(tuple(attempt))
        assert attempts == {job.id: job.history for job in self.model.jobs if job.history}
        assert self.lent[2].execute(INBOUND).fetchall() == [
            (m.sid, m.answered_by and m.answered_by.id, m.prompted_by and m.prompted_by.id) for m in self.model.messages
        ]
        assert dict(self.lent[2].execute(REPLIES)) == {job.id: job.draft for job in self.model.jobs if job.draft}

    @invariant()
    def no_message_is_left(self) -> None:
        """Each is covered by a job that answers it or a dead letter that shows it, or an active job will read it."""
        for message in self.model.messages:
            if message.answered_by is None:
                active = self.model.active(message.address)
                assert active is not None
                assert active.rerun or not active.draft, "nobody will read it"
        for place in (0, 1):
            active_ones = [j for j in self.model.jobs if j.address == self.address(place) and j.is_active]
            assert len(active_ones) <= 1

    def teardown(self) -> None:
        """The story ends well: everything that is left is done, and every message was answered, or is a dead letter's."""
        try:
            if self.agreed_at == self.model.step:
                self.finish_everything()
        finally:
            with self.lent[0].transaction():
                self.lent[0].execute("SET LOCAL session_replication_role = replica")
                for statement in ("DELETE FROM job_attempts", *CLEAN):
                    self.lent[0].execute(statement.encode())

    def finish_everything(self) -> None:
        for kind in range(3):
            self.configure(kind, paused=False, most=None)
        for _ in range(20):
            self.begin()
            self.pass_time(1500.0)
            store.rescue(self.lent[0])
            self.model.rescued()
            for job in store.poisoned(self.lent[0], self.types):
                self.do_bury_poisoned(self.lent[0], job)
            self.agree()
            taken = self.take(self.lent[0], 50, self.types)
            self.agree()
            for job in taken:
                self.begin()
                self.do_complete(self.lent[0], job)
            self.agree()
            if not any(job.is_active for job in self.model.jobs):
                break
        for job_left in self.model.jobs:
            assert not job_left.is_active
        for message in self.model.messages:
            assert message.answered_by is not None
            assert message.answered_by.status == "failed" or message.answered_by.draft == "sent"


@pytest.fixture
def lent(database: Database) -> Iterator[list[Conn]]:
    found = [database.dedicated() for _ in range(CONNECTIONS)]
    yield found
    for connection in found:
        connection.close()


@pytest.mark.timeout(0 if EXAMPLES else 300)
def test_whatever_is_done_rows_and_model_agree(lent: list[Conn], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="antwoord")  # a story that fails is long enough
    run_state_machine_as_test(partial(QueueMachine, lent), settings=SETTINGS)  # type: ignore[arg-type]
