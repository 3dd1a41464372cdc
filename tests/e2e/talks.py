"""Conversations of the console in tests: a fresh world, an employee who asks, and what a page says."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import httpx2

from shared.db.pool import Database
from tests.fakes.visitor import HERE, Visitor, words_of
from tests.fakes.world import World

NOOR, BRAM = "+31612345601", "+31612345602"
QUESTION = "Hoeveel verlof heb ik?"


def fresh(database: Database) -> World:
    """A world with a handbook and one known person, who has not written yet."""
    world = World(database, OPS_AUTH="local", PUBLIC_BASE_URL=HERE)
    world.execute(
        "TRUNCATE message_events, ai_jobs, job_attempts, messages, conversations, people, documents, audit_log CASCADE"
    )
    world.execute("UPDATE job_types SET failures_in_row = 0, resting_until = NULL, resting_reason = NULL")
    world.add_handbook()
    world.execute("INSERT INTO people (phone, name, language) VALUES (%(phone)s, 'Noor Smit', 'nl')", phone=NOOR)
    return world


def id_of(world: World, address: str = NOOR) -> UUID:
    """The conversation with an address."""
    found: UUID = world.value("SELECT id FROM conversations WHERE address = %(address)s", address=address)
    return found


def asks(world: World, address: str = NOOR, body: str = QUESTION) -> str:
    """Somebody asks; the path of the conversation."""
    world.says(address, body)
    return f"/conversations/{id_of(world, address)}"


def asked(world: World, address: str = NOOR, body: str = QUESTION) -> str:
    """Somebody asks and has an answer; the path of the conversation."""
    path = asks(world, address, body)
    world.run()
    return path


def live_address(page: str) -> str:
    """Where a page asks for its live part."""
    found = re.search(r'hx-get="/api/ops([^"]+)"', page)
    assert found
    return found[1].replace("&amp;", "&")


def notice(hr: Visitor, answer: httpx2.Response) -> str:
    """The confirmation on the page that a redirect leads to."""
    assert answer.status_code == 303, words_of(answer.text)
    found = re.search(r'<p class="notice" role="status">(.*?)</p>', hr.follow(answer).text)
    assert found
    return found[1]


def problem(answer: httpx2.Response) -> str:
    """Why something could not be done, on the conversation's own page."""
    assert answer.status_code == 409
    found = re.search(r'<p class="notice bad" role="alert">(.*?)</p>', answer.text)
    assert found
    assert 'id="thread"' in answer.text
    return found[1]


def audited(world: World) -> list[str]:
    """What the audit log says was done in the conversation, oldest first."""
    rows = world.rows("SELECT what, who FROM audit_log WHERE target_type = 'conversation' ORDER BY id")
    assert {row[1] for row in rows} <= {"console:local"}
    return [row[0] for row in rows]


def seen(hr: Visitor, path: str) -> str:
    """The newest message that the page shows, as its form sends it."""
    found = re.search(r'name="seen_seq" value="(\d+)" form="answer"', hr.get(path).text)
    assert found
    return found[1]


def say(hr: Visitor, path: str, text: str, **more: Any) -> httpx2.Response:
    """Send an answer of one's own."""
    return hr.post(f"{path}/answer", **{"text": text, "seen_seq": seen(hr, path)} | more)
