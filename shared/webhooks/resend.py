"""Sending one delivery again because a person asks: what has arrived, or died, to its own endpoint or to another.

A dead delivery goes to its own endpoint once more as it is: its job runs again. All else is a delivery of its own, which
knows what it repeats. The event and its bytes stay the same, so a receiver that is idempotent acts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from psycopg.rows import dict_row

from shared import audit
from shared.db.pool import Conn, one
from shared.db.text import storable
from shared.errors import UserError
from shared.queue.closing import stated
from shared.queue.elsewhere import SEND_ELSEWHERE, find_endpoint
from shared.queue.replay import restart_row

# Whoever attempts it locks the job before the delivery, and so do we.
LOCK_JOB = """
    SELECT FROM ai_jobs WHERE id = (SELECT job_id FROM webhook_deliveries WHERE id = %(id)s) FOR NO KEY UPDATE
"""
LOCK_DELIVERY = """
    SELECT d.state, d.job_id, n.name AS endpoint, j.status AS job_status, j.closed_at IS NOT NULL AS is_closed
    FROM webhook_deliveries d JOIN webhook_endpoints n ON n.id = d.endpoint_id LEFT JOIN ai_jobs j ON j.id = d.job_id
    WHERE d.id = %(id)s FOR NO KEY UPDATE OF d
"""
IS_BEING_SENT = """
    SELECT FROM webhook_deliveries WHERE replay_of = %(id)s AND endpoint_id = %(endpoint)s AND state = 'waiting'
"""
SEND_AGAIN = """
    WITH delivery AS (
        INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state, replay_of)
        SELECT %(new_delivery)s, event_id, %(endpoint)s, %(new_job)s, 'waiting', id
        FROM webhook_deliveries WHERE id = %(id)s RETURNING id
    )
    INSERT INTO ai_jobs (id, payload, max_attempts)
    SELECT %(new_job)s, jsonb_build_object('type', 'deliver_event', 'delivery_id', id), 8 FROM delivery
"""


@dataclass(frozen=True, slots=True)
class Resent:
    """What will be sent: the delivery itself, or one that was made for it; `to` is the endpoint's name."""

    delivery_id: UUID
    job_id: UUID
    to: str


def resend(connection: Conn, delivery_id: UUID, *, who: str, reason: str, to: str | None = None) -> Resent | None:
    """Send a delivery again, now, to the endpoint that `to` names or to its own. None when there is no such delivery.

    Raises UserError without a reason, for an endpoint that is not there or disabled, and while the delivery is on its way or
    held.
    """
    said, key = stated(reason, "sending it again"), {"id": delivery_id}
    with connection.transaction():
        connection.execute(LOCK_JOB, key)
        with connection.cursor(row_factory=dict_row) as cursor:
            found = cursor.execute(LOCK_DELIVERY, key).fetchone()
        if found is None:
            return None
        _check(found)
        target = found["endpoint"] if to is None else to
        endpoint = find_endpoint(connection, target)
        if one(connection, IS_BEING_SENT, {**key, "endpoint": endpoint}) is not None:
            raise UserError("It is being sent there again already.", name="resend_waiting")
        # A worker that stopped behind its last try's success leaves a dead letter of what has arrived.
        is_dead_letter = found["state"] == "dead" and found["job_status"] == "failed" and not found["is_closed"]
        if is_dead_letter and target == found["endpoint"]:
            restart_row(connection, found["job_id"], who=who, looks_again=True)
            sent = Resent(delivery_id, found["job_id"], target)
        elif is_dead_letter:
            parameters = {"ids": [found["job_id"]], "due_in": [0.0], "to_endpoint": endpoint, "replay_id": None,
                          "who": storable(who), "reason": said}  # fmt: skip
            row = one(connection, SEND_ELSEWHERE, parameters)
            assert row is not None
            sent = Resent(row[1], row[2], target)
        else:
            sent = Resent(uuid4(), uuid4(), target)
            connection.execute(
                SEND_AGAIN,
                {**key, "endpoint": endpoint, "new_delivery": sent.delivery_id, "new_job": sent.job_id},
            )
        audit.record(connection, who=who, what="resend_delivery", target_type="delivery", target_id=delivery_id,
                     to=target, sent_as=sent.delivery_id, jobs=[sent.job_id], reason=said)  # fmt: skip
        return sent


def _check(found: dict[str, Any]) -> None:
    if found["state"] == "held":
        raise UserError("It is held for a person: release its event, or reject it.", name="delivery_held")
    if found["state"] == "rejected":
        raise UserError("Its event was rejected, so it is not sent.", name="delivery_rejected")
    if found["state"] == "waiting" or found["job_status"] in ("pending", "processing"):
        raise UserError("It is still on its way: wait until it has arrived, or died.", name="delivery_waiting")
