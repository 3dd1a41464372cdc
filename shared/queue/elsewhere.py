"""Sending dead deliveries to another endpoint than their own: which endpoints there are, and the statement that does it."""

from __future__ import annotations

from uuid import UUID

from shared.db.pool import Conn, one
from shared.db.text import storable
from shared.errors import UserError

DELIVERY = "deliver_event"  # the type of the jobs that can go to another endpoint

ENDPOINT = "SELECT id, disabled_at IS NOT NULL FROM webhook_endpoints WHERE name = %(name)s"
ENDPOINT_NAMES = "SELECT name FROM webhook_endpoints WHERE disabled_at IS NULL ORDER BY name"
# Each goes there as a delivery of its own.
SEND_ELSEWHERE = """
    SELECT dead_job, new_delivery, new_job
    FROM send_elsewhere(%(ids)s, %(due_in)s, %(to_endpoint)s, %(replay_id)s, %(who)s, %(reason)s)
"""


def find_endpoint(connection: Conn, name: str | None) -> UUID | None:
    """The endpoint of this name, if one is named. Raises UserError when there is none, or it is disabled."""
    if name is None:
        return None
    found = one(connection, ENDPOINT, {"name": storable(name)})
    if found is None:
        raise UserError(f"There is no endpoint {storable(name)}: see `endpoints list`.", name="no_endpoint")
    endpoint_id, is_disabled = found
    if is_disabled:
        raise UserError(f"The endpoint {name} is disabled: enable it first.", name="endpoint_is_disabled")
    return UUID(str(endpoint_id))


def endpoint_names(connection: Conn) -> list[str]:
    """The endpoints that deliveries can be sent to."""
    return [str(name) for (name,) in connection.execute(ENDPOINT_NAMES)]
