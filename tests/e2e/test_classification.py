"""From real failures to what the queue does and a person reads: one table.

Every exception here is raised by a real library on a real socket or a real statement. Each is classified for a call that may
simply be made again and for one that may not, and is then raised by a job, whose attempt must tell the same, without a secret.
"""

from __future__ import annotations

import base64
import email.utils
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import httpx2
import psycopg
import pytest

from shared.clients.azure_openai import AzureOpenAI
from shared.clients.deadline import deadline
from shared.clients.http import DeadlineTransport
from shared.clients.twilio import TwilioLine
from shared.db.pool import Database
from shared.errors import ERROR_TEXT_LIMIT, FailureKind, classify, protect
from shared.queue import store
from shared.queue.job import Job, JobType, Lease
from shared.queue.worker import Limits, Worker
from shared.settings import Settings
from tests.fakes.eventually import eventually
from tests.fakes.faulty_server import (
    Plan,
    Seen,
    answer,
    close_after_reading,
    close_at_once,
    closed_port,
    drips,
    faulty,
    replies,
    reply_and_close,
    silent,
    tls_pair,
)
from tests.fakes.settings import settings

SHORT = 0.5  # seconds; where the time has to run out
SECRET = "sEcReT-0123456789"
ENCODED = base64.b64encode(f"AC{'0' * 32}:{SECRET}".encode()).decode()[-12:]
MESSAGE = "ik ben ziek geweest"  # what an employee wrote
NAMELESS = "does-not-exist.invalid"
TYPE = "embed_record"

AGAIN, COME_BACK, NEVER = FailureKind.TRANSIENT, FailureKind.THROTTLED, FailureKind.PERMANENT
PERHAPS, STORE, KEY = FailureKind.AMBIGUOUS, FailureKind.DATABASE, FailureKind.CREDENTIAL


@dataclass(frozen=True)
class Place:
    """Where a case may fail: the file's database, a role of it that may do nothing, and a server nobody trusts."""

    url: str
    nobody: str
    tls: ssl.SSLContext


@dataclass(frozen=True)
class Case:
    """One failure. `kind` is for a call that may be made again, `once` (the same if absent) for one that may not."""

    name: str
    fail: Callable[[Place], object]
    kind: FailureKind
    error_class: str
    once: FailureKind | None = None
    status: int | None = None
    wait: tuple[float, float] | None = None  # between which `retry_after` is


def known(**changed: str) -> Settings:
    return settings(AZURE_OPENAI_API_KEY=SECRET, TWILIO_AUTH_TOKEN=SECRET, **changed)


def model(*plans: Plan, url: str = "", seconds: float = 5.0) -> Callable[[Place], object]:
    """A chat call whose prompt holds the message, and whose header holds the key."""

    def fail(_: Place) -> object:
        with faulty(*plans or (silent,)) as server:
            client = AzureOpenAI(known(AZURE_OPENAI_ENDPOINT=url or server.url), chat_seconds=seconds)
            return client.answer([{"role": "user", "content": MESSAGE}])

    return fail


def twilio(*plans: Plan, url: str = "", seconds: float = 5.0) -> Callable[[Place], object]:
    def fail(_: Place) -> object:
        with faulty(*plans or (silent,)) as server:
            line = TwilioLine(known(TWILIO_API_BASE_URL=url or server.url), send_seconds=seconds)
            return line.send(to="+31612345678", body=MESSAGE, status_callback=f"https://x.example/?sig={SECRET}")

    return fail


def http(*plans: Plan, host: str = "", tls: bool = False, seconds: float = 5.0) -> Callable[[Place], object]:
    """A plain call over the application's transport, its address full of secrets."""

    def fail(place: Place) -> object:
        with (
            faulty(*plans or (silent,), tls=place.tls if tls else None) as server,
            httpx2.Client(transport=DeadlineTransport(), timeout=seconds) as client,
            deadline(seconds),
        ):
            where = host or f"127.0.0.1:{server.port}"
            address = f"{'https' if tls else 'http'}://user:{SECRET}@{where}/hook?sig={SECRET}&token={SECRET}"
            return client.post(address, content=MESSAGE).raise_for_status()

    return fail


