"""`up`: the whole thing on this machine, without any account; stand-ins for the services that have no settings."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import psycopg
import typer

from cli.console import HOST_URL, make_link
from cli.environment import FOLDER, RUNNING, announce, environment, running, withdraw
from cli.output import Output
from shared.errors import UserError

EMBED_SECONDS = 120.0
MODEL_SECONDS = 0.8  # the stand-in thinks for so long, so that one sees it typing
RESTART_SECONDS = 1.0  # after a host that was killed
STARTS_IN_A_ROW = 5  # a host that ends this often within ten seconds each is broken, not killed


def command(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The host's port.")] = 7071,
    phone_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The phone page's port; 0 takes a free one.")
    ] = 7072,
    gateway_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The webhooks page's port; 0 takes a free one.")
    ] = 7073,
) -> None:
    """Start everything on this machine and print the links; Ctrl-C stops it."""
    from local.functions.server import open_socket
    from local.phone.people import read_people
    from local.stack import Stack

    output = Output()
    if running():
        raise UserError(f"Another `up` is running here (see {RUNNING.name} in .antwoord); stop it first.")
    open_socket(port).close()  # a taken port is said before anything is started
    given = {name: value for name, value in environment().items() if value.strip()}
    host_url = f"http://127.0.0.1:{port}"
    output.note("starting …")
    from local.demo.load import PEOPLE

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    ports = {"phone_port": phone_port, "gateway_port": gateway_port}
    with Stack(FOLDER, given, host_url=host_url, **ports, model_seconds=MODEL_SECONDS) as stack:
        supervisor = Supervisor(stack.environment, port, output)
        stack.environment.setdefault("OPS_AUTH", "local")
        stack.open(read_people(PEOPLE), lambda: _recent_jobs(stack.environment), supervisor.kill)
        _prepare(stack.environment, output)
        stack.gateway.prepare()
        made = {name: value for name, value in stack.environment.items() if given.get(name) != value}
        announce(made | _own(given) | {HOST_URL: host_url})
        try:
            with supervisor.running(stop):
                _wait_for_documents(stack.environment, stop)
                _print_links(stack, host_url)
                stop.wait()
                output.note("stopping …")
        finally:
            withdraw()
            stack.gateway.put_away()
    if supervisor.broken:
        raise UserError(f"The host ended {STARTS_IN_A_ROW} times in a row; its log above says why.")


class Supervisor:
    """Keeps one host running: what was killed is started again."""

    def __init__(self, environment: Mapping[str, str], port: int, output: Output) -> None:
        self._environment, self._port, self._output = environment, port, output
        self._host: Any = None
        self.broken = False

    @contextlib.contextmanager
    def running(self, stop: threading.Event) -> Iterator[None]:
        """Run the host inside; when `stop` is set, or at the end, it is stopped."""
        self._start()
        watching = threading.Thread(target=self._watch, args=(stop,), name="supervisor", daemon=True)
        watching.start()
        try:
            yield
        finally:
            stop.set()
            watching.join()
            self._host.stop()

    def kill(self) -> None:
        """SIGKILL the host, as a crash would; it is started again after a second."""
        self._host.kill()

    def _start(self) -> None:
        from local.host_process import HostProcess

        host = HostProcess(self._environment, port=self._port, arguments=["--queue-standin"])
        self._host = host
        host.start()

    def _watch(self, stop: threading.Event) -> None:
        short_lives, started = 0, time.monotonic()
        while not stop.wait(0.1):
            if self._host.poll() is None:
                continue
            short_lives = short_lives + 1 if time.monotonic() - started < 10 else 0
            if short_lives >= STARTS_IN_A_ROW:
                self.broken = True
                stop.set()
                return
            self._output.note("the host has ended; starting it again")
            if stop.wait(RESTART_SECONDS):
                return
            started = time.monotonic()
            try:
                self._start()
            except UserError as failed:
                self._output.note(str(failed))


def _own(given: Mapping[str, str]) -> dict[str, str]:
    """What the person set for this `up` alone, and commands beside it need as well."""
    from shared.settings import setting_names

    return {name: given[name] for name in setting_names() if name in given}


def _prepare(environment: Mapping[str, str], output: Output) -> None:
    """Settings checked, the database migrated, the demo's documents and people in it."""
    from local.demo.load import load_demo
    from shared.app import open_database
    from shared.db.budget import read_budget, require_room
    from shared.db.migrate import migrate
    from shared.knowledge.ingest import embed_anew
    from shared.settings import load

    settings = load(environment)
    database = open_database(settings)
    try:
        with database.dedicated() as connection:
            require_room(read_budget(connection, settings.db_pool_max))
            for name in migrate(connection):
                output.note(f"migrated: {name}")
            documents, people = load_demo(connection)
            embed_anew(connection, settings.azure_openai_embedding_deployment)
            if documents or people:
                output.note(f"added {documents} demo documents and {people} people")
    finally:
        database.close()


def _wait_for_documents(environment: Mapping[str, str], stop: threading.Event) -> None:
    """The first question should find something: the first embedding takes a few seconds."""
    from local.demo.load import waiting

    ends = time.monotonic() + EMBED_SECONDS
    with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as connection:
        while waiting(connection) and time.monotonic() < ends and not stop.wait(0.1):
            pass


def _recent_jobs(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """The phone page's drawer: the newest jobs with their attempts."""
    from local.phone.messages import messages_of
    from shared.queue.listing import attempts_of, list_jobs

    with psycopg.connect(environment["DATABASE_URL"], autocommit=True) as connection:
        rows = list_jobs(connection, limit=12)
        attempts = attempts_of(connection, [row.id for row in rows])
        messages = messages_of(connection, [row.id for row in rows])
    return [
        {
            "id": str(row.id),
            "type": row.type,
            "status": row.status,
            "conversation_address": row.address,
            "attempts": row.attempts,
            "max_attempts": row.max_attempts,
            "next_run_in_seconds": row.next_run_in,
            "last_error": row.last_error,
            "error_class": row.error_class,
            "messages": messages[row.id],
            "attempts_list": [
                {
                    "started": attempt.started.isoformat(),
                    "ended": attempt.ended.isoformat(),
                    "outcome": attempt.outcome,
                    "error_class": attempt.error_class,
                    "http_status": attempt.http_status,
                    "error": attempt.error,
                }
                for attempt in attempts[row.id]
            ],
        }
        for row in rows
    ]


def _print_links(stack: Any, host_url: str) -> None:
    lines = ["", "Antwoord is running.", ""]
    if stack.twilio is not None:
        lines.append(f"  phone page   {stack.twilio.url}/phone/")
    else:
        lines.append(
            f"  Twilio       set your number's webhook to {stack.environment.get('PUBLIC_BASE_URL', '')}/api/twilio/inbound"
        )
    lines.append(f"  webhooks     {stack.gateway.url}")
    if stack.environment["OPS_AUTH"] == "local":
        with psycopg.connect(stack.environment["DATABASE_URL"], autocommit=True) as connection:
            lines.append(f"  console      {make_link(connection, host_url)}")
    lines += [f"  health       {host_url}/api/health", "", "Ctrl-C stops it."]
    print("\n".join(lines), flush=True)
    sys.stdout.flush()
