"""Sources: who may send us events, how that is verified, and where the id of an event is.

Secrets are sealed, and shown once, when they are made. A rotation keeps the previous one good for a while (24 hours unless
said otherwise): the sender is given the new one meanwhile, and no event is lost. A change says which `version` of the settings
the person has seen, so that two who are at it do not undo each other without knowing. Each change is one transaction with its
line in the audit log, which names no secret.
"""

from __future__ import annotations

import secrets as random_source
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from psycopg.errors import UniqueViolation
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from shared import audit
from shared.db.pool import Conn
from shared.db.text import storable
from shared.errors import UserError
from shared.secrets import Vault
from shared.signature import new_secret
from shared.webhooks.source_settings import (
    FIELDS,
    ID_FROM,
    NORMALISERS,
    SCHEMES,
    SIZE_LIMIT,
    SIZE_LIMIT_AT_MOST,
    TOLERANCE_SECONDS,
    Normaliser,
    Scheme,
    SourceSettings,
    changes_of,
    check,
    checked_name,
    checked_secret,
    shown,
    version_of,
)

__all__ = [
    "FIELDS",
    "ID_FROM",
    "NORMALISERS",
    "OVERLAP_HOURS",
    "SCHEMES",
    "SIZE_LIMIT",
    "SIZE_LIMIT_AT_MOST",
    "TOLERANCE_SECONDS",
    "Made",
    "NewSource",
    "Normaliser",
    "Scheme",
    "Source",
    "SourceSettings",
    "add",
    "change",
    "disable",
    "enable",
    "find_source",
    "list_sources",
    "rotate",
    "secret_place",
]

OVERLAP_HOURS = 24.0
OVERLAP_HOURS_AT_MOST = 30 * 24.0
REASON_LENGTH_AT_MOST = 500

ADD = """
    INSERT INTO webhook_sources (id, name, scheme, signature_header, id_from, tolerance_seconds, size_limit, normaliser, paths,
        secret, created_by)
    VALUES (%(id)s, %(name)s, %(scheme)s, %(signature_header)s, %(id_from)s, %(tolerance_seconds)s, %(size_limit)s,
        %(normaliser)s, %(paths)s, %(secret)s, %(who)s)
"""
LIST = """
    SELECT s.id, s.name, s.scheme, s.signature_header, s.id_from, s.tolerance_seconds, s.size_limit, s.normaliser, s.paths,
        CASE WHEN s.previous_until > now() THEN s.previous_until END AS previous_until, s.disabled_at, s.created_by,
        s.created_at, newest.completed_at AS last_event_at
    FROM webhook_sources s LEFT JOIN LATERAL (
        SELECT r.completed_at FROM webhook_receipts r
        WHERE r.source_id = s.id AND r.state = 'completed' ORDER BY r.completed_at DESC LIMIT 1) AS newest ON true
    WHERE %(name)s::text IS NULL OR s.name = %(name)s
    ORDER BY s.name
"""
LOCK = """
    SELECT id, name, scheme, signature_header, id_from, tolerance_seconds, size_limit, normaliser, paths,
        disabled_at IS NOT NULL AS is_disabled, coalesce(previous_until > now(), false) AS is_rotating
    FROM webhook_sources WHERE name = %(name)s FOR NO KEY UPDATE
"""
CHANGE = """
    UPDATE webhook_sources SET signature_header = %(signature_header)s, id_from = %(id_from)s,
        tolerance_seconds = %(tolerance_seconds)s, size_limit = %(size_limit)s, normaliser = %(normaliser)s, paths = %(paths)s
    WHERE id = %(id)s
"""
ROTATE = """
    UPDATE webhook_sources SET secret = %(secret)s,
        previous_secret = CASE WHEN %(overlap)s > 0 THEN secret END,
        previous_until = CASE WHEN %(overlap)s > 0 THEN now() + make_interval(secs => %(overlap)s) END
    WHERE id = %(id)s
"""
DISABLE = "UPDATE webhook_sources SET disabled_at = now() WHERE id = %(id)s"
ENABLE = "UPDATE webhook_sources SET disabled_at = NULL WHERE id = %(id)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSource(SourceSettings):
    """What a person sets of a source that is added."""

    name: str
    scheme: Scheme