def http_to_no_tls(_: Place) -> object:
    with faulty(lambda visit: visit.connection.sendall(b"220 a mail server\r\n")) as server, deadline(5):
        return httpx2.Client(transport=DeadlineTransport()).get(f"https://127.0.0.1:{server.port}/?sig={SECRET}")


def dial(plan: Plan | None, work: Callable[[socket.socket], object]) -> Callable[[Place], object]:
    """The bare socket."""

    def fail(_: Place) -> object:
        with faulty(plan or silent) as server:
            port = server.port if plan else closed_port()
            with socket.create_connection(("127.0.0.1", port), timeout=SHORT) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                return work(connection)

    return fail


def handshake(place: Place) -> object:
    with faulty(silent, tls=place.tls) as server, socket.create_connection(("127.0.0.1", server.port)) as connection:
        return ssl.create_default_context().wrap_socket(connection, server_hostname="127.0.0.1")


def full_backlog(call: Callable[[str], Callable[[Place], object]]) -> Callable[[Place], object]:
    """A server whose queue of new connections is full: the kernel answers nobody."""

    def fail(place: Place) -> object:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
            fillers = [socket.socket() for _ in range(3)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            try:
                return call(f"http://127.0.0.1:{listener.getsockname()[1]}")(place)
            finally:
                for filler in fillers:
                    filler.close()

    return fail


def execute(*statements: str, **parameters: Any) -> Callable[[Place], object]:
    """Statements of one session, in one transaction."""

    def fail(place: Place) -> object:
        with psycopg.connect(place.url) as connection:
            for statement in statements:
                connection.execute(statement.encode(), parameters if "%(" in statement else None)
            return None

    return fail


def connect(address: str) -> Callable[[Place], object]:
    return lambda place: psycopg.connect(address.format(place=place, port=closed_port(), secret=SECRET))


def deadlock(place: Place) -> object:
    """Two sessions, each with a lock that the other waits for; the second is the one that notices."""
    with psycopg.connect(place.url) as one, psycopg.connect(place.url) as other:
        other.execute("SET deadlock_timeout = '10ms'")
        one.execute("SET deadlock_timeout = '10s'")
        one.execute("SELECT pg_advisory_xact_lock(1)")
        other.execute("SELECT pg_advisory_xact_lock(2)")
        one.pgconn.send_query(b"SELECT pg_advisory_xact_lock(2)")
        waits = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
        eventually(lambda: other.execute(waits, [one.info.backend_pid]).fetchone() == (1,), what="a session that waits")
        return other.execute("SELECT pg_advisory_xact_lock(1)")


def serialization(place: Place) -> object:
    with psycopg.connect(place.url) as one, psycopg.connect(place.url, autocommit=True) as other:
        one.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        one.execute("SELECT FROM job_types")
        other.execute("UPDATE job_types SET failures_in_row = failures_in_row")
        return one.execute("UPDATE job_types SET failures_in_row = failures_in_row")


def lock_timeout(place: Place) -> object:
    with psycopg.connect(place.url) as one, psycopg.connect(place.url) as other:
        one.execute("SELECT FROM job_types FOR UPDATE")
        other.execute("SET lock_timeout = '20ms'")
        return other.execute("SELECT FROM job_types FOR UPDATE")


def terminated(place: Place) -> object:
    with psycopg.connect(place.url) as one, psycopg.connect(place.url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [one.info.backend_pid])
        return one.execute("SELECT pg_sleep(2)")


def pool_is_empty(place: Place) -> object:
    pool = Database(place.url, 1)
    try:
        with pool.connection(), pool.connection(wait=0.1):
            return None
    finally:
        pool.close()


def cut(place: Place) -> object:
    pool = Database(place.url, 1)
    try:
        with pool.connection(deadline=0.1) as connection:
            return connection.execute("SELECT pg_sleep(2)")
    finally:
        pool.close()


def no_tls(_: Place) -> object:
    def refuses(visit: Any) -> None:
        visit.connection.recv(8)
        visit.connection.sendall(b"N")

    with faulty(refuses) as server:
        return psycopg.connect(f"postgresql://u:{SECRET}@127.0.0.1:{server.port}/x?sslmode=require")


def echo(status: int, **headers: str) -> Plan:
    """An error that repeats what it was sent: the key, as it is and in its header, the path, and the message."""

    def said(seen: Seen) -> bytes:
        told = f"{SECRET} is not known: {seen.headers.get('authorization')} came to {seen.path}"
        error = {"message": told, "code": 20001 if "Messages" in seen.path else "a_code", "type": "a_type"}
        whole = {"error": error, "sent": seen.body.decode(), "message": told, "code": 20001, "status": status}
        return answer(status, whole, **headers)

    return replies(said)


def in_a_minute() -> Plan:
    return replies(lambda _: answer(429, {}, Retry_After=email.utils.formatdate(time.time() + 60, usegmt=True)))


HALF = reply_and_close(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
NO_JSON = replies(answer(200, b"<html>", Content_Type="application/json"))
REDIRECT = {"Location": "http://127.0.0.1:1/elsewhere"}
SLOWLY = drips(b"x", 0.02, at_once=b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
NEW_MESSAGE = """
    INSERT INTO messages (conversation_id, from_self, source, body, status)
    VALUES (gen_random_uuid(), false, 'contact', %(text)s, 'no such status')
"""

# fmt: off
CASES = [
    # a connection that never opened: surely nothing was acted on
    Case("model refused", model(url=f"http://127.0.0.1:{closed_port()}"), AGAIN, "connect"),
    Case("model without a name", model(url=f"http://{NAMELESS}"), AGAIN, "connect"),
    Case("model never connects", full_backlog(lambda url: model(url=url, seconds=SHORT)), AGAIN, "connect"),
    Case("twilio refused", twilio(url=f"http://127.0.0.1:{closed_port()}"), AGAIN, "connect"),
    Case("twilio without a name", twilio(url=f"http://{NAMELESS}"), AGAIN, "connect"),
    Case("twilio never connects", full_backlog(lambda url: twilio(url=url, seconds=SHORT)), AGAIN, "connect"),
    Case("http without a name", http(host=NAMELESS), AGAIN, "connect"),
    Case("http to a stranger's certificate", http(tls=True), AGAIN, "connect"),
    Case("http with TLS to who speaks none", http_to_no_tls, AGAIN, "connect"),
    Case("socket refused", dial(None, lambda _: None), AGAIN, "connect"),
    Case("socket without a name", lambda _: socket.create_connection((NAMELESS, 80)), AGAIN, "connect"),
    Case("socket to a stranger's certificate", handshake, AGAIN, "connect"),

    # a connection that went silent or broke: the request may have been acted on
    Case("model silent", model(silent, seconds=SHORT), AGAIN, "timeout", PERHAPS),
    Case("model drips", model(SLOWLY, seconds=SHORT), AGAIN, "timeout", PERHAPS),
    Case("model drops", model(close_after_reading), AGAIN, "dropped", PERHAPS),
    Case("model resets", model(close_at_once), AGAIN, "dropped", PERHAPS),
    Case("model breaks off", model(HALF), AGAIN, "dropped", PERHAPS),
    Case("model sends no JSON", model(NO_JSON), AGAIN, "broken_answer", AGAIN),
    Case("twilio silent", twilio(silent, seconds=SHORT), AGAIN, "timeout", PERHAPS),
    Case("twilio drips", twilio(SLOWLY, seconds=SHORT), AGAIN, "timeout", PERHAPS),
    Case("twilio drops", twilio(close_after_reading), AGAIN, "dropped", PERHAPS),
    Case("twilio resets", twilio(close_at_once), AGAIN, "dropped", PERHAPS),
    Case("twilio breaks off", twilio(HALF), AGAIN, "dropped", PERHAPS),
    Case("twilio sends no JSON", twilio(NO_JSON), PERHAPS, "broken_answer"),
    Case("http drops", http(close_after_reading), AGAIN, "dropped", PERHAPS),
    Case("socket silent", dial(silent, lambda it: it.recv(1)), AGAIN, "timeout", PERHAPS),
    Case("socket reset", dial(close_at_once, lambda it: it.recv(1)), AGAIN, "dropped", PERHAPS),

    # an answer with a status
    *(Case(f"model {status}", model(echo(status)), NEVER, "rejected", status=status) for status in (400, 404, 413, 422)),
    *(Case(f"model {status}", model(echo(status)), KEY, "credential", status=status) for status in (401, 403)),
    *(Case(f"model {status}", model(echo(status)), AGAIN, "unavailable", PERHAPS, status)
      for status in (408, 409, 425, 500, 502, 503, 504, 529)),
    *(Case(f"model {status}", model(echo(status, **REDIRECT)), NEVER, "rejected", status=status) for status in (302, 307)),
    Case("model filters", model(replies(answer(400, {"error": {"code": "content_filter"}}))), NEVER, "content_filter",
         status=400),
    *(Case(f"twilio {status}", twilio(echo(status)), NEVER, "rejected", status=status) for status in (400, 404, 422)),
    *(Case(f"twilio {status}", twilio(echo(status)), KEY, "credential", status=status) for status in (401, 403)),
    *(Case(f"twilio {status}", twilio(echo(status)), AGAIN, "unavailable", PERHAPS, status) for status in (409, 500, 503)),
    Case("twilio 302", twilio(echo(302, **REDIRECT)), NEVER, "rejected", status=302),
    Case("http 410", http(echo(410)), NEVER, "rejected", status=410),
    Case("http 301", http(echo(301, **REDIRECT)), NEVER, "rejected", status=301),
    Case("http 502", http(echo(502)), AGAIN, "unavailable", PERHAPS, 502),

    # when to come back
    Case("model 429", model(echo(429)), AGAIN, "throttled", status=429),
    Case("model 429 in seconds", model(echo(429, Retry_After="7")), COME_BACK, "throttled", None, 429, (7, 7)),
    Case("model 429 in ms", model(echo(429, retry_after_ms="1500")), COME_BACK, "throttled", None, 429, (1.5, 1.5)),
    Case("model 429 by date", model(in_a_minute()), COME_BACK, "throttled", None, 429, (55, 60)),
    Case("model 429 in 31 years", model(echo(429, Retry_After="1000000000")), COME_BACK, "throttled", None, 429, (900, 900)),
    Case("model 429 in 9999", model(echo(429, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT")), COME_BACK, "throttled", None,
         429, (900, 900)),
    Case("model 429 in 1970", model(echo(429, Retry_After="Thu, 01 Jan 1970 00:00:00 GMT")), COME_BACK, "throttled", None,
         429, (0, 0)),
    Case("model 429 before now", model(echo(429, Retry_After="-5")), AGAIN, "throttled", status=429),
    Case("model 429 in words", model(echo(429, Retry_After="soon")), AGAIN, "throttled", status=429),
    Case("model 503 in seconds", model(echo(503, Retry_After="7")), COME_BACK, "throttled", PERHAPS, 503, (7, 7)),
    Case("twilio 429 in seconds", twilio(echo(429, Retry_After="7")), COME_BACK, "throttled", None, 429, (7, 7)),
    Case("http 429 in seconds", http(echo(429, Retry_After="7")), COME_BACK, "throttled", None, 429, (7, 7)),

    # our own store is at fault: no attempt is used
    Case("database refused", connect("postgresql://u:{secret}@127.0.0.1:{port}/x"), STORE, "database"),
    Case("database without a name", connect("postgresql://u:{secret}@" + NAMELESS + "/x"), STORE, "database"),
    Case("database without TLS", no_tls, STORE, "database"),
    Case("database that is not there", connect("{place.url}_not"), STORE, "database"),
    Case("database is full of connections", connect("{place.nobody}"), STORE, "database"),
    Case("database ends the session", terminated, STORE, "database"),
    Case("database is read-only", execute("SET TRANSACTION READ ONLY", "DELETE FROM people"), STORE, "database"),
    Case("database takes too long", execute("SET statement_timeout = '20ms'", "SELECT pg_sleep(2)"), STORE, "database"),
    Case("database waits for a lock", lock_timeout, STORE, "database"),
    Case("database deadlocks", deadlock, STORE, "database"),
    Case("database cannot serialize", serialization, STORE, "database"),
    Case("database forgot a grant", execute("SET ROLE classified", "DELETE FROM ai_jobs"), STORE, "database"),
    Case("pool is empty", pool_is_empty, STORE, "database"),
    Case("connection is cut", cut, STORE, "database"),

    # our own statement is at fault: it will be so again
    Case("not a state", execute(NEW_MESSAGE, text=MESSAGE), NEVER, "database_refused"),
    Case("twice", execute("INSERT INTO job_types (type) VALUES ('autoreply')"), NEVER, "database_refused"),
    Case("no such column", execute("SELECT nothing FROM people"), NEVER, "database_refused"),
    Case("no such cast", execute("SELECT %(text)s::uuid", text=MESSAGE), NEVER, "database_refused"),
    Case("not in text", execute("SELECT %(text)s::text", text=MESSAGE + chr(0)), NEVER, "database_refused"),
    Case("too wide for its index", execute("CREATE TEMP TABLE t (a text UNIQUE)", "INSERT INTO t VALUES (%(text)s)",
         text=secrets.token_hex(20_000)), NEVER, "database_refused"),
    Case("by a trigger", execute("DO $$ BEGIN RAISE 'no'; END $$"), NEVER, "database_refused"),
    Case("not supported", execute("SELECT 1 FOR UPDATE OF pg_class"), NEVER, "database_refused"),

    # what nobody expected: most of it passes, and tries are limited
    Case("a mistake", lambda _: [][1], AGAIN, "unexpected", PERHAPS),
]
# fmt: on


def name(case: Case) -> str:
    return case.name.replace(" ", "-")


@pytest.fixture(scope="module")
def place(database: Database, database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    protect(known().secrets())  # as the application does with its own settings
    with database.connection() as connection:
        connection.execute("DROP ROLE IF EXISTS classified")
        connection.execute("CREATE ROLE classified LOGIN CONNECTION LIMIT 0")
    yield Place(
        database_url, database_url.replace("postgres:", "classified:", 1), tls_pair(tmp_path_factory.mktemp("tls"))[0]
    )
    with database.connection() as connection:
        connection.execute("DROP ROLE classified")


@pytest.mark.parametrize("case", CASES, ids=name)
def test_failure(case: Case, place: Place, database: Database) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what the table is about
        case.fail(place)
    error = caught.value
    failure = classify(error)
    assert (failure.kind, failure.error_class) == (case.kind, case.error_class), repr(error)
    assert classify(error, idempotent=False).kind is (case.once or case.kind)
    assert failure.http_status == case.status
    if case.wait is None:
        assert failure.retry_after is None
    else:
        assert failure.retry_after is not None
        assert case.wait[0] <= failure.retry_after <= case.wait[1]
    assert recorded(database, error) == {
        "outcome": "failed" if case.kind in (NEVER, PERHAPS) else "retry" if case.kind is AGAIN else "snoozed",
        "error_class": case.error_class,
        "http_status": case.status,
        "error": failure.text,
    }
    assert len(failure.text) <= ERROR_TEXT_LIMIT
    assert SECRET not in failure.text
    assert ENCODED not in failure.text
    assert MESSAGE not in failure.text


def recorded(database: Database, error: Exception) -> dict[str, Any]:
    """The attempt of a job that raises this."""

    def run(job: Job, lease: Lease) -> NoReturn:
        raise error

    worker = Worker(database, {TYPE: JobType(TYPE, run)}, lambda _: None, Limits())
    with database.connection() as connection:
        connection.execute("UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL")
        job = store.enqueue(connection, {"type": TYPE})
    assert worker.poll_once(1) == 1
    with database.connection() as connection, connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        attempts = cursor.execute(
            "SELECT outcome, error_class, http_status, error FROM job_attempts WHERE job_id = %s", [job]
        ).fetchall()
        connection.execute("UPDATE ai_jobs SET next_run_at = 'infinity' WHERE status = 'pending'")
    [attempt] = attempts
    return attempt
