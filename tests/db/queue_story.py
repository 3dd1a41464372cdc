"""The queue's model as a story: what its moves do to rows and model at once, and how the two are held together."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
)
from psycopg.rows import dict_row

from shared.conversation import inbound, thread
from shared.db.pool import Conn
from shared.errors import Failure, FailureKind, LeaseLost
from shared.jobs.autoreply import COVER_BURIED
from shared.queue import store
from shared.queue.job import Complete, Job, JobType, Lease, Write
from shared.queue.outcome import Outcomes
from tests.db.queue_model import AUTOREPLY, LEASE_SECONDS, Model, ModelJob
from tests.fakes.bare_reply import COVER, GIVE_UP, SAVE_DRAFT, TO_SENDING, TO_SENT
from tests.fakes.lent import Lent

REFUSED = Failure(FailureKind.PERMANENT, "refused", "never")
FLAKY = Failure(FailureKind.TRANSIENT, "flaky", "the other side is tired")
JUMP = """
    UPDATE ai_jobs SET next_run_at = next_run_at - by, lease_until = lease_until - by, run_started_at = run_started_at - by,
        claimed_at = claimed_at - by, created_at = created_at - by, updated_at = updated_at - by
    FROM make_interval(secs => %(by)s) AS by
"""
JUMP_TYPES = "UPDATE job_types SET resting_until = resting_until - make_interval(secs => %(by)s)"
JOBS = """
    SELECT j.id, j.type, c.address, j.status, j.attempts, j.max_attempts, j.claims, j.run, j.lease_token AS token, j.rerun,
        j.has_crashed, j.error_class, j.closed_reason, j.next_run_at > now() AS waits,
        coalesce(j.lease_until < now(), false) AS is_expired,
        rank() OVER (PARTITION BY j.type, j.status ORDER BY j.next_run_at, j.seq) AS place
    FROM ai_jobs j LEFT JOIN conversations c ON c.id = j.conversation_id ORDER BY j.seq
"""
# What a row may become, in one step of ours, beside staying as it is.
LEGAL = {
    "pending": {"processing", "closed"},
    "processing": {"pending", "done", "failed"},
    "failed": {"pending", "closed"},
    "done": set(),
    "closed": set(),
}

numbers = itertools.count(1)


def on_bury(job: Job, failure: Failure) -> Sequence[Write]:
    """What an autoreply's burial leaves behind, without the apology."""
    if job.type != AUTOREPLY:
        return ()
    covers = Write(COVER_BURIED, {"job_id": job.id, "conversation_id": job.conversation_id})
    return (covers, Write(GIVE_UP, {"id": job.id}))


