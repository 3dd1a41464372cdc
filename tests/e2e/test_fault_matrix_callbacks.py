"""Beside the fault matrix: what status callbacks settle, in any order, doubled, late, and before our own commit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from local.standins.azure_openai import OpenAIStandIn
from local.standins.server import Call, StandIn
from local.standins.twilio import TwilioStandIn
from local.standins.twilio_callbacks import Step
from shared.app import App
from shared.db.pool import Database
from shared.request import Request
from tests.e2e.matrix_cells import ANSWER, HOUR, REQUESTS, Play, Stage, begin
from tests.fakes.eventually import eventually

ACCEPTED = [name for name, request in REQUESTS.items() if request.accepted]
STEPS = (Step("sent", 0.01), Step("delivered", 0.01), Step("read", 0.01))


class Door(StandIn):
    """The application's own webhook for status callbacks, on loopback."""

    app: App

    def routes(self) -> list[BaseRoute]:
        """The one webhook."""
        return [Route("/api/twilio/status", self.operation("status", self._status), methods=["POST"])]

    def failure(self, status: int, code: int | str | None) -> Response:
        """An empty answer."""
        return Response(str(code), status)

    def _status(self, call: Call) -> Response:
        asked = Request(str(call.request.url), dict(call.request.headers), call.body)
        answer = self.app.receive_status(asked)
        return Response(answer.body, answer.status)


@pytest.fixture(scope="module")
def file_stage(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """In place of the one that no callback reaches."""
    with OpenAIStandIn() as openai, TwilioStandIn(steps=STEPS) as twilio, Door() as door:
        stage = Stage(database, openai, twilio, tmp_path_factory.mktemp("callbacks"), PUBLIC_BASE_URL=door.url)
        door.app = stage.app
        yield stage
        stage.close()


def ask(stage: Stage, row: str | None, callbacks: str) -> Play:
    """Ask, while this happens to the request, callbacks come like this, and no look-up succeeds."""
    play = begin(stage)
    stage.twilio.faults.add("list", "status", status=500)
    stage.twilio.conditions.callbacks, stage.twilio.conditions.callback_delay = callbacks, 0.3
    play.ask()
    play.run(REQUESTS[row].strike(stage) if row else None)
    return play


def sid_of(stage: Stage) -> str:
    return stage.twilio.sent[-1].sid


@pytest.mark.parametrize("callbacks", ["normal", "late", "twice", "reversed", "early"])
@pytest.mark.parametrize("row", [None, *ACCEPTED])
def test_callbacks_settle_what_is_in_doubt(stage: Stage, row: str | None, callbacks: str) -> None:
    play = ask(stage, row, callbacks)
    eventually(lambda: play.state().message == "read", what="the last callback")
    play.run_to_the_end()
    state = play.state()
    assert (state.message, state.job, state.attempts, state.asked) == ("read", "done", 1, None)
    # A callback may be quicker than the record of the answer, also where the answer came.
    assert state.evidence in (("callback",) if row or callbacks == "early" else ("answer", "callback"))
    assert play.accepted(ANSWER) == 1


@pytest.mark.parametrize("said", ["delivered", "undelivered"])
def test_a_callback_settles_what_was_held(stage: Stage, said: str) -> None:
    play = ask(stage, ACCEPTED[0], "lost")
    play.run_to_the_end()
    assert (play.state().message, play.state().job, play.state().asked) == ("held", "failed", "held")
    assert stage.twilio.report(sid_of(stage), said) == 204
    state = play.state()
    assert (state.job, state.evidence) == ("done", "callback")
    assert (state.message, state.asked) == (("delivered", None) if said == "delivered" else ("failed", "undelivered"))
    assert play.accepted(ANSWER) == 1


def test_a_callback_of_the_first_try_after_the_second_was_accepted_is_told_to_a_person(stage: Stage) -> None:
    """The one way to a duplicate: no list and no callback for the whole window. It is seen as soon as it can be."""
    play = begin(stage)
    stage.twilio.conditions.callbacks, stage.twilio.conditions.list_lag = "lost", HOUR / 2
    stage.twilio.faults.add("create", "drop_after", times=1)
    play.ask()
    play.run()
    first = sid_of(stage)
    play.run_to_the_end()
    assert play.accepted(ANSWER) == 2
    assert (play.state().message, play.state().asked) == ("sent", None)
    assert stage.twilio.report(first, "delivered") == 204
    assert play.state().asked == "sent_twice"
    second = "SELECT second_sid FROM messages WHERE conversation_id = %(id)s AND second_sid IS NOT NULL"
    assert stage.world.value(second, id=play.conversation_id) == first
    assert stage.twilio.report(first, "read") == 204, "and a third time changes nothing"
