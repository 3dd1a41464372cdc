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
    READ = "read"  # what is open has been read and noted, the model has not been asked
    ANSWERED = "answered"  # the model's answer is in hand, nothing of it is saved
    DRAFTED = "drafted"  # the draft is committed
    INTENDED = "intended"  # "sending" is committed, the request has not begun
    SENT = "sent"  # Twilio's answer, or the failure, is in hand, nothing of it is recorded
    DOUBTED = "doubted"  # that a message may have left is recorded
    LOOKED_UP = "looked_up"  # Twilio's list is in hand, nothing of it is recorded
    RELEASED = "released"  # that nothing has arrived is committed: the message may be sent
    ADMITTED = "admitted"  # a delivery's attempt has begun and is committed, the request has not
    DELIVERED = "delivered"  # the endpoint's answer, or the failure, is in hand, nothing of it is recorded
    SETTLED = (
        "settled"  # what came of the attempt is committed, its job says nothing of it yet (if accepted: after RETURNED)
    )
    RETURNED = "returned"  # the job function has answered, nothing of that is recorded
    COMPLETING = "completing"  # the completion's statements have run, their transaction is open
    COMPLETED = "completed"  # the verdict is committed
    TAKEN = "taken"  # a webhook's id is taken, its event is not stored
    STORED = "stored"  # the event is committed with its jobs, its sender has no answer yet


type Checkpoint = Callable[[Boundary], None]


def pass_by(boundary: Boundary) -> None:
    """The checkpoint of real life."""
    del boundary


# What every job passes, what an event that comes in does, and what its delivery does; the others are the way of a message
# that is sent.
OF_THE_QUEUE = (Boundary.CLAIMED, Boundary.RETURNED, Boundary.COMPLETING, Boundary.COMPLETED)
OF_RECEIVING = (Boundary.TAKEN, Boundary.STORED)
OF_DELIVERING = (Boundary.ADMITTED, Boundary.DELIVERED, Boundary.SETTLED)
OF_THE_SAGA = tuple(boundary for boundary in Boundary if boundary not in OF_THE_QUEUE + OF_RECEIVING + OF_DELIVERING)
