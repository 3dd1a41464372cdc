"""`GET /api/metrics`: the queue and the four figures of the deliveries for Prometheus, from SQL at each look.

All are gauges: counters that are read from tables would fall when old rows are forgotten. The figures of the deliveries are
over the last five minutes and the last hour (`window`); what nothing is known of in a window has no sample there.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

import psycopg

from shared.db.pool import Conn, Database, is_lost
from shared.errors import DatabaseAway
from shared.queue import types
from shared.queue.health import VERSION
from shared.queue.types import TypeRow
from shared.request import Request, Response
from shared.settings import Settings
from shared.webhooks import figures
from shared.webhooks.exposition import CONTENT_TYPE, Gauge, exposed
from shared.webhooks.figures import Figures, Report

POOL_WAIT_SECONDS = 2.0
WINDOWS: Final = {"5m": 300.0, "1h": 3600.0}

ENDPOINTS = """
    SELECT id, name, open_until IS NOT NULL AS is_open, disabled_at IS NOT NULL AS is_disabled
    FROM webhook_endpoints ORDER BY name
"""

type Samples = list[tuple[Mapping[str, str], float | None]]


def answer(request: Request, settings: Settings, database: Database) -> Response:
    """404 without METRICS_TOKEN, 401 without it as a bearer token, 503 when the database is away."""
    if not settings.metrics_token:
        return Response(404, "There is nothing here.")
    if not _is_bearer(request.headers.get("authorization", ""), settings.metrics_token):
        return Response(401, "This needs METRICS_TOKEN as a bearer token.", headers={"WWW-Authenticate": "Bearer"})
    try:
        with database.connection(wait=POOL_WAIT_SECONDS) as connection:
            return Response(200, read(connection), CONTENT_TYPE)
    except DatabaseAway:
        return _AWAY
    except psycopg.Error as error:
        if not is_lost(error):
            raise
        return _AWAY


def read(connection: Conn) -> str:
    """The metrics of this moment."""
    kinds = types.list_types(connection)
    endpoints = connection.execute(ENDPOINTS).fetchall()
    reports = {
        window: figures.read(connection, figures.last(connection, seconds)) for window, seconds in WINDOWS.items()
    }
    names = {row[0]: str(row[1]) for row in endpoints}
    now = next(iter(reports.values()))
    return exposed(
        (
            Gauge("antwoord_info", "The version that answers.", [({"version": VERSION}, 1)]),
            *_queue(kinds),
            Gauge(
                "antwoord_endpoint_open",
                "1 while the endpoint's breaker is open: one delivery at a time is tried.",
                [({"endpoint": str(name)}, int(is_open)) for _, name, is_open, _ in endpoints],
            ),
            Gauge(
                "antwoord_endpoint_disabled",
                "1 while nothing is delivered to the endpoint.",
                [({"endpoint": str(name)}, int(is_disabled)) for _, name, _, is_disabled in endpoints],
            ),
            Gauge(
                "antwoord_deliveries_waiting",
                "Deliveries that wait for their first try or another.",
                [({"endpoint": name}, now.of(of).waiting_now) for of, name in names.items()],
            ),
            Gauge(
                "antwoord_deliveries_retrying",
                "Deliveries that have been tried and wait for another try.",
                [({"endpoint": name}, now.of(of).waiting_again) for of, name in names.items()],
            ),
            *_deliveries("delivery", reports, {None: {}}),
            *_deliveries("endpoint", reports, {of: {"endpoint": name} for of, name in names.items()}),
        )
    )


def _queue(kinds: list[TypeRow]) -> Iterator[Gauge]:
    yield Gauge(
        "antwoord_jobs",
        "Jobs by type and state; failed ones are the dead letters that nobody has closed.",
        [
            ({"type": kind.type, "state": state}, number)
            for kind in kinds
            for state, number in (("pending", kind.waiting), ("processing", kind.running), ("failed", kind.dead))
        ],
    )
    yield Gauge("antwoord_jobs_due", "Pending jobs whose time has come.", [({"type": k.type}, k.due) for k in kinds])
    yield Gauge(
        "antwoord_oldest_due_seconds",
        "How long the oldest due job has waited; 0 when none is due.",
        [({"type": kind.type}, kind.oldest_due_seconds or 0.0) for kind in kinds],
    )
    yield Gauge(
        "antwoord_dead_letters", "Dead letters that nobody has closed.", [({"type": k.type}, k.dead) for k in kinds]
    )
    yield Gauge(
        "antwoord_job_type_paused",
        "1 while nothing of the type is begun.",
        [({"type": k.type}, int(k.paused)) for k in kinds],
    )
    yield Gauge(
        "antwoord_job_type_resting",
        "1 while the type rests because the other side does not work.",
        [({"type": kind.type}, int(kind.resting_until is not None)) for kind in kinds],
    )


def _deliveries(
    what: str, reports: Mapping[str, Report], labels: Mapping[UUID | None, Mapping[str, str]]
) -> Iterator[Gauge]:
    """The four figures of all endpoints together (`what` is delivery) or of each (endpoint)."""
    found: list[tuple[dict[str, str], Figures]] = [
        ({**named, "window": window}, report.total if of is None else report.of(of))
        for of, named in labels.items()
        for window, report in reports.items()
    ]
    yield Gauge(
        f"antwoord_{what}_first_tries",
        "Deliveries whose first try ended in the window.",
        [(of, one.first_tries) for of, one in found],
    )
    yield Gauge(
        f"antwoord_{what}_first_attempt_success_ratio",
        "The share of them that the first try delivered, 0 to 1.",
        [(of, one.first_attempt_success) for of, one in found],
    )
    yield Gauge(
        f"antwoord_{what}_tries_mean",
        "Tries that a delivered one took on average.",
        [(of, one.mean_tries) for of, one in found],
    )
    yield Gauge(
        f"antwoord_{what}_tries_max",
        "Tries of the delivered one that took most.",
        [(of, one.most_tries) for of, one in found],
    )
    yield Gauge(
        f"antwoord_{what}_dead_letters_per_minute",
        "Deliveries that died in the window, a minute.",
        [(of, one.died_a_minute) for of, one in found],
    )
    quantiles: Samples = [
        ({**of, "quantile": quantile}, seconds)
        for of, one in found
        if one.latency
        for quantile, seconds in (("0.5", one.latency.p50), ("0.95", one.latency.p95), ("0.99", one.latency.p99))
    ]
    yield Gauge(f"antwoord_{what}_latency_seconds", "From receipt to the endpoint's 2xx.", quantiles)


def _is_bearer(header: str, token: str) -> bool:
    """Whether the header brings the token. Digests are compared, so that not even the length shows in the time that it takes."""
    scheme, _, given = header.partition(" ")
    same = hmac.compare_digest(_digest(given.strip()), _digest(token))
    return same and scheme.lower() == "bearer"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


_AWAY = Response(503, "The database does not answer.")
