"""Endpoints: where events are delivered, and what people set of them.

A change says which `version` of the settings the person has seen, so that two who are at it do not undo each other without
knowing. Secrets and the values of extra headers are sealed, and no row here holds them: whoever signs opens them
(endpoint_headers.py, ping.py). Each change is one transaction with its line in the audit log, which names no secret, and of a
URL its host alone, since some carry a token in the path.

Lock order: job, then endpoint, then delivery; the endpoint comes first here, so only those jobs are taken that nobody holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID, uuid4

from psycopg.errors import UniqueViolation
from psycopg.rows import class_row

from shared import audit, telemetry
from shared.clients.guard import Guard
from shared.db.pool import Conn, one
from shared.db.text import storable
from shared.errors import UserError
from shared.secrets import SecretUnreadable, Vault
from shared.signature import new_secret
from shared.webhooks.endpoint_headers import checked_headers, seal_headers, secret_place
from shared.webhooks.endpoint_settings import (
    SCHEDULES,
    EndpointSettings,
    Schedule,
    changes_of,
    check_url,
    checked,
    checked_name,
    checked_secret,
    columns,
    listed,
    shown,
)

__all__ = [
    "BY_HAND",
    "OVERLAP_HOURS",
    "SCHEDULES",
    "Added",
    "Endpoint",
    "EndpointSettings",
    "Schedule",
    "add",
    "change",
    "check_url",
    "disable",
    "enable",
    "find_endpoint",
    "hasten_disabled",
    "list_endpoints",
    "rotate",
]

REASON_LENGTH_AT_MOST = 500
OVERLAP_HOURS = 24.0
OVERLAP_HOURS_AT_MOST = 30 * 24.0
BY_HAND = "by_hand"  # the reason of whoever gives none; `gone` is that of a 410

HASTENED_AT_MOST = 10_000  # in one statement, over 50 seconds
_BATCH = 1000

ADD = """
    INSERT INTO webhook_endpoints (id, name, url, events, secret, signature_header, headers, header_names, schedule, rate,
        concurrency, timeout_seconds, created_by)
    VALUES (%(id)s, %(name)s, %(url)s, %(events)s, %(secret)s, %(signature_header)s, %(headers)s, %(header_names)s,
        %(schedule)s, %(rate)s, %(concurrency)s, %(timeout_seconds)s, %(who)s)
"""
LIST = """
    SELECT n.id, n.name, n.url, n.events, n.signature_header, n.schedule, n.rate, n.concurrency, n.timeout_seconds,
        n.header_names, n.version, CASE WHEN n.previous_until > now() THEN n.previous_until END AS previous_until,
        n.average_ms, n.failures_in_row, n.open_until, n.disabled_at, n.disabled_reason, n.created_by, n.created_at,
        coalesce(o.waiting, 0) AS waiting, coalesce(o.held, 0) AS held, coalesce(o.dead, 0) AS dead,
        extract(epoch FROM now() - o.waiting_since)::float8 AS oldest_waiting_seconds
    FROM webhook_endpoints n LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE d.state = 'waiting')::int AS waiting,
            count(*) FILTER (WHERE d.state = 'held')::int AS held,
            count(*) FILTER (WHERE d.state = 'dead')::int AS dead,
            min(d.created_at) FILTER (WHERE d.state = 'waiting') AS waiting_since
        FROM webhook_deliveries d WHERE d.endpoint_id = n.id AND d.state IN ('waiting', 'held', 'dead')) AS o ON true
    WHERE (%(id)s::uuid IS NULL OR n.id = %(id)s) AND (%(name)s::text IS NULL OR n.name = %(name)s)
    ORDER BY n.name
"""
LOCK = """
    SELECT id, name, url, events, signature_header, schedule, rate, concurrency, timeout_seconds, header_names, version,
        coalesce(previous_until > now(), false) AS is_rotating, disabled_at IS NOT NULL AS is_disabled,
        open_until IS NOT NULL OR failures_in_row > 0 AS has_failed
    FROM webhook_endpoints WHERE id = %(id)s FOR NO KEY UPDATE
