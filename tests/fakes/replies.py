"""What the tests of replies have in common: who asks, what is answered, how sends fail, and what the rows say then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from shared.clients.twilio import Listed
from shared.conversation import status
from tests.fakes import desk
from tests.fakes.world import World

ADDRESS = desk.ADDRESS
NOTICE, ANSWER = desk.NOTICE, desk.ANSWER
APOLOGY = "Sorry, het lukt me nu niet om te antwoorden. Ik heb je bericht doorgegeven aan een collega."
QUESTION = "hoeveel verlof heb ik?"


def raising(error: Exception, times: int = 1) -> Callable[[Any], Any]:
    """A model or a line that fails so often: once, if nothing else is said."""
    return desk.raising(error, times)


def held_answer(world: World, *, accepted: bool) -> UUID:
    """An answer that may have arrived, and that a foreign message has kept from being settled; its first part."""
    fault = raising(ConnectionResetError())
    if accepted:
        world.line.after = fault
    else:
        world.line.before = fault
    world.says(ADDRESS, QUESTION)
    world.run()
    world.line.foreign.append((ADDRESS, Listed(f"SM{uuid4().hex}", "Uw pakket.", datetime.now(UTC), "sent")))
    world.settle_doubts()
    world.line.foreign.clear()
    message: UUID = world.value("SELECT id FROM messages WHERE status = 'held' ORDER BY part LIMIT 1")
    return message


def reply_row(world: World) -> tuple[Any, ...]:
    """The newest answer: its status, why it is held or failed, whether it has a sid, and its attempts."""
    return world.rows(
        "SELECT status, held_reason, provider_sid IS NOT NULL, send_attempt FROM messages"
        " WHERE source = 'ai' ORDER BY seq DESC LIMIT 1"
    )[0]


def job_row(world: World) -> tuple[Any, ...]:
    """The first autoreply: its status and class of error."""
    return world.rows("SELECT status, error_class FROM ai_jobs WHERE type = 'autoreply' ORDER BY seq LIMIT 1")[0]


def callback(world: World, message: dict[str, Any], said: str, **more: str) -> bool:
    """Twilio tells what became of a message that the line has accepted; False when that changes nothing."""
    key = UUID(message["callback"].split("message=")[1].split("&")[0])
    return status.record(
        world.database, {"MessageSid": message["sid"], "MessageStatus": said} | more, key,
        template_sid=world.settings.twilio_template_sid,
    )  # fmt: skip


class Refused(Exception):
    """Stands for Twilio's refusal: what counts is its package, status and code."""

    status, code = 400, 21211


Refused.__module__ = "twilio.base.exceptions"