@dataclass(frozen=True, slots=True)
class _Row:
    """What every look at a source reads; `size_limit` in bytes."""

    id: UUID
    name: str
    scheme: Scheme
    signature_header: str | None
    id_from: str
    tolerance_seconds: int
    size_limit: int
    normaliser: Normaliser
    paths: dict[str, str]

    @property
    def settings(self) -> SourceSettings:
        """What a person can change."""
        return SourceSettings(
            id_from=self.id_from, signature_header=self.signature_header, tolerance_seconds=self.tolerance_seconds,
            size_limit=self.size_limit, normaliser=self.normaliser, paths=self.paths,
        )  # fmt: skip

    @property
    def version(self) -> str:
        """Of the settings: what `change` asks for."""
        return version_of(self.settings)


@dataclass(frozen=True, slots=True)
class Source(_Row):
    """One source, with nothing secret. `previous_until` is there while two secrets are good.

    `last_event_at` is when its newest event came in, if that was in the last days.
    """

    previous_until: datetime | None
    disabled_at: datetime | None
    created_by: str
    created_at: datetime
    last_event_at: datetime | None

    @property
    def path(self) -> str:
        """Where its events are posted to, below PUBLIC_BASE_URL."""
        return f"/api/events/{self.name}"


@dataclass(frozen=True, slots=True)
class Made:
    """A source that was added or rotated, and its secret, which nobody is shown again."""

    id: UUID
    name: str
    secret: str


def secret_place(source_id: UUID) -> str:
    """What a source's secrets are sealed for."""
    return f"source:{source_id}"


def add(connection: Conn, wanted: NewSource, *, vault: Vault, who: str, secret: str | None = None) -> Made:
    """Add a source; a secret is made if none is given. Raises UserError for what cannot be."""
    name = checked_name(wanted.name)
    check(wanted.scheme, wanted)
    source_id, used = uuid4(), _made(wanted.scheme) if secret is None else checked_secret(wanted.scheme, secret)
    parameters = {
        **_columns(wanted.scheme, wanted), "id": source_id, "name": name, "scheme": wanted.scheme, "who": storable(who),
        "secret": vault.seal(used, secret_place(source_id)),
    }  # fmt: skip
    with connection.transaction():
        try:
            with connection.transaction():
                connection.execute(ADD, parameters)
        except UniqueViolation:
            raise UserError(f"There is a source {name} already.", name="source_exists") from None
        details = {"scheme": wanted.scheme} | shown(wanted.scheme, wanted)
        _record(connection, "add_source", source_id, name, who, **details)
    return Made(source_id, name, used)


def list_sources(connection: Conn) -> list[Source]:
    """All sources, by name."""
    return _select(connection, None)


def find_source(connection: Conn, name: str) -> Source | None:
    """One source, by its name."""
    return next(iter(_select(connection, storable(name))), None)


def change(connection: Conn, name: str, wanted: SourceSettings, *, seen: str, who: str) -> None:
    """Set what is `wanted`, of which the person has seen the version `seen`; every process knows within five seconds.

    Name, secret and scheme stay: what can be a secret depends on the scheme. Where the id is says whether an event has come in
    before: with another place, what a sender repeats counts as new. Raises UserError for what cannot be, and when somebody
    else has changed it meanwhile.
    """
    with connection.transaction():
        before = _lock(connection, name)
        if before.version != seen:
            raise UserError(
                f"Somebody else has changed {before.name} meanwhile: look at it, and try again.", name="source_changed"
            )
        check(before.scheme, wanted)
        connection.execute(CHANGE, {**_columns(before.scheme, wanted), "id": before.id})
        if changes := changes_of(before.scheme, before.settings, wanted):
            _record(connection, "change_source", before.id, before.name, who, **changes)