class QueueStory(RuleBasedStateMachine):
    """Some connections, the rows, the model, and every claim that was ever made: workers keep their tokens for ever."""

    def __init__(self, lent: Sequence[Conn]) -> None:
        super().__init__()
        self.number = next(numbers)
        self.lent = lent
        self.types = [f"model_{self.number}_a", f"model_{self.number}_b", AUTOREPLY]
        self.model = Model(self.types)
        self.claims: list[Job] = []  # ever made, the newest last
        self.poisoned: list[Job] = []  # seen by a rescuer, and perhaps settled by another since
        self.seen: dict[UUID, str] = {}
        self.agreed_at = 0
        for connection in lent:
            # The claim draws between types: a story told again must be the same.
            connection.execute("SELECT setseed(0.5)")
        for job_type in self.types[:2]:
            lent[0].execute("INSERT INTO job_types (type) VALUES (%(type)s)", {"type": job_type})

    def begin(self) -> None:
        self.model.step += 1

    def bind(self) -> list[dict[str, Any]]:
        """The rows of all jobs; those that the model has not seen yet are its newest, in their order."""
        with self.lent[0].cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(JOBS).fetchall()
        assert len(rows) == len(self.model.jobs)
        for row, job in zip(rows, self.model.jobs, strict=True):
            job.id = job.id or row["id"]
        return rows

    def address(self, place: int) -> str:
        return f"+3161{self.number:06}{place}"

    def held(self) -> list[Job]:
        return [job for job in self.claims if self.model.holder(job.lease_token)]

    def reading(self) -> list[Job]:
        """Autoreplies in hand that have no draft yet."""
        return [job for job in self.held() if job.type == AUTOREPLY and not self.model.of(job.id).draft]

    def late(self) -> list[Job]:
        return [job for job in self.claims if not self.model.holder(job.lease_token)]

    def pick(self, index: int) -> Job:
        found = self.held()
        return found[-1 - index % len(found)]

    def pick_late(self, index: int) -> Job:
        """Mostly one whose job another worker has now: that is where a late write would do harm."""
        taken_over = [job for job in self.late() if self.model.of(job.id).status == "processing"] if index % 4 else []
        found = taken_over or self.late()
        return found[-1 - index % len(found)]

    def any_job(self, index: int, likely: Callable[[ModelJob], bool]) -> ModelJob:
        """One to which it can be done, four times out of five."""
        found = [job for job in self.model.jobs if likely(job)] if index % 5 else []
        return (found or self.model.jobs)[-1 - index % len(found or self.model.jobs)]

    def says(self, connection: Conn, sid: str, place: int, settle: float) -> None:
        address = self.address(place)
        said = inbound.Inbound(sid, address, None, None, "hoeveel verlof heb ik?", [], None, {})
        stored = inbound.store(Lent(connection), said, settle_seconds=settle, default_language="nl")
        assert stored.is_new == self.model.inbound(sid, address, settle)

    def take(
        self,
        connection: Conn,
        size: int,
        types: list[str],
        *,
        passed_by: Sequence[ModelJob] = (),
        seen: Counter[str] | None = None,
        done: Sequence[Job] = (),
        finished: dict[UUID, bool] | None = None,
    ) -> Sequence[Job]:
        """Claim, and compare with what may be taken: of each type the first in order, in all as many as there is room for."""
        turn = store.turn(connection, done, size, types, LEASE_SECONDS)
        assert turn.finished == (finished or {})
        self.bind()
        may = self.model.claimable(types, passed_by, seen) if size else {}
        found = turn.claimed
        assert len(found) == min(size, sum(len(jobs) for jobs in may.values()))
        taken = [self.model.of(job.id) for job in found]
        assert taken == sorted(taken, key=lambda job: job.place)
        for job_type, jobs in may.items():
            mine = [job for job in taken if job.type == job_type]
            assert mine == jobs[: len(mine)]
        for job, row in zip(taken, found, strict=True):
            self.model.claimed(job, row.lease_token)
            assert (row.attempts, row.claims, row.run) == (job.attempts, job.claims, job.run)
        self.claims += found
        return found

    def draft(self, connection: Conn, job: Job, *, saves: bool) -> None:
        assert job.conversation_id is not None
        with Lease(Lent(connection), job, LEASE_SECONDS).transaction() as fenced:
            found = thread.read(fenced, job, job.conversation_id)
            holder = self.model.of(job.id)
            expected = self.model.read(holder)
            assert [message.provider_sid for message in found.open] == [message.sid for message in expected]
            if saves and expected:
                key = {"id": job.id, "conversation_id": job.conversation_id}
                fenced.execute(COVER, key | {"ids": [message.id for message in found.open]})
                fenced.execute(SAVE_DRAFT, key)
                self.model.drafted(holder, expected)

    def do_complete(self, connection: Conn, job: Job) -> None:
        """As an autoreply does: what has no draft reads and makes one first, and with the completion it is sent."""
        holder = self.model.of(job.id)
        if job.type == AUTOREPLY and not holder.draft:
            self.draft(connection, job, saves=True)
        writes = [Write(TO_SENDING, {"id": job.id}), Write(TO_SENT, {"id": job.id})] if holder.draft else []
        with connection.transaction():
            assert store.mark_done(connection, job, writes) is holder.rerun
        self.model.completed(holder)

    def do_bury(self, connection: Conn, job: Job) -> None:
        holder = self.model.of(job.id)
        with connection.transaction():
            assert store.mark_failed(connection, job, REFUSED, on_bury(job, REFUSED)) is holder.rerun
        self.model.buried(holder, "refused")

    def do_bury_poisoned(self, connection: Conn, job: Job) -> None:
        types = {name: JobType(name, lambda job, lease: Complete(), on_bury=on_bury) for name in self.types}
        outcomes = Outcomes(Lent(connection), types, lambda seconds: None, LEASE_SECONDS, threading.Event())
        holder = self.model.holder(job.lease_token)
        outcomes.bury_poisoned(job)
        if holder in self.model.expired():
            assert holder is not None
            self.model.buried(holder, "poison", "crashed")

    def refused(self, move: Callable[[], object], connection: Conn | None = None) -> None:
        begun = connection.transaction() if connection else contextlib.nullcontext()
        with pytest.raises(LeaseLost), begun:
            move()

    def write_late(self, connection: Conn, job: Job) -> None:
        """Everything that a worker can write, by one that no longer has the job."""
        write = Write("UPDATE ai_jobs SET max_attempts = 99 WHERE id = %(id)s", {"id": job.id})
        moves: list[Callable[[], object]] = [
            lambda: store.mark_done(connection, job),
            lambda: store.mark_done(connection, job, [write]),
            lambda: store.mark_failed(connection, job, REFUSED, on_bury(job, REFUSED)),
            lambda: store.requeue_with_backoff(connection, job, FLAKY, 1),
            lambda: store.continue_job(connection, job, [write]),
            lambda: store.give_back(connection, job),
            lambda: Lease(Lent(connection), job, LEASE_SECONDS).insist(write),
        ]
        for move in moves:
            self.refused(move, connection)
        assert store.renew(connection, {job.id: job.lease_token}, LEASE_SECONDS) == 0
        assert store.turn(connection, [job], 0, self.types, LEASE_SECONDS).finished == {}
        self.do_bury_poisoned(connection, job)

    def pass_time(self, seconds: float) -> None:
        with self.lent[0].transaction():
            self.lent[0].execute("SET LOCAL session_replication_role = replica")
            self.lent[0].execute(JUMP, {"by": seconds})
            self.lent[0].execute(JUMP_TYPES, {"by": seconds})
        self.model.now += seconds

    def moved(self, job_id: UUID, state: str) -> None:
        before = self.seen.get(job_id, state)
        assert state == before or state in LEGAL[before], f"{before} → {state}"
        self.seen[job_id] = state
