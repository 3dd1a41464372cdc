"""How a cell of the fault matrix is played: the real application and client, the stand-ins, and time that is moved by hand."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from local.standins.azure_openai import OpenAIStandIn
from local.standins.faults import What
from local.standins.twilio import TwilioStandIn
from shared.app import App
from shared.clients.twilio import SEND_SECONDS, TwilioLine
from shared.conversation import actions
from shared.db.pool import Database
from shared.settings import load
from tests.e2e.matrix import Cell, End
from tests.e2e.running import Inside, embed_now
from tests.fakes.faulty_server import closed_port, tls_pair
from tests.fakes.numbers import new_number

HASTY_SECONDS = 0.5  # where the time has to run out: enough for a request to arrive, also on a busy machine
SILENCE_SECONDS = 20.0
FIRST_QUESTION, QUESTION = "Hoe laat moet ik bellen als ik ziek ben?", "Hoeveel vakantie-uren heb ik?"
ANSWER, APOLOGY = "200 vakantie-uren", "Sorry, het lukt me nu niet"
HOUR = 3600.0

# Seconds pass for one conversation: all its times go back.
PASS = """
    WITH past AS (
        SELECT make_interval(secs => %(seconds)s) AS by
    ), jobs AS (
        UPDATE ai_jobs SET next_run_at = next_run_at - by, run_started_at = run_started_at - by,
            created_at = created_at - by, updated_at = updated_at - by
        FROM past WHERE conversation_id = %(id)s
    ), talks AS (
        UPDATE conversations SET last_inbound_at = last_inbound_at - by FROM past WHERE id = %(id)s
    ), stories AS (
        UPDATE message_events e SET at = e.at - by FROM past, messages m
        WHERE m.id = e.message_id AND m.conversation_id = %(id)s
    )
    UPDATE messages SET created_at = created_at - by, send_started_at = send_started_at - by,
        last_lookup_at = last_lookup_at - by, lookups_failing_since = lookups_failing_since - by,
        in_doubt_since = in_doubt_since - by
    FROM past WHERE conversation_id = %(id)s
"""
STATE = """
    SELECT j.status, j.error_class, m.status, m.evidence, m.send_attempt, c.needs_person_reason
    FROM ai_jobs j JOIN conversations c ON c.id = j.conversation_id
    LEFT JOIN messages m ON m.from_self AND (m.reply_id = j.id OR m.id::text = j.payload ->> 'message_id')
    WHERE j.conversation_id = %(id)s AND j.type = %(kind)s ORDER BY j.seq DESC LIMIT 1
"""
HANDBOOK = """# Personeelshandboek

## Vakantie-uren
Bij een voltijdse werkweek heb je 200 vakantie-uren per jaar.

## Ziek melden
Als je ziek bent, moet je vóór 8:30 uur je leidinggevende bellen.
"""


@dataclass(frozen=True)
class State:
    """The newest job of a kind in a conversation, its message, and why a person is asked."""

    job: str
    error_class: str | None
    message: str | None
    evidence: str | None
    attempts: int
    asked: str | None


class Unreachable:
    """Addresses at which Twilio cannot be reached, each in its own way."""

    def __init__(self, folder: Path) -> None:
        self._closing = contextlib.ExitStack()
        self.unknown = "http://twilio.invalid"  # a name that no resolver knows (RFC 6761)
        self.refused = f"http://127.0.0.1:{closed_port()}"
        self.untrusted = self._untrusted(folder)
        self.silent = self._silent()

    def close(self) -> None:
        self._closing.close()

    def _untrusted(self, folder: Path) -> str:
        """A listener with a certificate that nobody has signed."""
        server, _ = tls_pair(folder)
        listener = self._closing.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with contextlib.suppress(OSError), server.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self._closing.callback(listener.shutdown, socket.SHUT_RDWR)
        return f"https://127.0.0.1:{listener.getsockname()[1]}"

    def _silent(self) -> str:
        """A listener whose queue is full: the kernel answers no further attempt to connect."""
        listener = self._closing.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        for _ in range(4):
            waiting = self._closing.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        return f"http://127.0.0.1:{address[1]}"


class Stage:
    """What all cells of a file share: the services, and the application, once for each address of Twilio's."""

    def __init__(
        self, database: Database, openai: OpenAIStandIn, twilio: TwilioStandIn, folder: Path, **changes: str
    ) -> None:
        self.inside = Inside(database, openai, twilio, **changes)
        self.openai, self.twilio, self.world = openai, twilio, self.inside.world
        self.unreachable = Unreachable(folder)
        self._database = database
        self.app = self._application()
        self.holding = self._application(AMBIGUOUS_SEND="hold")
        self.hasty = self._application(HASTY_SECONDS)
        self.elsewhere = {
            address: self._application(HASTY_SECONDS, TWILIO_API_BASE_URL=address)
            for address in (
                self.unreachable.unknown, self.unreachable.refused, self.unreachable.untrusted, self.unreachable.silent,
            )
        }  # fmt: skip
        handbook = folder / "personeelshandboek.md"
        handbook.write_text(HANDBOOK, "utf-8")
        embed_now(self.inside.app, database, [handbook])

    def close(self) -> None:
        self.unreachable.close()

    def _application(self, send_seconds: float = SEND_SECONDS, **changes: str) -> App:
        settings = load(self.inside.environment | changes)
        line = TwilioLine(settings, send_seconds=send_seconds)
        line.prepare()
        return App(settings, database=self._database, line=line)

    def reset(self) -> None:
        """Everything works again, and nothing waits."""
        self.twilio.faults.clear()
        self.twilio.conditions.reset()
        self.world.execute("UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL")
        self.world.force(
            "UPDATE ai_jobs SET status = 'failed', lease_token = NULL, lease_until = NULL"
            " WHERE status IN ('pending', 'processing')"
        )


