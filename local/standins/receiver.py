"""A stand-in for an internal service that receives deliveries: it verifies them, acts once on each event, and fails on purpose.

POST /hook     and what every stand-in has (server.py): the rules of `faults` strike at "hook".

It does what docs/receiving.md asks of a receiver: the signature first, then a table of the ids that it has acted on.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from local.standins.faults import FaultPlan
from local.standins.server import Call, StandIn
from shared.errors import RequestRefused
from shared.signature import verify_standard, verify_timestamped

SIGNATURE_HEADER = "X-Webhook-Signature"
KEPT = 200


@dataclass(frozen=True, slots=True)
class Arrival:
    """A delivery that was verified, or refused. `replay_id` is there when the sender says that it repeats; `time` is Unix."""

    message_id: str
    type: str
    verdict: Literal["acted", "seen", "refused"]
    replay_id: str | None
    time: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Events acted on, deliveries of events that were known already, and deliveries without a good signature."""

    acted: int
    seen: int
    refused: int


class ReceiverStandIn(StandIn):
    """A receiver; `secrets` are those that it believes, and may be set later."""

    def __init__(self, secrets: Sequence[str] = (), *, port: int = 0, faults: FaultPlan | None = None) -> None:
        super().__init__(port=port, faults=faults)
        self.secrets = list(secrets)
        self._acted: dict[str, str] = {}  # id → type: a real one keeps this in its database, beside what it does
        self._arrivals: deque[Arrival] = deque(maxlen=KEPT)
        self._seen = self._refused = 0
        self._lock = threading.Lock()

    @property
    def hook_url(self) -> str:
        """Where deliveries go."""
        return f"{self.url}/hook"

    @property
    def arrivals(self) -> list[Arrival]:
        """The newest 200, oldest first."""
        with self._lock:
            return list(self._arrivals)

    @property
    def counts(self) -> Counts:
        """Since it started."""
        with self._lock:
            return Counts(len(self._acted), self._seen, self._refused)

    def routes(self) -> list[BaseRoute]:
        """Its one route."""
        return [Route("/hook", self.operation("hook", self._receive), methods=["POST"])]

    def failure(self, status: int, code: int | str | None) -> Response:
        """Its way of saying no."""
        return JSONResponse({"error": code or "on purpose"}, status)

    def _receive(self, call: Call) -> Response:
        message_id = call.request.headers.get("webhook-id", "")
        try:
            self._verify(call.request, call.body)
        except RequestRefused as refused:
            self._note(call, message_id, "refused")
            return JSONResponse({"error": str(refused)}, refused.status)
        is_new = self._note(call, message_id, "acted")
        return JSONResponse({"acted": is_new})

    def _verify(self, request: Request, body: bytes) -> None:
        """Both signatures, as a receiver of either kind would. Raises RequestRefused."""
        headers, now = request.headers, time.time()
        if not self.secrets:
            raise RequestRefused(403, "This receiver has no secret yet.")
        verify_standard(
            message_id=headers.get("webhook-id"), timestamp=headers.get("webhook-timestamp"),
            signature=headers.get("webhook-signature"), body=body, secrets=self.secrets, now=now,
        )  # fmt: skip
        verify_timestamped(signature=headers.get(SIGNATURE_HEADER), body=body, secrets=self.secrets, now=now)

    def _note(self, call: Call, message_id: str, verdict: Literal["acted", "refused"]) -> bool:
        """Write down what came; whether it is acted on, which happens once an id."""
        event_type, replay_id = _type_of(call.body), call.request.headers.get("X-Replay-Id")
        with self._lock:
            is_new = verdict == "acted" and message_id not in self._acted
            if is_new:
                self._acted[message_id] = event_type
            elif verdict == "acted":
                self._seen += 1
            else:
                self._refused += 1
            noted: Literal["acted", "seen", "refused"] = verdict if is_new or verdict == "refused" else "seen"
            self._arrivals.append(Arrival(message_id, event_type, noted, replay_id, time.time()))
        return is_new


def _type_of(body: bytes) -> str:
    try:
        return str(json.loads(body)["type"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