def rotate(
    connection: Conn,
    name: str,
    *,
    vault: Vault,
    who: str,
    overlap_hours: float = OVERLAP_HOURS,
    secret: str | None = None,
) -> Made:
    """Give a source a new secret; the old one is good for `overlap_hours` more, or with 0 no more.

    Raises UserError for an empty secret, and while an earlier rotation overlaps, unless the overlap is 0.
    """
    if not 0 <= overlap_hours <= OVERLAP_HOURS_AT_MOST:
        raise UserError(f"The overlap is 0 to {OVERLAP_HOURS_AT_MOST:g} hours.", name="source_overlap")
    with connection.transaction():
        before = _lock(connection, name)
        if before.is_rotating and overlap_hours:
            raise UserError(
                f"The secret of {name} is being rotated: wait until the previous one has ended, or rotate with an overlap of "
                "0 hours, which ends both old ones at once.",
                name="source_rotating",
            )
        used = _made(before.scheme) if secret is None else checked_secret(before.scheme, secret)
        sealed = vault.seal(used, secret_place(before.id))
        connection.execute(ROTATE, {"id": before.id, "secret": sealed, "overlap": overlap_hours * 3600.0})
        _record(connection, "rotate_source", before.id, name, who, overlap_hours=overlap_hours)
    return Made(before.id, name, used)


def disable(connection: Conn, name: str, *, who: str, reason: str = "") -> None:
    """Take nothing more from a source: its senders get 404. What came in is delivered. Raises UserError."""
    said = " ".join(storable(reason).split())
    if len(said) > REASON_LENGTH_AT_MOST:
        raise UserError(f"The reason is longer than {REASON_LENGTH_AT_MOST} characters.", name="reason_too_long")
    with connection.transaction():
        before = _lock(connection, name)
        if before.is_disabled:
            raise UserError(f"{name} is disabled already.", name="source_disabled_already")
        connection.execute(DISABLE, {"id": before.id})
        _record(connection, "disable_source", before.id, name, who, reason=said or None)


def enable(connection: Conn, name: str, *, who: str) -> None:
    """Take events from a source again. Raises UserError."""
    with connection.transaction():
        before = _lock(connection, name)
        if not before.is_disabled:
            raise UserError(f"{name} is enabled already.", name="source_enabled_already")
        connection.execute(ENABLE, {"id": before.id})
        _record(connection, "enable_source", before.id, name, who)


def _select(connection: Conn, name: str | None) -> list[Source]:
    with connection.cursor(row_factory=class_row(Source)) as cursor:
        return cursor.execute(LIST, {"name": name}).fetchall()


@dataclass(frozen=True, slots=True)
class _Locked(_Row):
    """A source that nobody else changes until the transaction ends."""

    is_disabled: bool
    is_rotating: bool


def _lock(connection: Conn, name: str) -> _Locked:
    with connection.cursor(row_factory=class_row(_Locked)) as cursor:
        row = cursor.execute(LOCK, {"name": storable(name)}).fetchone()
    if row is None:
        raise UserError(f"There is no source {storable(name)}.", name="no_source")
    return row


def _columns(scheme: Scheme, wanted: SourceSettings) -> dict[str, Any]:
    """The settings as a statement's parameters."""
    return {
        "signature_header": wanted.signature_header, "id_from": wanted.id_from, "tolerance_seconds": wanted.tolerance_seconds,
        "size_limit": wanted.size_limit, "normaliser": wanted.read_as(scheme), "paths": Jsonb(dict(wanted.paths)),
    }  # fmt: skip


def _made(scheme: Scheme) -> str:
    return new_secret() if scheme == "standard" else random_source.token_hex(32)


def _record(connection: Conn, what: str, source_id: UUID, name: str, who: str, **details: Any) -> None:
    audit.record(connection, who=who, what=what, target_type="source", target_id=source_id, source=name, **details)
