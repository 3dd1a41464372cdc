"""The routes by which tests and people disturb the Twilio stand-in, beside its faults.

GET | POST | DELETE /_conditions    read some, change some ({"redacted": true}), all as at first
POST /_foreign {"to": …, "body": …} somebody else who uses the account writes to an address
POST /_age {"seconds": 30}          so much time passes for every message
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from local.standins.twilio_conditions import BadCondition, Conditions
from local.standins.twilio_messages import MessageStore

FOREIGN = "Dit bericht is door een ander systeem verstuurd."


def admin_routes(conditions: Conditions, messages: MessageStore, place: Callable[[str, str], str]) -> list[Route]:
    """The routes; `place(to, body)` puts a foreign message into the list and gives its sid."""

    async def write_foreign(request: Request) -> Response:
        given = await json_object(request)
        if isinstance(given, Response):
            return given
        if not isinstance(to := given.get("to"), str):
            return JSONResponse({"error": "a JSON object with to is needed"}, 400)
        return JSONResponse({"sid": place(to, str(given.get("body") or FOREIGN))}, 201)

    async def let_time_pass(request: Request) -> Response:
        given = await json_object(request)
        if isinstance(given, Response):
            return given
        if not isinstance(seconds := given.get("seconds"), int | float):
            return JSONResponse({"error": "a JSON object with seconds is needed"}, 400)
        messages.age(seconds)
        return Response(status_code=204)

    async def change_conditions(request: Request) -> Response:
        if request.method == "DELETE":
            conditions.reset()
        if request.method == "POST":
            given = await json_object(request)
            if isinstance(given, Response):
                return given
            try:
                conditions.change(given)
            except BadCondition as wrong:
                return JSONResponse({"error": str(wrong)}, 400)
        return JSONResponse(conditions.as_dict())

    return [
        Route("/_foreign", write_foreign, methods=["POST"]),
        Route("/_age", let_time_pass, methods=["POST"]),
        Route("/_conditions", change_conditions, methods=["GET", "POST", "DELETE"]),
    ]


async def json_object(request: Request) -> dict[str, Any] | Response:
    """The JSON object that was posted, or the refusal: a foreign page in the same browser cannot send JSON unasked."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return JSONResponse({"error": "send JSON"}, 415)
    try:
        given = await request.json()
    except ValueError:
        given = None
    return given if isinstance(given, dict) else JSONResponse({"error": "a JSON object is needed"}, 400)
