"""The sources as the route knows them: read together, opened, and kept for five seconds in each process.

So a source that was changed or disabled is known everywhere within five seconds. A new source, and a new secret, are known at
once: a name that is not there, or a signature that does not match, is looked for anew before it is refused. Those looks take
turns, and whoever waited for one uses it, so that hostile requests cost one small statement at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from psycopg.rows import class_row

from shared import telemetry
from shared.db.pool import Database
from shared.errors import DatabaseAway
from shared.secrets import SecretUnreadable, Vault
from shared.webhooks.sources import Normaliser, Scheme, secret_place

KEPT_SECONDS = 5.0
WAIT_SECONDS = 1.5  # for a look of somebody else's, for a connection, and for its answer: each

READ = """
    SELECT id, name, scheme, signature_header, id_from, tolerance_seconds, size_limit, normaliser, paths, secret,
        CASE WHEN previous_until > now() THEN previous_secret END AS previous_secret
    FROM webhook_sources WHERE disabled_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class KnownSource:
    """An enabled source, ready to verify: `secrets` are those that are good now, none when the current one cannot be opened."""

    id: UUID
    name: str
    scheme: Scheme
    signature_header: str | None
    id_from: str
    tolerance_seconds: int
    size_limit: int
    normaliser: Normaliser
    paths: Mapping[str, str]
    secrets: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Row:
    id: UUID
    name: str
    scheme: Scheme
    signature_header: str | None
    id_from: str
    tolerance_seconds: int
    size_limit: int
    normaliser: Normaliser
    paths: dict[str, str]
    secret: bytes
    previous_secret: bytes | None


class Registry:
    """What this process knows of the sources."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault
        self._lock = threading.Lock()
        self._known: dict[str, KnownSource] = {}
        self._read_at = float("-inf")

    def find(self, name: str, *, newer_than: float | None = None) -> KnownSource | None:
        """An enabled source, as it was at most five seconds ago, or after `newer_than` (time.monotonic()).

        Raises DatabaseAway, or what the statement raises.
        """
        asked = time.monotonic()
        known = self._as_of(asked - KEPT_SECONDS if newer_than is None else newer_than)
        if name not in known and newer_than is None:
            known = self._as_of(asked)
        return known.get(name)

    def _as_of(self, moment: float) -> dict[str, KnownSource]:
        if self._read_at >= moment:
            return self._known
        if not self._lock.acquire(timeout=WAIT_SECONDS):
            raise DatabaseAway("the sources could not be read in time")
        try:
            if self._read_at < moment:
                began = time.monotonic()
                self._known = self._read()
                self._read_at = began
            return self._known
        finally:
            self._lock.release()

    def _read(self) -> dict[str, KnownSource]:
        with (
            self._database.connection(wait=WAIT_SECONDS, deadline=WAIT_SECONDS) as connection,
            connection.cursor(row_factory=class_row(_Row)) as cursor,
        ):
            rows = cursor.execute(READ).fetchall()
        return {row.name: self._opened(row) for row in rows}

    def _opened(self, row: _Row) -> KnownSource:
        place = secret_place(row.id)
        secrets: tuple[str, ...] = ()
        try:
            secrets = (self._vault.open(row.secret, place),)
            # One that cannot be opened must not close the source: a rotation is the way out when the key was lost.
            if row.previous_secret:
                secrets += (self._vault.open(row.previous_secret, place),)
        except SecretUnreadable:
            telemetry.error("source_unreadable", source=row.name)
        return KnownSource(
            row.id, row.name, row.scheme, row.signature_header, row.id_from, row.tolerance_seconds, row.size_limit,
            row.normaliser, row.paths, secrets,
        )  # fmt: skip
