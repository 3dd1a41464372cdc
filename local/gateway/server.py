"""The gateway's page and the receiver behind it, on one port.

    GET /gateway/    GET /gateway/state    POST /gateway/send    POST | DELETE /gateway/faults    POST /gateway/act
    POST /hook       where deliveries arrive

The page asks for the state twice a second while it is looked at; everything else that it needs is a file in `static/`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import anyio.to_thread
import psycopg
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from local.gateway import look
from local.gateway.demo import SOURCE, prepare, put_away
from local.gateway.desk import act
from local.gateway.switches import RULES, Switches
from local.phone.server import HEADERS, json_object, only_json
from local.phone.server import STATIC as SHARED
from local.standins.receiver import ReceiverStandIn
from local.standins.vendor import HOWS, TYPES, Vendor
from shared.clients.guard import Guard
from shared.errors import UserError
from shared.secrets import open_vault
from shared.settings import load

STATIC = Path(__file__).parent / "static"
OF_THE_PHONE = ("dom.js", "language.js", "switches.js", "phone.css", "icon.svg")  # both pages look alike
SECONDS_KEPT = 0.25  # a look at the database serves all pages that are open

Endpoint = Callable[[Request], Awaitable[Response]]


class Gateway:
    """A context manager: the vendor, the receiver and their page. `environment` tells where the database is, by then."""

    def __init__(self, environment: Mapping[str, str], *, host_url: str, port: int = 0) -> None:
        self._environment, self._host_url = environment, host_url
        self.vendor = Vendor(f"{host_url}/api/events/{SOURCE}")
        self.receiver = ReceiverStandIn(port=port)
        self._switches = Switches(self.receiver.faults)
        self._looking = threading.Lock()
        self._looked_at = 0.0
        self._seen: dict[str, Any] = {}
        self.receiver.add_routes(self._routes())

    @property
    def url(self) -> str:
        """The page."""
        return f"{self.receiver.url}/gateway/"

    @property
    def allowed_host(self) -> str:
        """What OUTBOUND_ALLOW_HOSTS must name for deliveries to arrive here."""
        return f"127.0.0.1:{self.receiver.port}"

    def __enter__(self) -> Self:
        self.receiver.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.vendor.close()
        self.receiver.stop()

    def prepare(self) -> None:
        """Have the source and the endpoint in the database, which is migrated by now."""
        settings = load(self._environment)
        vault, guard = open_vault(settings.secrets_key), Guard(settings.outbound_allow_hosts)
        with self._connection() as connection:
            found = prepare(connection, vault=vault, guard=guard, hook_url=self.receiver.hook_url)
        self.vendor.secret, self.receiver.secrets = found.vendor, [found.receiver]

    def put_away(self) -> None:
        """The endpoint is disabled until the next `up`; a database that is away is left as it is."""
        with contextlib.suppress(psycopg.Error, UserError), self._connection() as connection:
            put_away(connection)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self._environment["DATABASE_URL"], autocommit=True, connect_timeout=5) as connection:
            yield connection

    def _routes(self) -> list[Route]:
        async def page(_: Request) -> Response:
            return FileResponse(STATIC / "index.html", headers=HEADERS)

        async def static(request: Request) -> Response:
            name = request.path_params["name"]
            path = (SHARED if name in OF_THE_PHONE else STATIC) / name
            if path.parent not in (SHARED, STATIC) or not path.is_file():
                return Response("Not found", 404)
            return FileResponse(path, headers=HEADERS)

        async def state(_: Request) -> Response:
            return JSONResponse(await anyio.to_thread.run_sync(self._state), headers={"Cache-Control": "no-store"})

        async def send(request: Request) -> Response:
            given = await json_object(request)
            kind, how = given.get("type"), given.get("how", HOWS[0])
            if kind not in TYPES or how not in HOWS:
                return _refused(f"type must be one of {', '.join(TYPES)}, and how one of {', '.join(HOWS)}")
            return JSONResponse({"message_id": self.vendor.send(kind, how).message_id}, 201)

        async def faults(request: Request) -> Response:
            given = await json_object(request)
            try:
                if request.method == "DELETE":
                    self._switches.turn_all_off()
                else:
                    self._switches.turn(str(given["name"]), bool(given["on"]))
            except KeyError:
                return _refused(f"name must be one of {', '.join(RULES)}, and on given")
            return JSONResponse({"on": self._switches.turned_on()})

        async def do(request: Request) -> Response:
            given = await json_object(request)
            try:
                await anyio.to_thread.run_sync(self._act, given)
            except UserError as refused:
                return JSONResponse({"error": str(refused)}, 409)
            except (KeyError, ValueError):
                return _refused("what must be hurry (job), again (delivery), replay or enable")
            return Response(status_code=204)

        async def home(_: Request) -> Response:
            return RedirectResponse("/gateway/")

        return [
            Route("/", home),
            Route("/gateway", home),
            Route("/gateway/", page),
            Route("/gateway/static/{name}", static),
            Route("/gateway/state", state),
            Route("/gateway/send", only_json(send), methods=["POST"]),
            Route("/gateway/faults", only_json(faults), methods=["POST", "DELETE"]),
            Route("/gateway/act", only_json(do), methods=["POST"]),
        ]

    def _act(self, given: dict[str, Any]) -> None:
        with self._connection() as connection:
            act(connection, str(given.get("what")), given)
        self._looked_at = 0.0

    def _state(self) -> dict[str, Any]:
        """Everything; the database is looked at by one page at a time, and one that is away is said, not fatal."""
        with self._looking:
            if time.monotonic() - self._looked_at >= SECONDS_KEPT:
                try:
                    with self._connection() as connection:
                        self._seen = look.of_gateway(connection)
                except (psycopg.Error, KeyError):
                    self._seen = {"events": None, "endpoint": None}
                self._looked_at = time.monotonic()
            found = dict(self._seen)
        return found | {
            "sent": look.of_vendor(self.vendor), "received": look.of_receiver(self.receiver),
            "switches": list(RULES), "on": self._switches.turned_on(), "types": list(TYPES), "hows": list(HOWS),
            "console": f"{self._host_url}/api/ops", "now": time.time(),
        }  # fmt: skip


def _refused(why: str) -> Response:
    return JSONResponse({"error": why}, 400)
