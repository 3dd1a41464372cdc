"""The triggers and nothing else: each reads its input, calls one function of shared/, and answers."""

from __future__ import annotations

import asyncio
import json
from functools import cache

import azure.functions as func

from shared.app import from_environment
from shared.clients.wake import QUEUE_NAME
from shared.request import Request, Response

antwoord = from_environment()
app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="twilio/inbound", methods=["POST"])
def twilio_inbound(req: func.HttpRequest) -> func.HttpResponse:
    """A WhatsApp message."""
    return _answer(antwoord.receive_message(_request(req)))


@app.route(route="twilio/status", methods=["POST"])
def twilio_status(req: func.HttpRequest) -> func.HttpResponse:
    """What became of a message of ours."""
    return _answer(antwoord.receive_status(_request(req)))


@app.route(route="events/{source}", methods=["POST"])
def events(req: func.HttpRequest) -> func.HttpResponse:
    """An AI vendor's event."""
    return _answer(antwoord.receive_event(req.route_params["source"], _request(req)))


@app.route(route="health", methods=["GET"])
def health(req: func.HttpRequest) -> func.HttpResponse:
    """Whether this instance can do its work."""
    del req
    status, shown = antwoord.health()
    return func.HttpResponse(json.dumps(shown), status_code=status, mimetype="application/json")


@app.route(route="metrics", methods=["GET"])
def metrics(req: func.HttpRequest) -> func.HttpResponse:
    """The figures, for Prometheus."""
    return _answer(antwoord.metrics(_request(req)))


@app.route(route="ops/{*path}", methods=["GET", "HEAD", "POST"])
async def ops(req: func.HttpRequest, context: func.Context) -> func.HttpResponse:
    """The console."""
    try:
        console = await asyncio.to_thread(_console)
        answer: func.HttpResponse = await console.handle_async(req, context)
    except UnicodeDecodeError:  # of the address, by the library
        from shared.ops.headers import HEADERS

        return func.HttpResponse(
            "This address cannot be read.", status_code=400, headers=HEADERS, mimetype="text/plain"
        )
    return answer


@app.timer_trigger(arg_name="timer", schedule=antwoord.settings.poll_schedule)
def poll(timer: func.TimerRequest) -> None:
    """All periodic work, and every due job: the safety net under the wake messages."""
    del timer
    antwoord.on_timer()


if antwoord.settings.has_storage:

    @app.queue_trigger(arg_name="message", queue_name=QUEUE_NAME, connection="AzureWebJobsStorage")
    def wake(message: func.QueueMessage) -> None:
        """One worker slot."""
        del message
        antwoord.on_wake()


def stopping() -> None:
    """Called by a host that can announce its end; Azure's cannot, and need not."""
    antwoord.stop()


@cache
def _console() -> func.AsgiMiddleware:
    return func.AsgiMiddleware(antwoord.console)  # type: ignore[no-untyped-call]


def _request(req: func.HttpRequest) -> Request:
    return Request(req.url, req.headers, req.get_body())


def _answer(response: Response) -> func.HttpResponse:
    headers = {"Content-Type": response.content_type, **response.headers}
    return func.HttpResponse(response.body, status_code=response.status, headers=headers)
