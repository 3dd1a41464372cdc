"""What somebody may do in the console: look; act on conversations, jobs and deliveries; or everything.

The platform says which app roles somebody has. The last one's name is a setting (OPS_ROLE). A one-time link of a developer's own
machine lets in to everything.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

from shared.settings import LESSER_ROLES

VIEWER_NAME, OPERATOR_NAME = LESSER_ROLES


class Role(IntEnum):
    """Each may do what the ones before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


def role_of(names: Collection[str], admin_name: str) -> Role | None:
    """The highest role among the app roles that somebody has; None without one of ours."""
    ours = {VIEWER_NAME: Role.VIEWER, OPERATOR_NAME: Role.OPERATOR} | {admin_name: Role.ADMIN}
    return max((ours[name] for name in names if name in ours), default=None)
