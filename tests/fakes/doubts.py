"""Messages that may have left, as tests bring them about, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from shared.clients.twilio import Listed
from shared.conversation import status
from tests.fakes.desk import ADDRESS, raising
from tests.fakes.world import World

QUESTION = "hoeveel verlof heb ik?"
REPLY = "SELECT {} FROM messages WHERE source = 'ai' ORDER BY seq DESC LIMIT 1"


def settled_before(world: World) -> None:
    """An answer of an hour ago, which Twilio lists."""
    world.says(ADDRESS, "hoi, hoeveel verlof is er?")
    world.run()
    world.pass_time(3600)
    world.line.accepted[0]["body"] = "x"
    world.model.asked.clear()


def reply(world: World) -> tuple[Any, ...]:
    """Of the newest answer: its state, why it is held, whether Twilio has it, what showed that, and the tries."""
    return world.rows(
        "SELECT status, held_reason, provider_sid, evidence, send_attempt FROM messages WHERE source = 'ai'"
        " ORDER BY seq DESC LIMIT 1"
    )[0]


def story(world: World) -> list[str]:
    """What happened to the newest answer."""
    return [what for (what,) in world.rows(
        "SELECT what FROM message_events WHERE message_id = (SELECT id FROM messages WHERE source = 'ai' ORDER BY seq DESC"
        " LIMIT 1) ORDER BY id")]  # fmt: skip


def job(world: World) -> tuple[Any, ...]:
    """The newest autoreply: its state and error class."""
    return world.rows("SELECT status, error_class FROM ai_jobs WHERE type = 'autoreply' ORDER BY seq DESC LIMIT 1")[0]


def doubted(world: World, error: Exception | None = None, *, accepted: bool, text: str = QUESTION) -> None:
    """A question whose answer breaks off while it is sent, once."""
    fault = raising(error or ConnectionResetError("reset"), times=1)
    if accepted:
        world.line.after = fault
    else:
        world.line.before = fault
    world.says(ADDRESS, text)
    world.run()
    assert reply(world)[0] == "sending"
    assert job(world)[0] == "pending"


def sent(world: World) -> int:
    """How often the answer was accepted, beside the one before."""
    return len(world.line.accepted) - 1


def a_sid_of_somebody_else(body: str, age: float = 0.0) -> tuple[str, Listed]:
    """What somebody else sent to the employee, so many seconds ago."""
    return ADDRESS, Listed(f"SM{uuid4().hex}", body, datetime.now(UTC) - timedelta(seconds=age), "sent")


def run_all_once(world: World) -> None:
    """Look again at once, as a restart does."""
    for _ in range(3):
        world.execute("UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'")
        world.run()


def hiding(world: World, error: Exception) -> Callable[[dict[str, Any]], None]:
    """Accepted, broken off, and not in the list yet."""

    def after(message: dict[str, Any]) -> None:
        world.line.after = lambda _: None
        world.line.hidden.add(message["sid"])
        raise error

    return after


def callback(world: World, message: dict[str, Any], said: str, **more: str) -> bool:
    """Twilio tells what became of a message."""
    key = UUID(message["callback"].split("message=")[1].split("&")[0])
    return status.record(world.database, {"MessageSid": message["sid"], "MessageStatus": said} | more, key)
