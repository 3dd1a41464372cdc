"""A ping: one request to an endpoint, signed like any delivery, whose answer a person is shown.

It is no delivery: nothing of it is stored but a line in the audit log, and it is not tried again. A disabled endpoint is sent one
too, so that it can be tried before it is enabled.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from psycopg.rows import class_row

from shared import audit
from shared.db.pool import Conn
from shared.errors import UserError
from shared.secrets import Vault
from shared.webhooks.deliver import OWN_SOURCE
from shared.webhooks.endpoint_headers import open_headers, open_secrets
from shared.webhooks.normalise import public_id, render
from shared.webhooks.sending import Answer, Sender, Target

TYPE = "ping"
ANSWER_LIMIT = 500  # characters that are shown

READ = """
    SELECT id, name, url, secret, CASE WHEN previous_until > now() THEN previous_secret END AS previous_secret,
        signature_header, headers, timeout_seconds, now() AS now
    FROM webhook_endpoints WHERE id = %(id)s
"""


@dataclass(frozen=True, slots=True)
class _Row:
    id: UUID
    name: str
    url: str
    secret: bytes
    previous_secret: bytes | None
    signature_header: str
    headers: bytes | None
    timeout_seconds: float
    now: datetime


@dataclass(frozen=True, slots=True)
class Prepared:
    """A ping that is ready to be sent."""

    endpoint_id: UUID
    name: str
    target: Target
    message_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Pinged:
    """What came back. `result` is `accepted` or the class of what is wrong; `sentence` says it in English."""

    result: str
    sentence: str
    http_status: int | None
    duration_ms: float
    answer: str

    @property
    def is_accepted(self) -> bool:
        """Whether a delivery would have arrived."""
        return self.result == "accepted"


def prepare(connection: Conn, endpoint_id: UUID, *, vault: Vault) -> Prepared:
    """Make a ping for an endpoint. Raises UserError when there is none, SecretUnreadable."""
    with connection.cursor(row_factory=class_row(_Row)) as cursor:
        row = cursor.execute(READ, {"id": endpoint_id}).fetchone()
    if row is None:
        raise UserError(f"There is no endpoint {endpoint_id}.", name="no_endpoint")
    target = Target(
        url=row.url,
        secrets=open_secrets(row.secret, row.previous_secret, row.id, vault),
        signature_header=row.signature_header,
        headers=open_headers(row.headers, row.id, vault),
        timeout_seconds=row.timeout_seconds,
    )
    event = uuid4()
    body = render(event, TYPE, OWN_SOURCE, row.name, row.now, {"endpoint_id": str(row.id)})
    return Prepared(row.id, row.name, target, public_id(event), body)


def ping(prepared: Prepared, sender: Sender) -> Pinged:
    """Send it, with no connection to the database held meanwhile. What goes wrong is in the result."""
    answer = sender.send(prepared.target, prepared.body, message_id=prepared.message_id, idempotency_key=str(uuid4()))
    result = answer.failure.error_class if answer.failure else "accepted"
    sentence = _sentence(answer, prepared.target)
    return Pinged(result, sentence, answer.http_status, answer.duration_ms, answer.text[:ANSWER_LIMIT])


def record(connection: Conn, prepared: Prepared, pinged: Pinged, *, who: str) -> None:
    """Write down that somebody sent a ping, and what came of it."""
    audit.record(
        connection, who=who, what="test_endpoint", target_type="endpoint", target_id=prepared.endpoint_id,
        endpoint=prepared.name, result=pinged.result, http_status=pinged.http_status,
    )  # fmt: skip


def _sentence(answer: Answer, target: Target) -> str:
    took = f"{answer.duration_ms:,.0f} ms"
    failure = answer.failure
    if failure is None:
        return f"It accepted the ping: HTTP {answer.http_status} in {took}."
    said = failure.text.rstrip(".")
    if answer.http_status is not None:
        return f"It did not accept the ping in {took}: {said}{_hint(answer.http_status)}."
    match failure.error_class:
        case "address_refused" | "bad_host_name":
            return f"Nothing was sent: {said}."
        case "connect":
            return f"No connection could be opened: {said}."
        case "timeout":
            return f"There was no whole answer within its {target.timeout_seconds:g} s, so nobody can tell if it was taken."
        case "dropped":
            return f"The connection broke after {took}, so nobody can tell if it was taken: {said}."
        case _:
            return f"The ping failed after {took}: {said}."


def _hint(status: int) -> str:
    match status:
        case 401 | 403:
            return " (another secret than the one shown here, or a header that it wants?)"
        case 404 | 405:
            return " (is this the URL that takes webhooks by POST?)"
        case _:
            return ""
