"""Asking for a person: a conversation keeps since when, and why last."""

from __future__ import annotations

from uuid import UUID

from shared.queue.job import Write

FLAG = """
    UPDATE conversations SET needs_person_since = coalesce(needs_person_since, now()), needs_person_reason = %(reason)s
    WHERE id = %(conversation_id)s
"""


def flag(conversation_id: UUID, reason: str) -> Write:
    """The write that asks for a person; `reason` is a word that pages translate."""
    return Write(FLAG, {"conversation_id": conversation_id, "reason": reason})