@dataclass
class Play:
    """One employee, whose first question was answered an hour ago."""

    stage: Stage
    address: str
    conversation_id: UUID

    def state(self, kind: str = "autoreply") -> State:
        return State(*self.stage.world.rows(STATE, id=self.conversation_id, kind=kind)[0])

    def ask(self, question: str = QUESTION) -> None:
        """The employee asks."""
        self.stage.inside.ask(self.address, question)

    def answer(self, text: str) -> None:
        """An administrator answers."""
        with self.stage.world.database.transaction() as connection:
            actions.send_own(connection, self.conversation_id, text, who="a test", seen_seq=0)

    def pass_time(self, seconds: float) -> None:
        """Let seconds pass, for us and at Twilio."""
        with self.stage.world.database.transaction() as connection:
            connection.execute("SELECT FROM conversations WHERE id = %(id)s FOR UPDATE", {"id": self.conversation_id})
            connection.execute("SET LOCAL session_replication_role = replica")
            connection.execute(PASS, {"id": self.conversation_id, "seconds": seconds})
        self.stage.twilio.messages.age(seconds)

    def run(self, app: App | None = None) -> None:
        """Run what is due, also what rests."""
        self.stage.world.execute("UPDATE job_types SET resting_until = now() WHERE resting_until IS NOT NULL")
        (app or self.stage.app).worker.poll_once(8)

    def run_to_the_end(self, app: App | None = None) -> None:
        """Look after look, a quarter of a minute apart at first, until nothing waits any more."""
        for seconds in (*[15.0] * 11, *[600.0] * 5):
            if not self.waits():
                return
            self.pass_time(seconds)
            self.run(app)
        assert not self.waits(), "the job comes to an end"

    def waits(self) -> bool:
        waiting = "SELECT count(*) FROM ai_jobs WHERE conversation_id = %(id)s AND status IN ('pending', 'processing')"
        return bool(self.stage.world.value(waiting, id=self.conversation_id))

    def accepted(self, text: str) -> int:
        """How many messages with this text Twilio has accepted for the employee."""
        return len([body for body in self.stage.inside.sent_to(self.address) if text in body])

    def requests(self, where: str) -> int:
        return len([request for request in self.stage.twilio.requests if request.where == where])


def begin(stage: Stage) -> Play:
    """Somebody whose first question was answered an hour ago, and is known to be: what a look-up must show to count."""
    address = new_number()
    stage.inside.ask(address, FIRST_QUESTION)
    stage.app.worker.poll_once(8)
    found = stage.world.value("SELECT id FROM conversations WHERE address = %(address)s", address=address)
    play = Play(stage, address, cast(UUID, found))
    assert play.state().message in ("sent", "delivered", "read")
    play.pass_time(HOUR)
    return play


# ---- what happens to the request


@dataclass(frozen=True)
class Request:
    """A row: what strikes the first request, and whether Twilio has accepted the message all the same.

    `is_hasty`: whoever sends it waits for less than that takes.
    """

    do: What | None = None
    accepted: bool = False
    where: Callable[[Unreachable], str] | None = None
    more: dict[str, Any] | None = None
    is_hasty: bool = False

    def strike(self, stage: Stage) -> App:
        """Put the fault in place for one request; the application that makes it."""
        if self.where is not None:
            return stage.elsewhere[self.where(stage.unreachable)]
        assert self.do is not None
        stage.twilio.faults.add("create", self.do, times=1, **(self.more or {}))
        return stage.hasty if self.is_hasty else stage.app


