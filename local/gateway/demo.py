"""The demo's source and endpoint in the database, and the secrets that its vendor and its receiver then need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from shared.clients.guard import Guard
from shared.db.pool import Conn, one
from shared.secrets import SecretUnreadable, Vault
from shared.webhooks import endpoint_headers, endpoints, sources
from shared.webhooks.endpoints import EndpointSettings
from shared.webhooks.sources import NewSource

SOURCE, ENDPOINT = "demo-vendor", "demo-receiver"
WHO = "up"
STOPPED = "`up` has stopped"
TIMEOUT_SECONDS = 5.0  # short enough to watch one
# What comes in, and our own events by name: so a flagged conversation and a dead letter are seen to arrive.
EVENTS = ("*", "conversation.needs_person", "job.failed")

SEALED_FOR_SOURCE = "SELECT secret FROM webhook_sources WHERE id = %(id)s"
SEALED_FOR_ENDPOINT = "SELECT secret FROM webhook_endpoints WHERE id = %(id)s"


@dataclass(frozen=True, slots=True)
class DemoSecrets:
    """What the vendor signs with, and what the receiver verifies with."""

    vendor: str
    receiver: str


def prepare(connection: Conn, *, vault: Vault, guard: Guard, hook_url: str) -> DemoSecrets:
    """Add the source and the endpoint, or have those of an earlier `up` go on where this receiver is now."""
    return DemoSecrets(_source(connection, vault), _endpoint(connection, vault, guard, hook_url))


def put_away(connection: Conn) -> None:
    """The receiver stops: nobody who works on this database any more should try to reach it."""
    found = endpoints.find_endpoint(connection, ENDPOINT)
    if found is not None and found.disabled_at is None:
        endpoints.disable(connection, found.id, who=WHO, reason=STOPPED)


def _source(connection: Conn, vault: Vault) -> str:
    found = sources.find_source(connection, SOURCE)
    if found is None:
        return sources.add(connection, NewSource(name=SOURCE, scheme="standard"), vault=vault, who=WHO).secret
    if found.disabled_at is not None:
        sources.enable(connection, SOURCE, who=WHO)

    def renew() -> str:
        return sources.rotate(connection, SOURCE, vault=vault, who=WHO, overlap_hours=0).secret

    return _opened(connection, SEALED_FOR_SOURCE, found.id, sources.secret_place(found.id), vault, renew)


def _endpoint(connection: Conn, vault: Vault, guard: Guard, hook_url: str) -> str:
    wanted = EndpointSettings(url=hook_url, events=EVENTS, timeout_seconds=TIMEOUT_SECONDS)
    found = endpoints.find_endpoint(connection, ENDPOINT)
    if found is None:
        return endpoints.add(connection, ENDPOINT, wanted, guard=guard, vault=vault, who=WHO).secret
    endpoint_id = found.id
    if (found.url, tuple(found.events)) != (hook_url, EVENTS):
        endpoints.change(connection, endpoint_id, wanted, seen=found.version, guard=guard, who=WHO)
    if found.disabled_at is not None or found.failures_in_row:
        endpoints.enable(connection, endpoint_id, who=WHO)

    def renew() -> str:
        return endpoints.rotate(connection, endpoint_id, vault=vault, who=WHO, overlap_hours=0)

    place = endpoint_headers.secret_place(endpoint_id)
    return _opened(connection, SEALED_FOR_ENDPOINT, endpoint_id, place, vault, renew)


def _opened(connection: Conn, read: str, of: UUID, place: str, vault: Vault, renew: Callable[[], str]) -> str:
    """Its secret; a new one when another SECRETS_KEY has sealed it."""
    row = one(connection, read, {"id": of})
    assert row is not None
    try:
        return vault.open(bytes(row[0]), place)
    except SecretUnreadable:
        return renew()
