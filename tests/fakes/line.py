"""Twilio's line, as a fake: what it accepts, what it raises, and what its list shows of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from shared.clients.twilio import Inbox, Listed, Listing, Received, Template


@dataclass
class FakeLine:
    """Records what it accepts; `before` and `after` may raise, before or after acceptance, and `listing` when it is asked.

    `inbox` is what Twilio has received, in any order.

    `hidden` are sids that the list does not show (yet), `foreign` are messages in it that are not ours, `clock` is what its
    clock is ahead of ours.
    """

    accepted: list[dict[str, Any]] = field(default_factory=list)
    typed: list[str] = field(default_factory=list)
    before: Callable[[dict[str, Any]], object] = lambda _: None
    after: Callable[[dict[str, Any]], object] = lambda _: None
    listing: Callable[[], object] = lambda: None
    looked: list[str | None] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    foreign: list[tuple[str, Listed]] = field(default_factory=list)
    clock: timedelta = timedelta()
    is_redacted: bool = False
    is_cut: bool = False
    inbox: list[Received] = field(default_factory=list)

    def send(
        self,
        *,
        to: str,
        body: str,
        status_callback: str,
        not_after: float | None = None,
        template: Template | None = None,
    ) -> str:
        message: dict[str, Any] = {
            "to": to, "body": body, "callback": status_callback, "not_after": not_after, "template": template,
            "created": datetime.now(UTC) + self.clock,
        }  # fmt: skip
        self.before(message)
        message["sid"] = f"SM{uuid4().hex}"
        self.accepted.append(message)
        self.after(message)
        return str(message["sid"])

    def find(self, *, to: str | None, since: datetime) -> Listing:
        del since
        self.looked.append(to)
        self.listing()
        ours = [
            (
                message["to"],
                Listed(message["sid"], "" if self.is_redacted else message["body"], message["created"], "sent"),
            )
            for message in self.accepted
        ]
        shown = [
            listed for address, listed in sorted(ours + self.foreign, key=lambda item: item[1].created, reverse=True)
            if to in (None, address) and listed.sid not in self.hidden
        ]  # fmt: skip
        return Listing(tuple(shown), datetime.now(UTC).replace(microsecond=0) + self.clock, not self.is_cut)

    def inbound(self, *, since: datetime) -> Inbox:
        self.listing()
        newest_first = sorted(self.inbox, key=lambda message: message.created, reverse=True)
        return Inbox(tuple(message for message in newest_first if message.created >= since), not self.is_cut)

    def typing(self, inbound_sid: str) -> None:
        self.typed.append(inbound_sid)
