"""What a person does on the gateway's page, by the functions that console and command use."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from local.gateway.demo import ENDPOINT
from shared.db.pool import Conn
from shared.errors import UserError
from shared.queue import replays
from shared.queue.dead_letters import Filter
from shared.queue.elsewhere import DELIVERY
from shared.webhooks import endpoints
from shared.webhooks.resend import resend

WHO = "gateway page"
WHY = "from the page of the stand-ins"
REPLAYS_A_SECOND = 5.0

# Nobody wants to watch an hour pass: what waits for its next try is due now. The breaker and the rate still have their say.
HURRY = """
    UPDATE ai_jobs SET next_run_at = now(), updated_at = now()
    WHERE id = %(id)s AND type = 'deliver_event' AND status = 'pending' AND next_run_at > now()
"""


def act(connection: Conn, what: str, given: dict[str, Any]) -> None:
    """Do one of `hurry` (job), `again` (delivery), `replay` and `enable`. Raises UserError, KeyError, ValueError."""
    match what:
        case "hurry":
            connection.execute(HURRY, {"id": UUID(str(given["job"]))})
        case "again":
            resend(connection, UUID(str(given["delivery"])), who=WHO, reason=WHY)
        case "replay":
            wanted = Filter(job_type=DELIVERY, endpoint=ENDPOINT)
            replays.start(connection, wanted, who=WHO, reason=WHY, rate=REPLAYS_A_SECOND)
        case "enable":
            found = endpoints.find_endpoint(connection, ENDPOINT)
            if found is None:
                raise UserError(f"There is no endpoint {ENDPOINT}.", name="no_endpoint")
            endpoints.enable(connection, found.id, who=WHO)
        case _:
            raise KeyError(what)
