"""`deliver_event`: one event to one endpoint, until it is accepted, dead, or the endpoint is gone.

Three steps, none of them inside another's transaction: ask for the moment (which begins the attempt), send, record. After a crash
the rows say where it stopped: an attempt without an end was interrupted, and is made again with the same id and the same body.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg

from shared import backoff, telemetry
from shared.boundary import Boundary, Checkpoint, pass_by
from shared.clients.deadline import boot_clock
from shared.db.pool import Conn, Database, one
from shared.errors import DatabaseAway, Failure, FailureKind, PermanentError, TransientError
from shared.queue.job import Complete, Job, Lease, Snooze, Verdict, Write
from shared.secrets import SecretUnreadable, Vault
from shared.webhooks.admission import (
    Admission,
    Change,
    admit,
    admit_together,
    settle,
    settle_together,
    withdraw,
)
from shared.webhooks.endpoint_headers import open_headers, open_secrets
from shared.webhooks.normalise import canonical, public_id, render
from shared.webhooks.sending import Answer, Replay, Sender, Target

SECRETS_SECONDS = 60.0  # until it is looked again whether SECRETS_KEY is there
INSIST_SECONDS = 30.0
STALE_SECONDS = 5.0  # an attempt holds its place that much longer than it may last (gives_up_at)
OWN_SOURCE = "antwoord"

READ_EVENT = "SELECT type, subject, occurred_at, data FROM webhook_events WHERE id = %(id)s"
KEEP_BODY = "UPDATE webhook_events SET body = coalesce(body, %(body)s) WHERE id = %(id)s RETURNING body"
BURY = "UPDATE webhook_deliveries SET state = 'dead' WHERE id = %(id)s AND state = 'waiting'"
INTERRUPT = """
    UPDATE webhook_attempts SET ended = clock_timestamp(), outcome = 'interrupted', error_class = 'interrupted',
        error = 'its process stopped in the middle'
    WHERE delivery_id = %(id)s AND ended IS NULL
"""

# Where a person looks at what an event of our own tells of.
_PAGES = {"conversation.needs_person": "conversations", "job.failed": "jobs"}
_WAITS = {
    "breaker": "its endpoint to accept again; one delivery is tried now and then",
    "concurrency": "a free place: its endpoint has as many deliveries at once as it takes",
    "rate": "its moment by the endpoint's rate",
}


@dataclass(frozen=True, slots=True)
class _Admitted:
    """An attempt that has begun; `asked_at` by the courier's clock."""

    asked_at: float
    admission: Admission


@dataclass(frozen=True, slots=True)
class Accepted:
    """The note of a delivery that was accepted, which nothing in the database says yet."""

    delivery: UUID
    endpoint: UUID
    try_: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Courier:
    """What delivering takes. `vault` is None without SECRETS_KEY; `draw` is uniform in [0, 1), `clock` counts seconds."""

    database: Database
    sender: Sender
    vault: Vault | None
    public_base_url: str
    checkpoint: Checkpoint = pass_by
    draw: Callable[[], float] = random.random
    clock: Callable[[], float] = boot_clock

    def deliver(self, job: Job, lease: Lease, delivery_id: UUID) -> Verdict:
        """Make an attempt if it may be made now. Raises PermanentError and TransientError (with its wait) for one that failed."""
        if self.vault is None:
            return _no_secrets("SECRETS_KEY is not set, and it is what opens the endpoints' secrets")
        if isinstance(lease.prepared, _Admitted):
            asked_at, admission = lease.prepared.asked_at, lease.prepared.admission
        else:
            asked_at = self.clock()
            with self.database.connection() as connection:
                admission = admit(connection, job, delivery_id)
        if admission.verdict != "send" or admission.try_ is None:
            return _without_attempt(admission)
        self.checkpoint(Boundary.ADMITTED)
        try:
            target = _target(admission, self.vault)
        except SecretUnreadable as unreadable:
            self._withdraw(job, delivery_id, admission.try_)
            return _no_secrets(str(unreadable))
        body = admission.body or self._own_body(admission.event)
        # This process was frozen: by now its place, or its job, may be another's.
        if self.clock() - asked_at > STALE_SECONDS:
            self._withdraw(job, delivery_id, admission.try_)
            return Snooze(0.0, "its process was held up before the request left")
        with lease.waiting():
            answer = self.sender.send(
                target, body, message_id=public_id(admission.event), idempotency_key=str(delivery_id)
            )
        self.checkpoint(Boundary.DELIVERED)
        if answer.failure:
            self._fail(job, delivery_id, admission, admission.try_, answer, answer.failure)
        return Complete(note=Accepted(delivery_id, admission.endpoint, admission.try_, answer))

    def prepare(self, connection: Conn, asking: Sequence[tuple[Job, UUID]]) -> Mapping[UUID, object]:
        """Begin the attempts of those deliveries that nothing stands in the way of (`queue.job.Together`)."""
        asked_at = self.clock()
        if self.vault is None:
            return {}
        admitted = admit_together(connection, asking)
        return {token: _Admitted(asked_at, admission) for token, admission in admitted.items()}

    def record(self, connection: Conn, noted: Sequence[tuple[Job, Accepted]]) -> Collection[UUID]:
        """Record the attempts that were accepted."""
        recorded = settle_together(
            connection,
            [(job, note.delivery) for job, note in noted],
            [note.try_ for _, note in noted],
            [note.answer for _, note in noted],
        )
        self.checkpoint(Boundary.SETTLED)
        return recorded

    def record_alone(self, connection: Conn, job: Job, note: Accepted) -> None:
        """Record one that was accepted. Raises LeaseLost."""
        _log(settle(connection, job, note.delivery, note.try_, note.answer, None), note.endpoint, note.answer)
        self.checkpoint(Boundary.SETTLED)

    def _fail(
        self, job: Job, delivery_id: UUID, admission: Admission, try_: int, answer: Answer, failure: Failure
    ) -> None:
        wait = _wait(job, admission, failure, self.draw())
        try:
            with self.database.connection() as connection:
                change = settle(connection, job, delivery_id, try_, answer, wait)
        except (DatabaseAway, psycopg.Error):  # a database that is back soon saves a second request
            change = self.database.insist(
                lambda connection: settle(connection, job, delivery_id, try_, answer, wait), INSIST_SECONDS
            )
        _log(change, admission.endpoint, answer)
        self.checkpoint(Boundary.SETTLED)
        if failure.kind is FailureKind.PERMANENT:
            raise PermanentError(failure.error_class, failure.text, http_status=failure.http_status)
        raise TransientError(failure.error_class, failure.text, http_status=failure.http_status, wait=wait)

    def _withdraw(self, job: Job, delivery_id: UUID, try_: int) -> None:
        with self.database.connection() as connection:
            withdraw(connection, job, delivery_id, try_)

    def _own_body(self, event_id: UUID) -> bytes:
        """The body of an event of our own, made once: whoever comes second delivers what the first has made."""
        with self.database.connection() as connection:
            return own_body(connection, event_id, self.public_base_url)


