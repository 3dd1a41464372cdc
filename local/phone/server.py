"""The phone page's routes, served by the Twilio stand-in.

    GET /phone/    GET /phone/events    POST | DELETE /phone/faults    POST /phone/people    POST /phone/kill

Messages go to the stand-in's own POST /phone/messages. Everything else that the page needs is a file in `static/`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from local.phone.feed import Feed, Jobs
from local.phone.people import Person, is_number
from local.phone.switches import Switches
from local.standins.azure_openai import OpenAIStandIn
from local.standins.twilio import TwilioStandIn

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Endpoint = Callable[[Request], Awaitable[Response]]


def phone_routes(
    twilio: TwilioStandIn,
    openai: OpenAIStandIn | None,
    people: Sequence[Person],
    jobs: Jobs | None = None,
    kill_host: Callable[[], None] | None = None,
) -> list[Route]:
    """The page's routes, to be given to `twilio.add_routes` before it starts.

    `jobs()` gives the recent jobs, newest first, and `kill_host()` stops the host at once; without them these parts of
    the page are hidden, and without `openai` (a real model answers) so are the model's faults.
    """
    switches = Switches(twilio.faults, twilio.conditions, openai.faults if openai is not None else None)
    feed = Feed(twilio, switches, people, jobs, can_kill=kill_host is not None)

    async def page(_: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers=HEADERS)

    async def static(request: Request) -> Response:
        path = STATIC / request.path_params["name"]
        if path.parent != STATIC or not path.is_file():
            return Response("Not found", 404)
        return FileResponse(path, headers=HEADERS)

    async def events(request: Request) -> Response:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(feed.events(request.is_disconnected), 200, headers, "text/event-stream")

    async def faults(request: Request) -> Response:
        given = await json_object(request)
        try:
            if request.method == "DELETE":
                switches.turn_all_off()
            else:
                switches.turn(str(given["name"]), bool(given["on"]))
        except KeyError:
            return JSONResponse({"error": f"name must be one of {', '.join(switches.names())}, and on given"}, 400)
        feed.tell_faults()
        return JSONResponse({"on": switches.turned_on()})

    async def add_person(request: Request) -> Response:
        phone = str((await json_object(request)).get("phone", "")).replace(" ", "").replace("-", "")
        if not is_number(phone):
            return JSONResponse({"error": "phone must be a number such as +31612345678"}, 400)
        feed.add_person(Person(phone, phone))
        return JSONResponse({"phone": phone}, 201)

    async def kill(_: Request) -> Response:
        if kill_host is None:
            return JSONResponse({"error": "there is no host to stop"}, 404)
        await anyio.to_thread.run_sync(kill_host)
        return Response(status_code=204)

    async def home(_: Request) -> Response:
        return RedirectResponse("/phone/")

    return [
        Route("/", home),
        Route("/phone", home),
        Route("/phone/", page),
        Route("/phone/static/{name}", static),
        Route("/phone/events", events),
        Route("/phone/faults", only_json(faults), methods=["POST", "DELETE"]),
        Route("/phone/people", only_json(add_person), methods=["POST"]),
        Route("/phone/kill", only_json(kill), methods=["POST"]),
    ]


def only_json(endpoint: Endpoint) -> Endpoint:
    """Refuse other content types: a foreign page in the same browser cannot send JSON here without asking first."""

    async def guarded(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return JSONResponse({"error": "send JSON"}, 415)
        return await endpoint(request)

    return guarded


async def json_object(request: Request) -> dict[str, Any]:
    """The request's JSON object; an empty one when it holds something else."""
    try:
        given = await request.json()
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}
