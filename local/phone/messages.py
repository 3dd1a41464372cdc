"""What became of the messages of the jobs that the page shows: parts, ticks, tries, and what was found out about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from shared.db.pool import Conn

OF_JOBS = """
    SELECT j.id, m.part, m.parts, m.status, m.evidence, m.error_code, m.held_reason,
        (SELECT coalesce(jsonb_agg(e.what ORDER BY e.id), '[]') FROM message_events e WHERE e.message_id = m.id)
    FROM ai_jobs j
    JOIN messages m ON m.from_self AND (m.reply_id = j.id OR m.id::text = j.payload ->> 'message_id')
    WHERE j.id = ANY (%(ids)s) ORDER BY m.part
"""


def messages_of(connection: Conn, jobs: Sequence[UUID]) -> dict[UUID, list[dict[str, Any]]]:
    """The messages that each job sends or has sent, part by part; without their text."""
    found: dict[UUID, list[dict[str, Any]]] = {job: [] for job in jobs}
    for job, part, parts, status, evidence, error_code, held_reason, story in connection.execute(
        OF_JOBS, {"ids": list(jobs)}
    ):
        found[job].append(
            {
                "part": part,
                "parts": parts,
                "status": status,
                "evidence": evidence,
                "error_code": error_code,
                "held_reason": held_reason,
                "story": story,
            }
        )
    return found