def own_body(connection: Conn, event_id: UUID, public_base_url: str) -> bytes:
    """Make and keep the body of an event of our own, with a link to what it is about."""
    found = one(connection, READ_EVENT, {"id": event_id})
    assert found is not None
    kind, subject, occurred_at, data = found
    document = json.loads(render(event_id, kind, OWN_SOURCE, subject, occurred_at, data))
    document["link"] = f"{public_base_url}/api/ops/{_PAGES.get(kind, 'events')}/{subject}"
    kept = one(connection, KEEP_BODY, {"id": event_id, "body": canonical(document).encode()})
    assert kept is not None
    return bytes(kept[0])


def on_bury(delivery_id: UUID) -> Sequence[Write]:
    """What a burial says on the delivery; an attempt that its process did not end has ended now."""
    key = {"id": delivery_id}
    return [Write(BURY, key), Write(INTERRUPT, key)]


def _without_attempt(admission: Admission) -> Verdict:
    match admission.verdict:
        case "wait":
            assert admission.wait_seconds is not None
            return Snooze(admission.wait_seconds, f"waits for {_WAITS[str(admission.reason)]}")
        case "disabled":
            text = f"the endpoint is disabled ({admission.reason}); enable it and replay this"
            raise PermanentError("endpoint_disabled", text)
        case "dead":
            raise PermanentError(
                admission.error_class or "rejected", admission.error or "", http_status=admission.http_status
            )
        case "missing":
            raise PermanentError("bad_payload", "there is no such delivery")
        case _:
            return Complete()


def _log(change: Change, endpoint: UUID, answer: Answer) -> None:
    """A line when an endpoint's state changes, and none for each delivery."""
    match change:
        case "opened":
            why = answer.failure.error_class if answer.failure else None
            telemetry.warning("breaker_opened", endpoint_id=endpoint, error_class=why, http_status=answer.http_status)
        case "closed":
            telemetry.event("breaker_closed", endpoint_id=endpoint)
        case "disabled":
            telemetry.warning("endpoint_disabled", endpoint_id=endpoint, reason="gone")


def _no_secrets(sentence: str) -> Verdict:
    telemetry.error("delivery_without_secrets", error=sentence)
    return Snooze(SECRETS_SECONDS, sentence)


def _target(admission: Admission, vault: Vault) -> Target:
    replay = None
    if admission.replay is not None:
        replay = Replay(admission.replay, admission.replay_attempt or 1, admission.original_timestamp or 0)
    return Target(
        url=admission.url,
        secrets=open_secrets(admission.secret, admission.previous_secret, admission.endpoint, vault),
        signature_header=admission.signature_header,
        headers=open_headers(admission.headers, admission.endpoint, vault),
        timeout_seconds=admission.timeout_seconds,
        replay=replay,
    )


def _wait(job: Job, admission: Admission, failure: Failure, draw: float) -> float | None:
    """Seconds until the next try, by the endpoint's schedule, and not before the endpoint wants it; None when there is none."""
    if failure.kind is FailureKind.PERMANENT:
        return None
    if admission.schedule == "decorrelated":
        wait = backoff.decorrelated(admission.last_wait or 0.0, draw)
    else:
        wait = backoff.scheduled(max(job.attempts, 1), draw)
    return max(wait, failure.retry_after or 0.0)
