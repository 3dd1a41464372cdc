"""A small application on loopback that receives what the Twilio stand-in posts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from local.standins.server import Call, StandIn


@dataclass(frozen=True, slots=True)
class Received:
    """One post: the URL as it was called, the form, and the signature."""

    url: str
    pairs: list[tuple[str, str]]
    signature: str

    @property
    def form(self) -> dict[str, str]:
        """The form; of a repeated field the last value."""
        return dict(self.pairs)


@dataclass(slots=True)
class Inbox:
    """What came in, per path."""

    inbound: list[Received] = field(default_factory=list)
    status: list[Received] = field(default_factory=list)


class Receiver(StandIn):
    """Answers `answer` (an HTTP status) to inbound messages and 204 to status callbacks; `on_inbound` sees each."""

    def __init__(self, on_inbound: Callable[[Received], None] | None = None) -> None:
        super().__init__()
        self.inbox = Inbox()
        self.answers: list[int] = []
        self._on_inbound = on_inbound

    @property
    def inbound_url(self) -> str:
        """Where inbound messages go."""
        return f"{self.url}/api/twilio/inbound"

    @property
    def status_url(self) -> str:
        """Where status callbacks go, with a query as the application's has."""
        return f"{self.url}/api/twilio/status?message=7&try=1"

    def routes(self) -> list[BaseRoute]:
        """Both webhooks."""
        return [
            Route("/api/twilio/inbound", self.operation("inbound", self._inbound), methods=["POST"]),
            Route("/api/twilio/status", self.operation("status", self._status), methods=["POST"]),
        ]

    def failure(self, status: int, code: int | str | None) -> Response:
        """An empty answer."""
        return Response(status_code=status, headers={"x-code": str(code)})

    def _inbound(self, call: Call) -> Response:
        received = _received(call)
        self.inbox.inbound.append(received)
        status = self.answers.pop(0) if self.answers else 200
        if status == 200 and self._on_inbound is not None:
            self._on_inbound(received)
        return Response("<Response/>", status, media_type="text/xml")

    def _status(self, call: Call) -> Response:
        self.inbox.status.append(_received(call))
        return Response(status_code=204)


def _received(call: Call) -> Received:
    return Received(str(call.request.url), call.pairs, call.request.headers.get("x-twilio-signature", ""))
