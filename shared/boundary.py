"""The points of a job's way at which a crash could matter: real code passes each of them, and nothing happens there.

A crash test passes a checkpoint of its own through the composition root, and ends the process where it wants to. It
takes its points from this list, so that a new one cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class Boundary(StrEnum):
    """In the order in which a job meets them; the value says what has just been done."""

    CLAIMED = "claimed"  # the claim is committed, nothing of the job has run
    RETURNED = "returned"  # the job function has answered, nothing of that is recorded
    COMPLETING = "completing"  # the completion's statements have run, their transaction is open
    COMPLETED = "completed"  # the verdict is committed


type Checkpoint = Callable[[Boundary], None]


def pass_by(boundary: Boundary) -> None:
    """The checkpoint of real life."""
    del boundary
