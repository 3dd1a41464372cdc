"""`POST /api/events/{source}`: from a raw request to a stored event and an answer.

Verify first; then what the body says, which touches nothing; then the two transactions of the receive store. Each is one round
trip. Whatever a verified sender sends is stored or refused with 4xx; 503 when the database cannot be had, so that the sender
comes back.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

import psycopg

from shared import signature, telemetry
from shared.boundary import Boundary, Checkpoint, pass_by
from shared.db.pool import Conn, Database, is_worth_repeating
from shared.errors import DatabaseAway, RequestRefused, shorten
from shared.idempotency import (
    LOCK_SECONDS,
    Completed,
    Conflict,
    NewEvent,
    Receipt,
    ReceiveStore,
    Running,
    Stored,
    body_hash,
)
from shared.request import Request, Response
from shared.secrets import Vault
from shared.signature.timestamped import DEFAULT_HEADER
from shared.webhooks import normalise
from shared.webhooks.normalise import Normalised, public_id
from shared.webhooks.registry import KnownSource, Registry
from shared.webhooks.sources import SIZE_LIMIT_AT_MOST

TRIES = 3
AWAY_SECONDS = 5.0  # after which a sender may ask again, when we could not
SECONDS_AT_MOST = 4.5  # for the whole request: senders wait five, some ten
POOL_WAIT_SECONDS = 2.0
STATEMENT_SECONDS = 3.0
WAKES_AT_MOST = 8  # one for each job, but a process has few slots, and who is awake takes the rest
CONTENT_TYPE_LENGTH_AT_MOST = 200
CHECKED_AT_MOST = 4_000_000  # characters of text and sources: about a second, which the sender waits
REFUSED_SQLSTATES = ("22", "23", "54")  # a value that Postgres has no room for
NO_KEY = "SECRETS_KEY is not set, or cannot open the secret of this source: its events cannot be verified."

type Check = Callable[[str, Sequence[str]], str | None]


class Receiver:
    """What the route needs, for one process."""

    def __init__(
        self,
        database: Database,
        vault: Vault | None,
        wake: Callable[[float], None],
        check: Check,
        checkpoint: Checkpoint = pass_by,
    ) -> None:
        """`check` says why a generated text must be held, given what it was made from; None when it need not."""
        self._database = database
        self._registry = Registry(database, vault) if vault else None
        self._store = ReceiveStore()
        self._wake = wake
        self._check = check
        self._checkpoint = checkpoint

    def receive(self, name: str, request: Request) -> Response:
        """Take in one event of the source that the address names."""
        ends = time.monotonic() + SECONDS_AT_MOST
        try:
            return self._receive(name, request, ends)
        except RequestRefused as refused:
            event = "event_conflict" if refused.status == 422 else "event_refused"
            telemetry.warning(event, source=name[:64], status=refused.status, reason=str(refused))
            return _answer(refused.status, error=str(refused))
        except (DatabaseAway, psycopg.Error) as away:
            telemetry.error("event_not_stored", source=name[:64], error=shorten(away))
            sentence = "The event could not be stored: the database is away. Please try again."
            return _later(503, AWAY_SECONDS, error=sentence)

    def _receive(self, name: str, request: Request, ends: float) -> Response:
        if len(request.body) > SIZE_LIMIT_AT_MOST:
            raise RequestRefused(413, f"The body is larger than {SIZE_LIMIT_AT_MOST} bytes.")
        if self._registry is None:
            telemetry.error("source_unreadable", source=name[:64])
            return _later(503, AWAY_SECONDS, error=NO_KEY)
        source = self._verified_source(self._registry, name, request)
        if source is None:
            return _later(503, AWAY_SECONDS, error=NO_KEY)
        document = normalise.parse(request.body)
        key = normalise.event_id(source, request.headers, document, request.body)
        receipt = Receipt(
            source.id, key, body_hash(request.body), normalise.idempotency_key(request.headers)
        )  # fmt: skip
        event = self._new_event(source, request, document)
        return self._stored(source, receipt, event, ends)

    def _verified_source(self, registry: Registry, name: str, request: Request) -> KnownSource | None:
        """The source, once the request is known to be its sender's; None when its secret cannot be opened here."""
        began = time.monotonic()
        source = _found(registry.find(name), request)
        if not source.secrets:
            return None
        try:
            _verify(source, request)
        except RequestRefused as refused:
            if refused.status != 403:
                raise
            # The secret may have been rotated within the seconds that this process keeps a source.
            source = _found(registry.find(name, newer_than=began), request)
            if not source.secrets:
                return None
            _verify(source, request)
        return source

    def _new_event(self, source: KnownSource, request: Request, document: dict[str, object]) -> NewEvent:
        event_id, found = uuid4(), normalise.normalise(source, request.headers, document)
        content_type = request.headers.get("content-type", "")[:CONTENT_TYPE_LENGTH_AT_MOST]
        return NewEvent(
            id=event_id,
            type=found.type,
            subject=found.subject,
            occurred_at=found.occurred_at,
            data=normalise.canonical(found.data),
            raw=request.body,
            content_type=content_type if content_type and content_type.isprintable() else None,
            body=normalise.render(event_id, found.type, source.name, found.subject, found.occurred_at, found.data),
            held_reason=self._why_held(source, found),
        )

    def _why_held(self, source: KnownSource, found: Normalised) -> str | None:
        if not found.text or found.sources is None:
            return None
        if len(found.text) + sum(map(len, found.sources)) > CHECKED_AT_MOST:
            return "unchecked"
        try:
            return self._check(found.text, found.sources)
        except Exception as failed:  # noqa: BLE001 - what could not be checked is for a person, and the sender has no part in it
            telemetry.error("event_not_checked", source=source.name, error_class=type(failed).__name__)
            return "unchecked"

    def _stored(self, source: KnownSource, receipt: Receipt, event: NewEvent, ends: float) -> Response:
        taken = self._insist(lambda connection: self._store.take(connection, receipt), ends)
        match taken:
            case Running(seconds):
                return _later(409, seconds, status="processing")
            case Completed(status, event_id):
                return _repeated(source, status, event_id)
            case Conflict():
                raise _conflict(receipt)
        self._checkpoint(Boundary.TAKEN)
        try:
            stored = self._insist(lambda connection: self._store.complete(connection, receipt, event), ends)
        except (DatabaseAway, RequestRefused):
            self._release(receipt, ends)
            raise
        self._checkpoint(Boundary.STORED)
        return self._answered(source, receipt, stored)

    def _answered(self, source: KnownSource, receipt: Receipt, stored: Stored) -> Response:
        match stored:
            case Stored("stored", UUID() as event_id, jobs):
                for _ in range(min(jobs, WAKES_AT_MOST)):
                    self._wake(0.0)
                telemetry.event("event_received", source=source.name, event_id=public_id(event_id), jobs=jobs)
                return _answer(200, status="accepted", id=public_id(event_id))
            case Stored("known", UUID() as event_id):
                return _repeated(source, 200, event_id)
            case Stored("lost"):
                telemetry.warning("event_lost_its_lock", source=source.name)
                return _later(409, LOCK_SECONDS, status="processing")
        raise _conflict(receipt)

    def _insist[T](self, work: Callable[[Conn], T], ends: float) -> T:
        """Do one transaction, at most three times within the request's seconds: each may be repeated."""
        for attempt in range(1, TRIES + 1):
            left = max(ends - time.monotonic(), 0.05)
            try:
                with self._database.connection(
                    wait=min(POOL_WAIT_SECONDS, left), deadline=min(STATEMENT_SECONDS, left)
                ) as connection:
                    return work(connection)
            except psycopg.Error as error:
                if (error.sqlstate or "").startswith(REFUSED_SQLSTATES):
                    telemetry.error("event_refused_by_database", sqlstate=error.sqlstate)
                    raise RequestRefused(400, "The event cannot be stored.") from error
                if attempt == TRIES or not is_worth_repeating(error) or time.monotonic() >= ends - 0.2:
                    raise DatabaseAway("the event could not be stored") from error
        raise AssertionError("unreachable")

    def _release(self, receipt: Receipt, ends: float) -> None:
        """Best effort: what is not given back is free when its lock is over."""
        left = ends - time.monotonic()
        if left > 0.2:
            with (
                contextlib.suppress(DatabaseAway, psycopg.Error),
                self._database.connection(wait=left, deadline=left) as connection,
            ):
                self._store.release(connection, receipt)


