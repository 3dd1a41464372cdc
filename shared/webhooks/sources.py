"""Sources: who may send us events, how that is verified, and where the id of an event is.

Secrets are sealed, and shown once, when they are made. A rotation keeps the previous one good for a while (24 hours unless
said otherwise): the sender is given the new one meanwhile, and no event is lost. Each change is one transaction with its line
in the audit log, which names no secret.
"""

from __future__ import annotations

import re
import secrets as random_source
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, get_args
from uuid import UUID, uuid4

from psycopg.errors import UniqueViolation
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from shared import audit
from shared.db.pool import Conn, one
from shared.db.text import storable
from shared.errors import UserError
from shared.secrets import Vault
from shared.signature import new_secret
from shared.signature.standard import key

type Scheme = Literal["standard", "t-v1", "x-hub"]
type Normaliser = Literal["openai", "json"]
SCHEMES: Final[tuple[Scheme, ...]] = get_args(Scheme.__value__)
NORMALISERS: Final[tuple[Normaliser, ...]] = get_args(Normaliser.__value__)

ID_FROM = "header"  # the first of the usual headers: shared/webhooks/normalise.py
TOLERANCE_SECONDS, TOLERANCE_AT_MOST = 300, 86_400
SIZE_LIMIT, SIZE_LIMIT_AT_MOST = 1024 * 1024, 10 * 1024 * 1024  # bytes
SECRET_LENGTH_AT_MOST = 1000
OVERLAP_HOURS = 24.0
OVERLAP_HOURS_AT_MOST = 30 * 24.0
REASON_LENGTH_AT_MOST = 500
OUR_NAME = "antwoord"  # as a source: events of our own (shared/webhooks/deliver.py)
# What a source of normaliser json may say the place of. `text` and `sources`: generated text, and what it was generated from.
FIELDS: Final = ("type", "subject", "occurred_at", "data", "text", "sources")

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_POINTER = re.compile(r"(/([^/~\0\ud800-\udfff]|~[01])*){1,20}")
_POINTER_LENGTH_AT_MOST = 300

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
    SELECT id, scheme, disabled_at IS NOT NULL, coalesce(previous_until > now(), false) FROM webhook_sources
    WHERE name = %(name)s FOR NO KEY UPDATE
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
class NewSource:
    """What a person sets of a source.

    `id_from`: `header` (the first of webhook-id, X-Webhook-ID, X-Event-ID), `header:NAME`, `pointer:/PATH` into the verified
    body, or `body-sha256`. `signature_header`: for t-v1 alone. `normaliser`: by the scheme unless it is said. `paths`: for the
    normaliser json alone, the place of each of FIELDS as a JSON pointer, or as `header:NAME`.
    """

    name: str
    scheme: Scheme
    id_from: str = ID_FROM
    signature_header: str | None = None
    tolerance_seconds: int = TOLERANCE_SECONDS
    size_limit: int = SIZE_LIMIT
    normaliser: Normaliser | None = None
    paths: Mapping[str, str] = field(default_factory=dict)

    @property
    def read_as(self) -> Normaliser:
        """The normaliser: OpenAI signs by the standard; what GitHub and Meta send has no type where OpenAI has its own."""
        return self.normaliser or ("openai" if self.scheme == "standard" else "json")


@dataclass(frozen=True, slots=True)
class Source:
    """One source, with nothing secret. `previous_until` is there while two secrets are good; `size_limit` in bytes.

    `last_event_at` is when its newest event came in, if that was in the last days.
    """

    id: UUID
    name: str
    scheme: Scheme
    signature_header: str | None
    id_from: str
    tolerance_seconds: int
    size_limit: int
    normaliser: Normaliser
    paths: dict[str, str]
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
    _check(wanted)
    source_id, used = uuid4(), _made(wanted.scheme) if secret is None else _checked_secret(wanted.scheme, secret)
    parameters = {
        "id": source_id, "name": wanted.name, "scheme": wanted.scheme, "signature_header": wanted.signature_header,
        "id_from": wanted.id_from, "tolerance_seconds": wanted.tolerance_seconds, "size_limit": wanted.size_limit,
        "normaliser": wanted.read_as, "paths": Jsonb(dict(wanted.paths)), "who": storable(who),
        "secret": vault.seal(used, secret_place(source_id)),
    }  # fmt: skip
    with connection.transaction():
        try:
            with connection.transaction():
                connection.execute(ADD, parameters)
        except UniqueViolation:
            raise UserError(f"There is a source {wanted.name} already.", name="source_exists") from None
        _record(connection, "add_source", source_id, wanted.name, who, scheme=wanted.scheme, id_from=wanted.id_from,
                normaliser=wanted.read_as, paths=dict(wanted.paths) or None)  # fmt: skip
    return Made(source_id, wanted.name, used)


def list_sources(connection: Conn) -> list[Source]:
    """All sources, by name."""
    return _select(connection, None)


def find_source(connection: Conn, name: str) -> Source | None:
    """One source, by its name."""
    return next(iter(_select(connection, storable(name))), None)


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
        source_id, scheme, _, is_rotating = _lock(connection, name)
        if is_rotating and overlap_hours:
            raise UserError(
                f"The secret of {name} is being rotated: wait until the previous one has ended, or rotate with an overlap of "
                "0 hours, which ends both old ones at once.",
                name="source_rotating",
            )
        used = _made(scheme) if secret is None else _checked_secret(scheme, secret)
        sealed = vault.seal(used, secret_place(source_id))
        connection.execute(ROTATE, {"id": source_id, "secret": sealed, "overlap": overlap_hours * 3600.0})
        _record(connection, "rotate_source", source_id, name, who, overlap_hours=overlap_hours)
    return Made(source_id, name, used)


