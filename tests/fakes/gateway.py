"""Deliveries for tests: endpoints on loopback that answer as a test says, and events on their way to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

from shared.clients.guard import Guard
from shared.db.pool import Database
from shared.secrets import Vault
from shared.webhooks import endpoints
from shared.webhooks.endpoint_settings import EndpointSettings
from tests.fakes.deliveries import forget_deliveries
from tests.fakes.faulty_server import Seen, Visit, answer, faulty
from tests.fakes.senders import KEY, SECRETS_KEY
from tests.fakes.world import World

VAULT = Vault([KEY])
GUARD = Guard(("127.0.0.1",))
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

# Events whose body is made, each with a delivery and a job, due one after another in the order of their numbers.
ADD_DELIVERIES = """
    WITH made AS MATERIALIZED (
        SELECT n, gen_random_uuid() AS event, gen_random_uuid() AS delivery, gen_random_uuid() AS job
        FROM generate_series(1, %(count)s) n
    ), event AS (
        INSERT INTO webhook_events (id, type, subject, occurred_at, data, body)
        SELECT event, 'response.completed', n::text, now(), '{}', convert_to('{"n":' || n || '}', 'UTF8') FROM made
    ), delivery AS (
        INSERT INTO webhook_deliveries (id, event_id, endpoint_id, job_id, state)
        SELECT delivery, event, %(endpoint)s, job, 'waiting' FROM made
    ), job AS (
        INSERT INTO ai_jobs (id, payload, max_attempts)
        SELECT job, jsonb_build_object('type', 'deliver_event', 'delivery_id', delivery), 8 FROM made ORDER BY n
    )
    SELECT delivery FROM made ORDER BY n
"""
DELIVERY = """
    SELECT d.state, d.tries, j.status, j.attempts, j.error_class, j.last_error, d.last_wait,
        extract(epoch FROM j.next_run_at - j.updated_at)::float8 AS wait
    FROM webhook_deliveries d JOIN ai_jobs j ON j.id = d.job_id WHERE d.id = %(id)s
"""
ATTEMPTS = """
    SELECT try, run, is_probe, outcome, http_status, error_class, error, answer FROM webhook_attempts
    WHERE delivery_id = %(id)s ORDER BY try
"""
ALL_DUE = "UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'"
# Everything that is kept of the past, and everything that is promised, is that much earlier.
PASS_TIME = """
    WITH gone AS (SELECT %(age)s * interval '1 second' AS by), job AS (
        UPDATE ai_jobs SET next_run_at = next_run_at - by FROM gone WHERE status = 'pending'
    ), delivery AS (
        UPDATE webhook_deliveries SET promised_at = promised_at - by, waits_until = waits_until - by FROM gone
    ), attempt AS (
        UPDATE webhook_attempts SET started = started - by, gives_up_at = gives_up_at - by FROM gone WHERE ended IS NULL
    )
    UPDATE webhook_endpoints SET promised_until = promised_until - by, paced_at = paced_at - by, sent_until = sent_until - by,
        open_until = open_until - by, pulled_until = pulled_until - by
    FROM gone
"""

ACCEPTED = answer(200)

type Says = Callable[[Seen], bytes | None]


@dataclass(frozen=True)
class Arrival:
    """One request that came in, and when (seconds of time.monotonic)."""

    at: float
    seen: Seen


class Receiver:
    """A server on loopback; `says` gives the answer to each request, or None to say nothing until `release` is set."""

    def __init__(self, says: Says | bytes = ACCEPTED) -> None:
        self.says: Says | bytes = says
        self.arrivals: list[Arrival] = []
        self.release = threading.Event()
        self.waiting = 0
        self._lock = threading.Lock()
        self._server = faulty(self._serve)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release.set()
        self._server.__exit__(kind, error, at)

    @property
    def url(self) -> str:
        return f"{self._server.url}/hook"

    @property
    def ids(self) -> list[str]:
        """The ids of what came in, in order."""
        return [arrival.seen.headers["webhook-id"] for arrival in self.arrivals]

    def _serve(self, visit: Visit) -> None:
        while True:
            seen = visit.read()
            with self._lock:
                self.arrivals.append(Arrival(time.monotonic(), seen))
            said = self.says if isinstance(self.says, bytes) else self.says(seen)
            if said is None:
                with self._lock:
                    self.waiting += 1
                self.release.wait()
                return
            visit.connection.sendall(said)


@dataclass(frozen=True)
class DeliveryRow:
    """A delivery and its job; `wait` is for how many seconds the worker has put the job off."""

    state: str
    tries: int
    status: str
    attempts: int
    error_class: str | None
    error: str | None
    last_wait: float | None
    wait: float


class Gateway(World):
    """A world without anything of the gateway in it, that may reach loopback."""

    def __init__(self, database: Database, *, is_first: bool = True, **changes: str) -> None:
        super().__init__(database, **{"SECRETS_KEY": SECRETS_KEY, "OUTBOUND_ALLOW_HOSTS": "127.0.0.1"} | changes)
        if is_first:
            forget_deliveries(self)

    def beside(self, **changes: str) -> Gateway:
        """Another process of the same application."""
        return Gateway(self.database, is_first=False, **changes)

    def endpoint(self, url: str, *, headers: dict[str, str] | None = None, **settings: Any) -> UUID:
        """An endpoint that no event goes to by itself."""
        wanted = EndpointSettings(url=url, events=("none",), **{"timeout_seconds": 5.0} | settings)
        with self.database.connection() as connection:
            name = f"e{uuid4().hex[:12]}"
            return endpoints.add(
                connection, name, wanted, guard=GUARD, vault=VAULT, who="test", secret=SECRET, headers=headers
            ).id

    def deliveries(self, endpoint: UUID, count: int = 1) -> list[UUID]:
        """So many new events on their way to it."""
        return [row[0] for row in self.rows(ADD_DELIVERIES, endpoint=endpoint, count=count)]

    def delivery(self, delivery: UUID) -> DeliveryRow:
        return DeliveryRow(*self.rows(DELIVERY, id=delivery)[0])

    def attempts(self, delivery: UUID) -> list[dict[str, Any]]:
        """Its attempts in order."""
        names = ("try", "run", "is_probe", "outcome", "http_status", "error_class", "error", "answer")
        return [dict(zip(names, row, strict=True)) for row in self.rows(ATTEMPTS, id=delivery)]

    def state(self, endpoint: UUID, column: str) -> Any:
        """What the endpoint's row says."""
        return self.value("SELECT to_jsonb(n) ->> %(column)s FROM webhook_endpoints n WHERE id = %(id)s", id=endpoint,
                          column=column)  # fmt: skip

    def all_due(self) -> None:
        self.execute(ALL_DUE)

    def pass_gateway_time(self, seconds: float) -> None:
        """Let time pass for the rows of the gateway and for the queue's due times."""
        self.execute(PASS_TIME, age=seconds)