REQUESTS = {
    "the name is not found (DNS)": Request(where=lambda at: at.unknown),
    "connection refused": Request(where=lambda at: at.refused),
    "certificate not trusted (TLS)": Request(where=lambda at: at.untrusted),
    "connection never opens": Request(where=lambda at: at.silent),
    "400 refused": Request("status", more={"status": 400, "code": 21211}),
    "401 key refused": Request("status", more={"status": 401, "code": 20003}),
    "403 not allowed": Request("status", more={"status": 403, "code": 20403}),
    "404 not found": Request("status", more={"status": 404, "code": 20404}),
    "429 too many, Retry-After: 7": Request(
        "status", more={"status": 429, "code": 20429, "headers": {"Retry-After": "7"}}
    ),
    "429 too many": Request("status", more={"status": 429, "code": 20429}),
    "no answer in time, not accepted yet": Request("drop_before", more={"seconds": SILENCE_SECONDS}, is_hasty=True),
    "no answer in time, accepted": Request(
        "drop_after", accepted=True, more={"seconds": SILENCE_SECONDS}, is_hasty=True
    ),
    "connection lost, not accepted yet": Request("drop_before"),
    "connection lost, accepted": Request("drop_after", accepted=True),
    "409 conflict": Request("status", more={"status": 409, "code": 20409}),
    "500, not accepted yet": Request("status", more={"status": 500}),
    "502 from a gateway, accepted": Request("status_after", accepted=True, more={"status": 502}),
    "503, not accepted yet": Request("status", more={"status": 503, "headers": {"Retry-After": "7"}}),
    "201 with a broken body, accepted": Request("broken_body", accepted=True),
    "201, one byte at a time, accepted": Request("drip", accepted=True, more={"seconds": 0.05}, is_hasty=True),
}


# ---- what a look-up meets


def meet(stage: Stage, lookup: str) -> None:
    """Make Twilio's list such, before the request."""
    conditions = stage.twilio.conditions
    match lookup:
        case "empty" | "empty, hold":
            conditions.list_lag = HOUR / 2  # what was accepted before is older
        case "after 30 s":
            conditions.list_lag = 30.0
        case "fails":
            stage.twilio.faults.add("list", "status", status=500)
        case "redacted":
            conditions.redacted = True
        case "foreign":
            conditions.foreign = True
        case "clock 20 s":
            conditions.clock_offset = 20.0
        case "clock 90 s":
            conditions.clock_offset = 90.0


def accept_late(stage: Stage, lookup: str) -> None:
    """The connection is gone, and only now Twilio comes to take the message in; for the columns whose list shows it."""
    if lookup in ("shows it", "after 30 s"):
        form = [request for request in stage.twilio.requests if request.where == "create"][-1].pairs
        stage.twilio.accept(form)


def play_cell(
    stage: Stage,
    cell: Cell,
    *,
    play: Play | None = None,
    start: Callable[[Play], None] = Play.ask,
    kind: str = "autoreply",
    text: str = ANSWER,
) -> End:
    """Play one cell; what came of it. `start` makes a job of this kind, whose message has this text."""
    request, play = REQUESTS[cell.request], play or begin(stage)
    meet(stage, cell.lookup)
    asked_model, looked, there = model_calls(stage), play.requests("list"), play.accepted(text)
    start(play)
    play.run(request.strike(stage))
    first = play.state(kind)
    if first.message == "sending" and not request.accepted:
        accept_late(stage, cell.lookup)
    play.run_to_the_end(stage.holding if cell.lookup == "empty, hold" else None)
    last = play.state(kind)
    return End(
        at_first=f"{first.message}, {first.job}",
        message=str(last.message),
        job=last.job,
        employee=play.accepted(text) - there,
        error_class=last.error_class,
        evidence=last.evidence,
        attempts=last.attempts,
        apologies=play.accepted(APOLOGY),
        asked=last.asked,
        looks=play.requests("list") > looked,
        drafts=model_calls(stage) - asked_model,
    )


def model_calls(stage: Stage) -> int:
    return len([request for request in stage.openai.requests if request.path.endswith("/chat/completions")])


@contextlib.contextmanager
def staged(database: Database, folder: Path) -> Iterator[Stage]:
    """The stage of a file. No callback is sent: the list is all the evidence that there is."""
    with OpenAIStandIn() as openai, TwilioStandIn(steps=()) as twilio:
        stage = Stage(database, openai, twilio, folder)
        yield stage
        stage.close()