def _found(source: KnownSource | None, request: Request) -> KnownSource:
    if source is None:
        raise RequestRefused(404, "There is no such source.")
    if len(request.body) > source.size_limit:
        raise RequestRefused(413, f"The body is larger than {source.size_limit} bytes.")
    return source


def _verify(source: KnownSource, request: Request) -> None:
    """Return if one of the source's secrets signed the request. Raises RequestRefused."""
    headers, body, now = request.headers, request.body, time.time()
    match source.scheme:
        case "standard":
            signature.verify_standard(
                message_id=headers.get("webhook-id"),
                timestamp=headers.get("webhook-timestamp"),
                signature=headers.get("webhook-signature"),
                body=body,
                secrets=source.secrets,
                now=now,
                tolerance=source.tolerance_seconds,
            )
        case "t-v1":
            name = source.signature_header or DEFAULT_HEADER
            signature.verify_timestamped(
                signature=headers.get(name.lower()),
                body=body,
                secrets=source.secrets,
                now=now,
                tolerance=source.tolerance_seconds,
                name=name,
            )
        case "x-hub":
            signature.verify_hub(signature=headers.get("x-hub-signature-256"), body=body, secrets=source.secrets)


def _conflict(receipt: Receipt) -> RequestRefused:
    return RequestRefused(
        422, f"The id {receipt.key!a} was used before, with another body or another X-Idempotency-Key."
    )


def _repeated(source: KnownSource, status: int, event_id: UUID) -> Response:
    telemetry.event("event_repeated", source=source.name, event_id=public_id(event_id))
    return _answer(status, status="already_processed", id=public_id(event_id))


def _later(status: int, seconds: float, /, **fields: str) -> Response:
    """An answer that says when to come again, in whole seconds: none is too early."""
    again = {"Retry-After": str(max(math.ceil(seconds), 1))}
    return Response(status, json.dumps(fields), "application/json", again)


def _answer(status: int, /, **fields: str) -> Response:
    return Response(status, json.dumps(fields), "application/json")
