"""The application's triggers for messages and jobs, of which one thing can be taken away to see what it brings.

    BENCH_HEAD_START=off       a wake message becomes visible when its job is due, not two seconds before
    BENCH_QUEUE_TRIGGER=off    wake messages are sent, but not read in this process (as on Azure, where another one reads them)

host.json is the project's own, put beside this file by the bench.
"""

from __future__ import annotations

import os

import azure.functions as func

from shared.app import App
from shared.clients.wake import QUEUE_NAME
from shared.request import Request, Response
from shared.settings import load


class WithoutHeadStart(App):
    """The application, whose wake messages are visible when the job is due."""

    def _wake(self, due_in: float) -> None:
        self.wake.wake(max(due_in, 0.0))


antwoord = (WithoutHeadStart if os.environ.get("BENCH_HEAD_START") == "off" else App)(load(os.environ))
app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="twilio/inbound", methods=["POST"])
def twilio_inbound(req: func.HttpRequest) -> func.HttpResponse:
    """A WhatsApp message."""
    return _answer(antwoord.receive_message(_request(req)))


@app.route(route="twilio/status", methods=["POST"])
def twilio_status(req: func.HttpRequest) -> func.HttpResponse:
    """What became of a message of ours."""
    return _answer(antwoord.receive_status(_request(req)))


@app.timer_trigger(arg_name="timer", schedule=antwoord.settings.poll_schedule)
def poll(timer: func.TimerRequest) -> None:
    """Every due job."""
    del timer
    antwoord.on_timer()


if antwoord.settings.has_storage and os.environ.get("BENCH_QUEUE_TRIGGER") != "off":

    @app.queue_trigger(arg_name="message", queue_name=QUEUE_NAME, connection="AzureWebJobsStorage")
    def wake(message: func.QueueMessage) -> None:
        """One worker slot."""
        del message
        antwoord.on_wake()


def stopping() -> None:
    """Called by the host at its end."""
    antwoord.stop()


def _request(req: func.HttpRequest) -> Request:
    return Request(req.url, req.headers, req.get_body())


def _answer(response: Response) -> func.HttpResponse:
    headers = {"Content-Type": response.content_type}
    return func.HttpResponse(response.body, status_code=response.status, headers=headers)
