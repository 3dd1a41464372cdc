"""The names of what lines of the audit log are about, in one statement for a page."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from shared.audit import Entry
from shared.db.pool import Conn

# A document, import or person that is gone has no name here: then the line's own details tell.
NAMES = """
    SELECT 'conversation', c.id, coalesce(p.name, c.profile_name, c.address)
    FROM conversations c LEFT JOIN people p ON p.id = c.person_id WHERE c.id = ANY (%(conversation)s::uuid[])
    UNION ALL
    SELECT 'document', id, title FROM documents WHERE id = ANY (%(document)s::uuid[])
    UNION ALL
    SELECT 'person', id, name FROM people WHERE id = ANY (%(person)s::uuid[])
    UNION ALL
    SELECT 'import', id, source FROM imports WHERE id = ANY (%(import)s::uuid[])
    UNION ALL
    SELECT 'job', id, type FROM ai_jobs WHERE id = ANY (%(job)s::uuid[])
    UNION ALL
    SELECT 'replay', id, reason FROM replays WHERE id = ANY (%(replay)s::uuid[])
    UNION ALL
    SELECT 'event', id, type FROM webhook_events WHERE id = ANY (%(event)s::uuid[])
    UNION ALL
    SELECT 'delivery', d.id, e.type || ' → ' || n.name
    FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id JOIN webhook_endpoints n ON n.id = d.endpoint_id
    WHERE d.id = ANY (%(delivery)s::uuid[])
    UNION ALL
    SELECT 'endpoint', id, name FROM webhook_endpoints WHERE id = ANY (%(endpoint)s::uuid[])
    UNION ALL
    SELECT 'source', id, name FROM webhook_sources WHERE id = ANY (%(source)s::uuid[])
"""
TYPES = ("conversation", "document", "person", "import", "job", "replay", "event", "delivery", "endpoint", "source")

type Target = tuple[str, UUID]


def names_of(connection: Conn, targets: Iterable[Target]) -> dict[Target, str]:
    """What is still there of these, by type and id, with its name; a job's is its type."""
    wanted = set(targets)
    parameters = {kind: [target_id for of, target_id in wanted if of == kind] for kind in TYPES}
    return {(str(kind), target_id): str(name) for kind, target_id, name in connection.execute(NAMES, parameters)}


def target_of(entry: Entry) -> Target | None:
    """What a line is about, where that is one thing with a page."""
    if entry.target_type not in TYPES or entry.target_id is None:
        return None
    try:
        return entry.target_type, UUID(entry.target_id)
    except ValueError:
        return None