"""
CHANGE = """
    UPDATE webhook_endpoints SET url = %(url)s, events = %(events)s, signature_header = %(signature_header)s,
        schedule = %(schedule)s, rate = %(rate)s, concurrency = %(concurrency)s, timeout_seconds = %(timeout_seconds)s,
        version = version + 1
    WHERE id = %(id)s AND version = %(seen)s RETURNING id
"""
SET_HEADERS = "UPDATE webhook_endpoints SET headers = %(headers)s, header_names = %(header_names)s WHERE id = %(id)s"
# Under the new rate the next one goes within one interval of it, whatever the old one had used the time up to.
FORGET_PACE = """
    UPDATE webhook_endpoints SET promised_until = '-infinity',
        paced_at = least(paced_at, now() + make_interval(secs => coalesce(1 / rate, 0))),
        sent_until = least(sent_until, now() + make_interval(secs => coalesce(1 / rate, 0)))
    WHERE id = %(id)s
"""
# Those that wait for their moment by the old rate wait like those for a free place, which pull_waiting() places anew.
FORGET_PROMISES = """
    WITH promised AS MATERIALIZED (
        SELECT id FROM webhook_deliveries
        WHERE endpoint_id = %(id)s AND state = 'waiting' AND promised_at IS NOT NULL
        LIMIT %(batch)s FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE webhook_deliveries d SET waits_until = promised_at, promised_at = NULL FROM promised p WHERE d.id = p.id
"""
# Nothing is known yet of what is at another address.
FORGET_HEALTH = """
    UPDATE webhook_endpoints SET failures_in_row = 0, open_until = NULL, average_ms = NULL, promised_until = '-infinity',
        pulled_until = '-infinity'
    WHERE id = %(id)s
"""
# What somebody holds at this moment asks by itself, or comes when it would have come.
PULL = "SELECT pull_waiting(%(id)s)"
CURRENT = "SELECT secret FROM webhook_endpoints WHERE id = %(id)s"
ROTATE = """
    UPDATE webhook_endpoints SET secret = %(secret)s,
        previous_secret = CASE WHEN %(overlap)s > 0 THEN secret END,
        previous_until = CASE WHEN %(overlap)s > 0 THEN now() + make_interval(secs => %(overlap)s) END
    WHERE id = %(id)s
"""
# The rest of what a trigger began when an endpoint was disabled (migration 0007).
HASTEN = "SELECT hasten_disabled(NULL, %(most)s)"
DISABLE = "UPDATE webhook_endpoints SET disabled_at = now(), disabled_reason = %(reason)s WHERE id = %(id)s"
ENABLE = """
    UPDATE webhook_endpoints SET disabled_at = NULL, disabled_reason = NULL, failures_in_row = 0, open_until = NULL,
        promised_until = '-infinity', pulled_until = '-infinity'
    WHERE id = %(id)s
"""


@dataclass(frozen=True, slots=True)
class _Row:
    """What every look at an endpoint reads."""

    id: UUID
    name: str
    url: str
    events: list[str]
    signature_header: str
    schedule: Schedule
    rate: float | None
    concurrency: int
    timeout_seconds: float
    header_names: list[str]
    version: int

    @property
    def settings(self) -> EndpointSettings:
        """What a person can change."""
        return EndpointSettings(
            url=self.url, events=tuple(self.events), signature_header=self.signature_header, schedule=self.schedule,
            rate=self.rate, concurrency=self.concurrency, timeout_seconds=self.timeout_seconds,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Endpoint(_Row):
    """One endpoint and how it stands; nothing secret. `previous_until` is there while two secrets sign.

    `open_until` is there while the breaker is open: the moment of its next probe. `waiting`, `held` and `dead` count its
    deliveries. `average_ms` is of its last answers.
    """

    previous_until: datetime | None
    average_ms: float | None
    failures_in_row: int
    open_until: datetime | None
    disabled_at: datetime | None
    disabled_reason: str | None
    created_by: str
    created_at: datetime
    waiting: int
    held: int
    dead: int
    oldest_waiting_seconds: float | None

    @property
    def health(self) -> Literal["disabled", "resting", "failing", "well"]:
        """In one word; `resting`: the breaker is open."""
        if self.disabled_at:
            return "disabled"
        if self.open_until:
            return "resting"
        return "failing" if self.failures_in_row else "well"


@dataclass(frozen=True, slots=True)
class Added:
    """A new endpoint, and its secret, which nobody is shown again."""

    id: UUID
    secret: str


def add(
    connection: Conn,
    name: str,
    wanted: EndpointSettings,
    *,
    guard: Guard,
    vault: Vault,
    who: str,
    secret: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Added:
    """Add an endpoint; a secret is made if none is given. Raises UserError for what cannot be."""
    extra = checked_headers(headers or {})
    settings = checked(wanted, guard, tuple(extra))
    endpoint_id, used = uuid4(), new_secret() if secret is None else checked_secret(secret)
    parameters = {
        **columns(settings), "id": endpoint_id, "name": checked_name(name), "who": who,
        "secret": vault.seal(used, secret_place(endpoint_id)),
        "headers": seal_headers(extra, endpoint_id, vault), "header_names": list(extra),
    }  # fmt: skip
    with connection.transaction():
        try:
            with connection.transaction():
                connection.execute(ADD, parameters)
        except UniqueViolation:
            raise UserError(f"There is an endpoint {name} already.", name="endpoint_exists") from None
        details = shown(settings) | {"headers": list(extra) or None}
        _record(connection, "add_endpoint", endpoint_id, name, who, **details)
    return Added(endpoint_id, used)


def list_endpoints(connection: Conn) -> list[Endpoint]:
    """All endpoints, by name."""
    return _select(connection)


def find_endpoint(connection: Conn, name_or_id: str | UUID) -> Endpoint | None:
    """One endpoint, by its id or its name."""
    if isinstance(name_or_id, UUID):
        return next(iter(_select(connection, endpoint_id=name_or_id)), None)
    return next(iter(_select(connection, name=storable(name_or_id))), None)


def change(
    connection: Conn,
    endpoint_id: UUID,
    wanted: EndpointSettings,
    *,
    seen: int,
    guard: Guard,
    who: str,
    vault: Vault | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Set what is `wanted`, of which the person has seen the version `seen`. `headers` replaces all; None keeps them.

    A URL is checked when it is another one, which begins without the failures of the one before. With another URL, rate or
    concurrency what waits is placed anew, spread at its pace. Raises UserError for what cannot be, and when somebody else has
    changed it meanwhile.
    """
    with connection.transaction():
        before = _lock(connection, endpoint_id)
        if before.version != seen:
            raise UserError(
                f"Somebody else has changed {before.name} meanwhile: look at it, and try again.",
                name="endpoint_changed",
            )
        was = before.settings
        extra = None if headers is None else checked_headers(headers)
        names = tuple(before.header_names) if extra is None else tuple(extra)
        settings = checked(wanted, guard, names, known_url=was.url)
        connection.execute(CHANGE, {**columns(settings), "id": endpoint_id, "seen": seen})
        changes = changes_of(was, settings)
        if extra is not None:
            if vault is None:
                raise ValueError("extra headers are sealed: a vault is needed")
            sealed = seal_headers(extra, endpoint_id, vault)
            connection.execute(SET_HEADERS, {"id": endpoint_id, "headers": sealed, "header_names": list(extra)})
            changes["headers"] = f"{listed(before.header_names)} → {listed(extra)}"
        if settings.rate != was.rate:
            connection.execute(FORGET_PACE, {"id": endpoint_id})
            while connection.execute(FORGET_PROMISES, {"id": endpoint_id, "batch": _BATCH}).rowcount == _BATCH:
                pass
        if settings.url != was.url:
            connection.execute(FORGET_HEALTH, {"id": endpoint_id})
        if (settings.url, settings.rate, settings.concurrency) != (was.url, was.rate, was.concurrency):
            connection.execute(PULL, {"id": endpoint_id})
        if changes:
            _record(connection, "change_endpoint", endpoint_id, before.name, who, **changes)


def rotate(
    connection: Conn,
    endpoint_id: UUID,
    *,
    vault: Vault,
    who: str,
    overlap_hours: float = OVERLAP_HOURS,
    secret: str | None = None,
) -> str:
    """Give it a new secret and return it; the old one signs too for `overlap_hours`, or with 0 at once no more.

    One that no key opens ends at once: it cannot sign, and would hold up what the new one signs. That is the way out when the
    key was lost.
    Raises UserError while an earlier rotation overlaps, unless the overlap is 0: a third secret cannot sign.
    """
    if not 0 <= overlap_hours <= OVERLAP_HOURS_AT_MOST:
        raise UserError(f"The overlap is 0 to {OVERLAP_HOURS_AT_MOST:g} hours.", name="endpoint_overlap")
    used = new_secret() if secret is None else checked_secret(secret)
    with connection.transaction():
        before = _lock(connection, endpoint_id)
        if before.is_rotating and overlap_hours:
            raise UserError(
                f"The secret of {before.name} is being rotated: wait until the previous one has ended, or rotate with an "
                "overlap of 0 hours, which ends both old ones at once.",
                name="endpoint_rotating",
            )
        if overlap_hours and not _opens(connection, endpoint_id, vault):
            overlap_hours = 0.0
        sealed = vault.seal(used, secret_place(endpoint_id))
        connection.execute(ROTATE, {"id": endpoint_id, "secret": sealed, "overlap": overlap_hours * 3600.0})
        _record(connection, "rotate_endpoint", endpoint_id, before.name, who, overlap_hours=overlap_hours)
    return used


def disable(connection: Conn, endpoint_id: UUID, *, who: str, reason: str = "") -> None:
    """Deliver nothing more to it; what waits for it becomes a dead letter within minutes. Raises UserError."""
    said = " ".join(storable(reason).split()) or BY_HAND
    if len(said) > REASON_LENGTH_AT_MOST:
        raise UserError(f"The reason is longer than {REASON_LENGTH_AT_MOST} characters.", name="reason_too_long")
    with connection.transaction():
        before = _lock(connection, endpoint_id)
        if before.is_disabled:
            raise UserError(f"{before.name} is disabled already.", name="endpoint_disabled_already")
        connection.execute(DISABLE, {"id": endpoint_id, "reason": said})
        _record(connection, "disable_endpoint", endpoint_id, before.name, who, reason=said)
    telemetry.warning("endpoint_disabled", endpoint_id=endpoint_id, reason="by a person")


def hasten_disabled(connection: Conn) -> int:
    """Let what still waits for disabled endpoints die soon, some of it; how many. The first thousand of each went at once."""
    row = one(connection, HASTEN, {"most": HASTENED_AT_MOST})
    return 0 if row is None else int(row[0])


def enable(connection: Conn, endpoint_id: UUID, *, who: str) -> None:
    """Deliver to it again, now: its breaker is reset, also when it was not disabled. Raises UserError."""
    with connection.transaction():
        before = _lock(connection, endpoint_id)
        if not before.is_disabled and not before.has_failed:
            raise UserError(f"{before.name} is enabled, and nothing holds it up.", name="endpoint_enabled_already")
        connection.execute(ENABLE, {"id": endpoint_id})
        connection.execute(PULL, {"id": endpoint_id})
        _record(connection, "enable_endpoint", endpoint_id, before.name, who)


@dataclass(frozen=True, slots=True)
class _Locked(_Row):
    """An endpoint that nobody else changes until the transaction ends."""

    is_rotating: bool
    is_disabled: bool
    has_failed: bool


def _lock(connection: Conn, endpoint_id: UUID) -> _Locked:
    with connection.cursor(row_factory=class_row(_Locked)) as cursor:
        row = cursor.execute(LOCK, {"id": endpoint_id}).fetchone()
    if row is None:
        raise UserError(f"There is no endpoint {endpoint_id}.", name="no_endpoint")
    return row


def _opens(connection: Conn, endpoint_id: UUID, vault: Vault) -> bool:
    row = one(connection, CURRENT, {"id": endpoint_id})
    assert row is not None
    try:
        vault.open(bytes(row[0]), secret_place(endpoint_id))
    except SecretUnreadable:
        return False
    return True


def _select(connection: Conn, *, endpoint_id: UUID | None = None, name: str | None = None) -> list[Endpoint]:
    with connection.cursor(row_factory=class_row(Endpoint)) as cursor:
        return cursor.execute(LIST, {"id": endpoint_id, "name": name}).fetchall()


def _record(connection: Conn, what: str, endpoint_id: UUID, name: str, who: str, **details: Any) -> None:
    audit.record(
        connection, who=who, what=what, target_type="endpoint", target_id=endpoint_id, endpoint=name, **details
    )
