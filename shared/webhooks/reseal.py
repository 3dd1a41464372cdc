"""Seal every secret again under the first key of SECRETS_KEY, so that the old key can be thrown away.

Row by row, each replaced only where nobody has changed it since it was read, so it may run while the application does and
be run again after a crash. What the application seals meanwhile with the old key in front is found by another run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, LiteralString
from uuid import UUID

from shared import audit
from shared.db.pool import Conn, one
from shared.secrets import SecretUnreadable, Vault
from shared.webhooks import sources
from shared.webhooks.endpoint_headers import headers_place, secret_place

BATCH = 100

# A previous secret that has ended signs nothing and verifies nothing: it goes, whatever key it is under.
FORGET_OLD_OF_SOURCES = """
    UPDATE webhook_sources SET previous_secret = NULL, previous_until = NULL WHERE previous_until <= now()
"""
FORGET_OLD_OF_ENDPOINTS = """
    UPDATE webhook_endpoints SET previous_secret = NULL, previous_until = NULL WHERE previous_until <= now()
"""
SOURCES = """
    SELECT id, secret FROM webhook_sources WHERE id > %(after)s ORDER BY id LIMIT %(batch)s
"""
SET_SOURCE = "UPDATE webhook_sources SET secret = %(new)s WHERE id = %(id)s AND secret = %(old)s RETURNING id"
OLD_OF_SOURCES = """
    SELECT id, previous_secret FROM webhook_sources
    WHERE id > %(after)s AND previous_secret IS NOT NULL ORDER BY id LIMIT %(batch)s
"""
SET_OLD_OF_SOURCE = """
    UPDATE webhook_sources SET previous_secret = %(new)s WHERE id = %(id)s AND previous_secret = %(old)s RETURNING id
"""
ENDPOINTS = """
    SELECT id, secret FROM webhook_endpoints WHERE id > %(after)s ORDER BY id LIMIT %(batch)s
"""
SET_ENDPOINT = "UPDATE webhook_endpoints SET secret = %(new)s WHERE id = %(id)s AND secret = %(old)s RETURNING id"
OLD_OF_ENDPOINTS = """
    SELECT id, previous_secret FROM webhook_endpoints
    WHERE id > %(after)s AND previous_secret IS NOT NULL ORDER BY id LIMIT %(batch)s
"""
SET_OLD_OF_ENDPOINT = """
    UPDATE webhook_endpoints SET previous_secret = %(new)s WHERE id = %(id)s AND previous_secret = %(old)s RETURNING id
"""
HEADERS = """
    SELECT id, headers FROM webhook_endpoints
    WHERE id > %(after)s AND headers IS NOT NULL ORDER BY id LIMIT %(batch)s
"""
SET_HEADERS = "UPDATE webhook_endpoints SET headers = %(new)s WHERE id = %(id)s AND headers = %(old)s RETURNING id"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of sealed secrets: how it is read, how one is replaced, and what place it is sealed for."""

    read: LiteralString
    replace: LiteralString
    place: Callable[[UUID], str]


# A rotation moves the current secret to the previous one: who reads the current ones first meets it at least once.
COLUMNS: Final[Sequence[_Column]] = (
    _Column(SOURCES, SET_SOURCE, sources.secret_place),
    _Column(OLD_OF_SOURCES, SET_OLD_OF_SOURCE, sources.secret_place),
    _Column(ENDPOINTS, SET_ENDPOINT, secret_place),
    _Column(OLD_OF_ENDPOINTS, SET_OLD_OF_ENDPOINT, secret_place),
    _Column(HEADERS, SET_HEADERS, headers_place),
)
_FIRST = UUID(int=0)


@dataclass(slots=True)
class Resealed:
    """What became of the secrets: `done` now, `already` under the first key, `changed` by somebody else meanwhile.

    `unreadable` are the places whose secret no key opens.
    """

    done: int = 0
    already: int = 0
    changed: int = 0
    unreadable: list[str] = field(default_factory=list)


def reseal(connection: Conn, keys: Sequence[bytes], *, who: str, batch: int = BATCH) -> Resealed:
    """Seal all secrets under `keys[0]`; an unreadable one is told and does not stop the others."""
    vault, newest, found = Vault(keys), Vault(keys[:1]), Resealed()
    connection.execute(FORGET_OLD_OF_SOURCES)
    connection.execute(FORGET_OLD_OF_ENDPOINTS)
    for column in COLUMNS:
        after = _FIRST
        while rows := connection.execute(column.read, {"after": after, "batch": batch}).fetchall():
            for row_id, sealed in rows:
                replace_one(connection, column, row_id, bytes(sealed), vault, newest, found)
            after = rows[-1][0]
    if found.done:
        audit.record(connection, who=who, what="reseal_secrets", target_type="secrets", count=found.done)
    return found


def replace_one(
    connection: Conn, column: _Column, row_id: UUID, sealed: bytes, vault: Vault, newest: Vault, found: Resealed
) -> None:
    """Replace one secret, if it is still the one that was read."""
    place = column.place(row_id)
    try:
        secret = vault.open(sealed, place)
    except SecretUnreadable:
        found.unreadable.append(place)
        return
    if _opens(newest, sealed, place):
        found.already += 1
    elif one(connection, column.replace, {"id": row_id, "old": sealed, "new": newest.seal(secret, place)}):
        found.done += 1
    else:
        found.changed += 1


def _opens(vault: Vault, sealed: bytes, place: str) -> bool:
    try:
        vault.open(sealed, place)
    except SecretUnreadable:
        return False
    return True
