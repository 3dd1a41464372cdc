"""A small model of the queue: what its rows must be after each operation, written without its SQL.

Time is a number that only `jump` moves. All waits are such that no jump ends exactly on one, so it never matters how long
the operations themselves take; what is due in the same moment is in the order in which it was done.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

LEASE_SECONDS = 100.0
SETTLE_AT_MOST_SECONDS = 6.0
PROBE_EVERY_SECONDS = 10.0
AUTOREPLY = "autoreply"

type Moment = tuple[float, int]  # when, and the step in which that was decided
type Answer = Literal["restarted", "joined", "not failed", "cancelled", "not pending", "closed"]


@dataclass
class ModelJob:
    """A row of ai_jobs and its attempts; `id` is None until the row has been seen."""

    type: str
    address: str | None
    due: Moment
    started: Moment
    order: int
    id: UUID | None = None
    max_attempts: int = 3
    status: str = "pending"
    attempts: int = 0
    claims: int = 0
    run: int = 1
    token: UUID | None = None
    lease_until: float = 0.0
    rerun: bool = False
    has_crashed: bool = False
    error_class: str | None = None
    closed_reason: str | None = None
    draft: str | None = None  # the state of its reply's message
    has_nothing_to_answer: bool = False  # it has read, in this claim, and nothing was open
    history: list[tuple[int, int, str]] = field(default_factory=list)  # run, claim, outcome

    @property
    def is_active(self) -> bool:
        return self.status in ("pending", "processing")

    @property
    def is_dead(self) -> bool:
        return self.status == "failed" and self.closed_reason is None

    @property
    def is_suspect(self) -> bool:
        """Waiting for its last try, or in it, after a crash: it may be what kills its worker."""
        return self.has_crashed and self.attempts + (self.status == "pending") >= self.max_attempts

    @property
    def place(self) -> tuple[float, int, int]:
        return (*self.due, self.order)

    def end_claim(self, outcome: str) -> None:
        self.history.append((self.run, self.claims, outcome))
        self.token = None


@dataclass
class ModelMessage:
    """An inbound message."""

    sid: str
    address: str
    answered_by: ModelJob | None = None
    prompted_by: ModelJob | None = None


@dataclass
class ModelType:
    """A row of job_types, as operators and outages set it."""

    paused: bool = False
    max_running: int | None = None
    resting_until: float | None = None


class Model:
    """All rows of one example."""

    def __init__(self, types: Iterable[str]) -> None:
        self.now = 0.0
        self.step = 0
        self.types = {name: ModelType() for name in types}
        self.jobs: list[ModelJob] = []
        self.messages: list[ModelMessage] = []
        self._orders = itertools.count()

    @property
    def moment(self) -> Moment:
        return (self.now, self.step)

    def of(self, job_id: UUID) -> ModelJob:
        return next(job for job in self.jobs if job.id == job_id)

    def holder(self, token: UUID) -> ModelJob | None:
        """The job that is claimed with this token, if it still is."""
        return next((job for job in self.jobs if job.token == token), None)

    def open(self, address: str | None) -> list[ModelMessage]:
        return [m for m in self.messages if m.address == address and m.answered_by is None]

    def active(self, address: str) -> ModelJob | None:
        return next((j for j in self.jobs if j.type == AUTOREPLY and j.address == address and j.is_active), None)

    # What comes in

    def enqueue(
        self, job_type: str, delay: float, *, address: str | None = None, job_id: UUID | None = None, tries: int = 3
    ) -> None:
        due, order = (self.now + delay, self.step), next(self._orders)
        self.jobs.append(ModelJob(job_type, address, due, self.moment, order, job_id, max_attempts=tries))

    def inbound(self, sid: str, address: str, settle: float) -> bool:
        """False when the sid is known: then nothing changes."""
        if any(message.sid == sid for message in self.messages):
            return False
        self.messages.append(ModelMessage(sid, address))
        active = self.active(address)
        if active is None:
            self.enqueue(AUTOREPLY, settle, address=address)
            return True
        active.rerun = True
        if active.claims == 0:
            started, step = active.started
            active.due = min((started + SETTLE_AT_MOST_SECONDS, step), (self.now + settle, self.step))
        return True

    # What workers do

    def due(self) -> Counter[str]:
        """How many jobs of each type a claim that begins now finds due."""
        return Counter(job.type for job in self.jobs if job.status == "pending" and job.due <= self.moment)

    def claimable(
        self, types: Iterable[str], passed_by: Sequence[ModelJob], seen: Counter[str] | None = None
    ) -> dict[str, list[ModelJob]]:
        """What a claim may take of each type, in its order; a type whose rest has passed rests on, and gives one.

        `seen` is what is due without what another transaction has not committed: a job that is not there yet is no probe.
        """
        found = self.due() if seen is None else seen
        rooms = {job_type: self._room(job_type, found[job_type]) for job_type in types}
        due = [j for j in self.jobs if j.status == "pending" and j.due <= self.moment and rooms.get(j.type)]
        due = sorted((job for job in due if job not in passed_by), key=lambda job: job.place)
        suspects = [job for job in due if job.is_suspect]
        expired = self.expired()
        if any(job.status == "processing" and job.is_suspect and job not in expired for job in self.jobs):
            suspects = []
        may = [job for job in due if not job.is_suspect or job in suspects[:1]]
        return {job_type: [job for job in may if job.type == job_type][:room] for job_type, room in rooms.items()}

    def _room(self, job_type: str, due: int) -> int:
        settings = self.types[job_type]
        mine = [job for job in self.jobs if job.type == job_type]
        room = due if not settings.paused else 0
        if settings.max_running is not None:
            room = min(room, max(settings.max_running - sum(job.status == "processing" for job in mine), 0))
        if settings.resting_until is not None:
            may_probe = settings.resting_until <= self.now and due and not settings.paused
            room = min(room, 1) if may_probe else 0
            if may_probe:
                settings.resting_until = self.now + PROBE_EVERY_SECONDS
        return room

    def claimed(self, job: ModelJob, token: UUID, *, is_attempt: bool = True) -> None:
        job.status, job.token, job.has_nothing_to_answer = "processing", token, False
        job.attempts += is_attempt
        job.claims += 1
        self.renewed(job)

    def renewed(self, job: ModelJob) -> None:
        job.lease_until = self.now + LEASE_SECONDS

    def read(self, job: ModelJob) -> list[ModelMessage]:
        """A new draft is to be made: what is open is read, and what joins from now on sets `rerun` again."""
        job.rerun = False
        found = self.open(job.address)
        for message in found:
            message.prompted_by = job
        job.has_nothing_to_answer = not found
        return found

    def drafted(self, job: ModelJob, covered: Sequence[ModelMessage]) -> None:
        job.draft = "draft"
        for message in covered:
            message.answered_by = job

    def completed(self, job: ModelJob) -> None:
        job.status, job.error_class = "done", None
        job.draft = job.draft and "sent"
        job.end_claim("done")
        self.types[job.type].resting_until = None
        self._follow_up(job)

    def buried(self, job: ModelJob, error_class: str, outcome: str = "failed") -> None:
        job.status, job.error_class = "failed", error_class
        job.draft = job.draft and "failed"
        job.end_claim(outcome)
        if job.type == AUTOREPLY:
            found = [m for m in self.messages if m.address == job.address]
            has_read = any(message.prompted_by is job for message in found)
            for message in found:
                if message.answered_by is None and (message.prompted_by is job or not has_read):
                    message.answered_by = job
        self._follow_up(job)

    def put_back(
        self,
        job: ModelJob,
        outcome: str,
        delay: float = 0.0,
        *,
        error_class: str | None = None,
        given_back: bool = True,
    ) -> None:
        job.status, job.due = "pending", (self.now + delay, self.step)
        job.attempts -= given_back
        job.error_class = error_class or job.error_class
        job.end_claim(outcome)

    def expired(self) -> list[ModelJob]:
        return [j for j in self.jobs if j.status == "processing" and j.lease_until < self.now]

    def rescued(self) -> list[ModelJob]:
        """What a rescue puts back: what died with attempts left."""
        found = [job for job in self.expired() if job.attempts < job.max_attempts]
        for job in found:
            self.put_back(job, "crashed", error_class="crashed", given_back=False)
            job.has_crashed = True
        return found

    def rests(self, job_type: str, seconds: float) -> None:
        """The other side is out of order."""
        until = self.types[job_type].resting_until
        self.types[job_type].resting_until = max(until or 0.0, self.now + seconds)

    def overaged(self, job_type: str, age_limit: float) -> list[ModelJob]:
        """What is due and waits longer than its type allows, while the type rests."""
        settings = self.types[job_type]
        if settings.resting_until is None or settings.paused:
            return []
        mine = [j for j in self.jobs if j.type == job_type and j.status == "pending" and j.due <= self.moment]
        return [job for job in mine if job.started[0] < self.now - age_limit]

    # What people do

    def restarted(self, job: ModelJob) -> Answer:
        if not job.is_dead:
            return "not failed"
        sibling = self.active(job.address) if job.type == AUTOREPLY and job.address else None
        if sibling is not None or not job.draft:
            for message in self.messages:
                message.answered_by = None if message.answered_by is job else message.answered_by
        if sibling is not None:
            sibling.rerun = True
            job.closed_reason = "joined"
            return "joined"
        job.status, job.attempts, job.claims, job.rerun = "pending", 0, 0, False
        job.has_crashed = False
        job.run += 1
        job.due = job.started = self.moment
        return "restarted"

    def cancelled(self, job: ModelJob) -> Answer:
        if job.status != "pending":
            return "not pending"
        job.status, job.closed_reason = "failed", "cancelled"
        if job.type == AUTOREPLY and not job.draft:
            for message in self.open(job.address):
                message.answered_by = job
        elif job.type == AUTOREPLY:
            self._follow_up(job)
        job.draft = job.draft and "failed"
        return "cancelled"

    def closed(self, job: ModelJob, reason: str) -> Answer:
        if not job.is_dead:
            return "not failed"
        job.closed_reason = reason
        return "closed"

    def _follow_up(self, job: ModelJob) -> None:
        if job.rerun:
            self.enqueue(job.type, 0.0, address=job.address)
