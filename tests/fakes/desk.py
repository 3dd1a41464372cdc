"""A person's desk in tests: what people do to the one conversation of a world, and what is to be seen of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from shared import audit
from shared.conversation import actions
from shared.db.pool import Database
from shared.errors import PermanentError, UserError
from shared.queue import replays, replays_drive
from shared.queue.dead_letters import Filter
from shared.queue.replays import Replay
from tests.fakes.world import World, run_all

ADDRESS, OTHER = "+31600000001", "+31600000002"
WHO = "anna"
NOTICE = "Je praat met een digitale assistent; stuur “medewerker” als je liever een mens spreekt.\n\n"
ANSWER = "Je hebt 200 uur verlof. [1]\n\nBron: [1] Personeelshandboek › Verlof"
TABLES = (
    "message_events", "suggestions", "messages", "job_attempts", "ai_jobs", "conversations", "people", "documents", "imports",
    "audit_log",
)  # fmt: skip


def fresh(database: Database, **changes: str) -> World:
    """An empty world with a handbook."""
    world = World(database, **changes)
    for table in TABLES:  # a few rows each: much faster than TRUNCATE, which makes new files
        world.execute(f"DELETE FROM {table}")
    world.execute("UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL")
    world.add_handbook()
    return world


def raising(error: Exception, times: int = 1_000) -> Callable[[Any], Any]:
    """A model or a line that fails so often."""
    left = [times]

    def plan(_: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise error

    return plan


def conversation(world: World) -> UUID:
    """The one conversation."""
    found: UUID = world.value("SELECT id FROM conversations")
    return found


def newest(world: World) -> int:
    """The number of the employee's newest message."""
    return int(world.value("SELECT max(seq) FROM messages WHERE NOT from_self"))


def take_over(world: World) -> None:
    with world.database.connection() as connection:
        actions.take_over(connection, conversation(world), who=WHO)


def hand_back(world: World, *, answer_waiting: bool = False, seen_seq: int | None = None) -> None:
    with world.database.connection() as connection:
        actions.hand_back(connection, conversation(world), who=WHO, answer_waiting=answer_waiting, seen_seq=seen_seq)


def send_own(world: World, text: str = "Dag, met HR.", *, seen_seq: int | None = None) -> UUID:
    """Answer by hand, having seen everything unless `seen_seq` says otherwise."""
    seen = newest(world) if seen_seq is None else seen_seq
    with world.database.connection() as connection:
        return actions.send_own(connection, conversation(world), text, who=WHO, seen_seq=seen)


def waiting_draft(world: World) -> None:
    """An answer that is drafted and waits for its second try."""
    world.line.before = raising(ConnectionRefusedError(), times=1)
    world.says(ADDRESS, "hoeveel verlof heb ik?")
    world.run()
    assert world.rows("SELECT status FROM messages WHERE source = 'ai'") == [("draft",)]


def open_messages(world: World) -> list[str]:
    rows = world.rows("SELECT body FROM messages WHERE NOT from_self AND answered_by IS NULL ORDER BY seq")
    return [body for (body,) in rows]


def open_suggestions(world: World) -> list[str]:
    return [text for (text,) in world.rows("SELECT text FROM suggestions WHERE state = 'open'")]


def flagged(world: World) -> str | None:
    """Why a person is asked for, if one is."""
    reason: str | None = world.value("SELECT needs_person_reason FROM conversations")
    return reason


def lines(world: World) -> list[audit.Entry]:
    """The audit log, the newest first."""
    with world.database.connection() as connection:
        return audit.list_entries(connection, limit=100)


def audited(world: World) -> list[tuple[str, str, str | None]]:
    """Who did what to which, in order."""
    return [(line.who, line.what, line.target_id) for line in reversed(lines(world))]


def refused(action: Callable[[], object]) -> str | None:
    """The name of the error that an action must raise."""
    with pytest.raises(UserError) as error:
        action()
    return error.value.name


def dies(world: World, *texts: str, address: str = ADDRESS, error_class: str = "content_filter") -> list[UUID]:
    """Each text is a question whose answer dies; the apologies are sent, and forgotten. The dead jobs."""
    says = world.model.says
    found = []
    for text in texts:
        world.model.says = raising(PermanentError(error_class, "refused"))
        world.says(address, text)
        run_all(world)
        found.append(world.value("SELECT id FROM ai_jobs WHERE type = 'autoreply' ORDER BY seq DESC LIMIT 1"))
    world.model.says = says
    world.line.accepted.clear()
    world.model.asked.clear()
    return found


def replay_all(world: World) -> Replay:
    """A replay of the few dead letters that there are, to its end."""
    with world.database.connection() as connection:
        plan = replays.start(connection, Filter(), who=WHO, reason="it works again", rate=1000.0)
    ended = replays_drive.advance(world.database, plan.id, seconds=60)
    assert ended.state == "done"
    return ended
