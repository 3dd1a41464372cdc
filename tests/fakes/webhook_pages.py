"""The console's pages about webhooks, as tests read them."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from shared.db.pool import Database
from tests.fakes.gateway import Gateway
from tests.fakes.visitor import HERE, Visitor
from tests.fakes.visitor import words_of as spaced

HOSTILE = '<img src=x onerror="alert(1)">'
ENDPOINT: dict[str, Any] = {
    "name": "payroll", "url": "http://127.0.0.1:9/hook", "events": "response.* batch.completed", "rate": "2,5",
    "concurrency": "3", "timeout": "5", "schedule": "decorrelated", "signature_header": "X-Sig",
}  # fmt: skip


def fresh_gateway(database: Database) -> Gateway:
    """A gateway with a console for the administrator of this machine, and an empty audit log."""
    found = Gateway(database, OPS_AUTH="local", PUBLIC_BASE_URL=HERE)
    found.execute("TRUNCATE audit_log")
    return found


def words_of(page: str) -> str:
    """What a page says, without the spaces that taking out tags leaves before a full stop."""
    return re.sub(r" ([.,:;])", r"\1", spaced(page))


def event_of(world: Gateway, delivery: UUID) -> str:
    """The page of a delivery's event."""
    return f"/webhooks/events/{world.value('SELECT event_id FROM webhook_deliveries WHERE id = %(id)s', id=delivery)}"


def name_of(world: Gateway, endpoint: UUID) -> str:
    """An endpoint's name."""
    return str(world.state(endpoint, "name"))


def says(hr: Visitor, path: str) -> str:
    """What a page says."""
    page = hr.get(path)
    assert page.status_code == 200, page.text
    assert "<img" not in page.text, "what others wrote is escaped"
    return words_of(page.text)


def audited(world: Gateway) -> list[str]:
    """What the audit log says was done, in order."""
    return [what for (what,) in world.rows("SELECT what FROM audit_log ORDER BY id")]


def secret_in(page: str) -> str:
    """The secret that a page shows once."""
    found = re.search(r'id="shown-secret" class="mono" value="([^"]+)"', page)
    assert found, words_of(page)
    return found[1]