def disable(connection: Conn, name: str, *, who: str, reason: str = "") -> None:
    """Take nothing more from a source: its senders get 404. What came in is delivered. Raises UserError."""
    said = " ".join(storable(reason).split())
    if len(said) > REASON_LENGTH_AT_MOST:
        raise UserError(f"The reason is longer than {REASON_LENGTH_AT_MOST} characters.", name="reason_too_long")
    with connection.transaction():
        source_id, _, is_disabled, _ = _lock(connection, name)
        if is_disabled:
            raise UserError(f"{name} is disabled already.", name="source_disabled_already")
        connection.execute(DISABLE, {"id": source_id})
        _record(connection, "disable_source", source_id, name, who, reason=said or None)


def enable(connection: Conn, name: str, *, who: str) -> None:
    """Take events from a source again. Raises UserError."""
    with connection.transaction():
        source_id, _, is_disabled, _ = _lock(connection, name)
        if not is_disabled:
            raise UserError(f"{name} is enabled already.", name="source_enabled_already")
        connection.execute(ENABLE, {"id": source_id})
        _record(connection, "enable_source", source_id, name, who)


def _select(connection: Conn, name: str | None) -> list[Source]:
    with connection.cursor(row_factory=class_row(Source)) as cursor:
        return cursor.execute(LIST, {"name": name}).fetchall()


def _lock(connection: Conn, name: str) -> tuple[UUID, Scheme, bool, bool]:
    """Its id, scheme, whether it is disabled, and whether two secrets are good."""
    row = one(connection, LOCK, {"name": storable(name)})
    if row is None:
        raise UserError(f"There is no source {storable(name)}.", name="no_source")
    return row[0], row[1], row[2], row[3]


def _made(scheme: Scheme) -> str:
    return new_secret() if scheme == "standard" else random_source.token_hex(32)


def _checked_secret(scheme: Scheme, secret: str) -> str:
    """The secret without the blanks that copying brings. Raises UserError."""
    used = secret.strip()
    if not used:
        raise UserError(
            "The secret is empty: anybody could sign. Leave it out to have one made.", name="source_secret_empty"
        )
    if len(used) > SECRET_LENGTH_AT_MOST or storable(used) != used:
        raise UserError(
            f"The secret must be text of at most {SECRET_LENGTH_AT_MOST} characters.", name="source_secret_unusable"
        )
    if scheme == "standard":
        try:
            key(used)
        except ValueError:
            raise UserError(
                "The secret is not one of Standard Webhooks: what follows whsec_ must be base64.",
                name="source_secret_not_base64",
            ) from None
    return used


def _check(wanted: NewSource) -> None:
    """Raise UserError for the first thing that cannot be."""
    if not _NAME.fullmatch(wanted.name):
        raise UserError(
            "A source's name is 1 to 63 small letters, digits and hyphens, and begins with no hyphen.",
            name="source_name",
        )
    if wanted.name == OUR_NAME:
        raise UserError(
            f"{OUR_NAME} is what our own events say that they come from: choose another name.", name="source_name_ours"
        )
    if wanted.scheme not in SCHEMES:
        raise UserError(f"The scheme must be one of {', '.join(SCHEMES)}.", name="source_scheme")
    if wanted.read_as not in NORMALISERS:
        raise UserError(f"The normaliser must be one of {', '.join(NORMALISERS)}.", name="source_normaliser")
    if not 1 <= wanted.tolerance_seconds <= TOLERANCE_AT_MOST:
        raise UserError(f"The tolerance is 1 to {TOLERANCE_AT_MOST:,} seconds.", name="source_tolerance")
    if not 1 <= wanted.size_limit <= SIZE_LIMIT_AT_MOST:
        raise UserError(f"The size limit is 1 to {SIZE_LIMIT_AT_MOST:,} bytes.", name="source_size_limit")
    if wanted.signature_header is not None and (
        wanted.scheme != "t-v1" or not _HEADER.fullmatch(wanted.signature_header)
    ):
        raise UserError(
            "The signature's header is the name of a header, and only the scheme t-v1 lets it be chosen.",
            name="source_signature_header",
        )
    if not _is_id_place(wanted.id_from):
        raise UserError(
            "The id is in header:NAME, in pointer:/PATH of the body, or is body-sha256.", name="source_id_from"
        )
    if wanted.paths and wanted.read_as != "json":
        raise UserError("Only the normaliser json is told where things are: choose that one too.", name="source_paths")
    for named, place in wanted.paths.items():
        if named not in FIELDS or not (_is_pointer(place) or _is_header(place)):
            raise UserError(
                f"{storable(named)} cannot be at {storable(place)}: name one of {', '.join(FIELDS)}, at /PATH in the body or "
                "in header:NAME.",
                name="source_paths",
            )


def _is_id_place(place: str) -> bool:
    if place in (ID_FROM, "body-sha256") or _is_header(place):
        return True
    kind, _, pointer = place.partition(":")
    return kind == "pointer" and _is_pointer(pointer)


def _is_header(place: str) -> bool:
    kind, _, name = place.partition(":")
    return kind == "header" and _HEADER.fullmatch(name) is not None


def _is_pointer(place: str) -> bool:
    return len(place) <= _POINTER_LENGTH_AT_MOST and _POINTER.fullmatch(place) is not None


def _record(connection: Conn, what: str, source_id: UUID, name: str, who: str, **details: Any) -> None:
    audit.record(connection, who=who, what=what, target_type="source", target_id=source_id, source=name, **details)
