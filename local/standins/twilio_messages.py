"""Twilio's message resources in memory: creating, moving through states, listing with filters and pages."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from typing import Any
from urllib.parse import urlencode

from local.standins.twilio_conditions import Conditions

API_VERSION = "2010-04-01"
PAGE_SIZE, PAGE_SIZE_AT_MOST = 50, 1000

Listener = Callable[[str, "Message"], None]


@dataclass(frozen=True, slots=True)
class Message:
    """One message resource; times are Unix seconds by this machine's clock.

    `webhook` (inbound only) is pending, answered, failed or lost; `read` (inbound only) is set by the typing indicator.
    `is_foreign` marks what the application had no part in: somebody else used the account, or Twilio answered by itself.
    """

    sid: str
    sender: str
    to: str
    body: str
    direction: str
    status: str
    created: float
    updated: float
    sent: float | None = None
    media: tuple[str, ...] = ()
    error_code: int | None = None
    status_callback: str | None = None
    content_sid: str | None = None
    content_variables: str | None = None
    webhook: str = ""
    read: bool = False
    is_foreign: bool = False

    @property
    def listed_at(self) -> float:
        """What the list is filtered by: when it was sent, or created if it was not."""
        return self.created if self.sent is None else self.sent

    def as_json(self, account_sid: str, *, clock_offset: float = 0.0, redacted: bool = False) -> dict[str, Any]:
        """The resource as Twilio's API shows it."""
        uri = f"/{API_VERSION}/Accounts/{account_sid}/Messages/{self.sid}"
        return {
            "account_sid": account_sid,
            "api_version": API_VERSION,
            "body": "" if redacted else self.body,
            "date_created": _rfc2822(self.created + clock_offset),
            "date_sent": None if self.sent is None else _rfc2822(self.sent + clock_offset),
            "date_updated": _rfc2822(self.updated + clock_offset),
            "direction": self.direction,
            "error_code": self.error_code,
            "error_message": None,
            "from": self.sender,
            "messaging_service_sid": None,
            "num_media": str(len(self.media)),
            "num_segments": "1",
            "price": None,
            "price_unit": "USD",
            "sid": self.sid,
            "status": self.status,
            "subresource_uris": {"media": f"{uri}/Media.json"},
            "to": self.to,
            "uri": f"{uri}.json",
        }


class BadFilter(ValueError):
    """A list filter that cannot be read."""


@dataclass(slots=True)
class MessageStore:
    """All messages of one account, in the order of their creation; safe to use from several threads.

    Listeners hear ("created" | "changed" | "typing", message), outside the lock, in the thread that made the change.
    """

    conditions: Conditions = field(default_factory=Conditions)
    listeners: list[Listener] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _messages: dict[str, Message] = field(default_factory=dict)

    def add(self, *, sender: str, to: str, body: str, direction: str, status: str, **more: Any) -> Message:
        """Create a resource; one with media has an MM sid, as at Twilio."""
        now = time.time()
        sid = ("MM" if more.get("media") else "SM") + secrets.token_hex(16)
        message = Message(sid, sender, to, body, direction, status, now, now, **more)
        with self._lock:
            self._messages[sid] = message
        self.tell("created", message)
        return message

    def change(self, sid: str, **values: Any) -> Message:
        """Replace values of one resource; KeyError when there is none."""
        with self._lock:
            message = replace(self._messages[sid], updated=time.time(), **values)
            self._messages[sid] = message
        self.tell("changed", message)
        return message

    def delete(self, sid: str) -> bool:
        """Take one away; False when there is none."""
        with self._lock:
            return self._messages.pop(sid, None) is not None

    def age(self, seconds: float) -> None:
        """Let time pass for all of them: each becomes so much older."""
        with self._lock:
            self._messages = {
                sid: replace(
                    message,
                    created=message.created - seconds,
                    updated=message.updated - seconds,
                    sent=None if message.sent is None else message.sent - seconds,
                )
                for sid, message in self._messages.items()
            }

    def find(self, sid: str) -> Message | None:
        """One resource, or None."""
        with self._lock:
            return self._messages.get(sid)

    def all(self) -> list[Message]:
        """Every resource, oldest first."""
        with self._lock:
            return list(self._messages.values())

    def tell(self, what: str, message: Message) -> None:
        """Let the listeners know."""
        for listener in list(self.listeners):
            listener(what, message)

    def show(self, message: Message, account_sid: str) -> dict[str, Any]:
        """One resource as whoever reads it back sees it now."""
        conditions = self.conditions
        return message.as_json(account_sid, clock_offset=conditions.clock_offset, redacted=conditions.redacted)

    def page(self, account_sid: str, query: Mapping[str, str]) -> dict[str, Any]:
        """One page of the list, newest first, as Twilio's API shows it. Raises BadFilter."""
        matches = self._filters(query)
        found = [message for message in reversed(self.all()) if all(match(message) for match in matches)]
        size, number = _size(query), _whole(query, "Page", 0)
        token = query.get("PageToken", "").removeprefix("PA")
        if token:
            start = next((index + 1 for index, message in enumerate(found) if message.sid == token), len(found))
        else:
            start = number * size
        shown = found[start : start + size]
        path = f"/{API_VERSION}/Accounts/{account_sid}/Messages.json"
        kept = {name: value for name, value in query.items() if name not in ("Page", "PageToken", "PageSize")}

        def uri(page: int, **more: str) -> str:
            return f"{path}?{urlencode(kept | {'PageSize': str(size), 'Page': str(page)} | more)}"

        more_there = len(found) > start + size
        return {
            "messages": [self.show(message, account_sid) for message in shown],
            "page": number,
            "page_size": size,
            "start": start,
            "end": start + max(len(shown) - 1, 0),
            "uri": uri(number),
            "first_page_uri": uri(0),
            "next_page_uri": uri(number + 1, PageToken=f"PA{shown[-1].sid}") if more_there else None,
            "previous_page_uri": uri(number - 1) if number > 0 else None,
        }

    def _filters(self, query: Mapping[str, str]) -> list[Callable[[Message], bool]]:
        shown_until = time.time() - self.conditions.list_lag
        matches: list[Callable[[Message], bool]] = [lambda message: message.created <= shown_until]
        if to := query.get("To"):
            matches.append(lambda message: message.to == to)
        if sender := query.get("From"):
            matches.append(lambda message: message.sender == sender)
        for name in ("DateSent", "DateSent>", "DateSent<"):
            if given := query.get(name):
                matches += [_by_date(name, given, self.conditions.clock_offset)]
        return matches


def _by_date(name: str, given: str, clock_offset: float) -> Callable[[Message], bool]:
    """Both bounds are inclusive; a bare date means the whole day (GMT), as does any DateSent without a bound."""
    try:
        moment = datetime.fromisoformat(given)
    except ValueError as wrong:
        raise BadFilter(f"{name} is not a date: {given}") from wrong
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    whole_day = len(given) <= len("2026-01-31") or name == "DateSent"
    first = moment.replace(hour=0, minute=0, second=0, microsecond=0) if whole_day else moment
    last = first + (timedelta(days=1) if whole_day else timedelta(seconds=1))  # the API's dates have no fractions
    low, high = first.timestamp(), last.timestamp()

    def match(message: Message) -> bool:
        moment_of = message.listed_at + clock_offset
        return (name == "DateSent<" or moment_of >= low) and (name == "DateSent>" or moment_of < high)

    return match


def _size(query: Mapping[str, str]) -> int:
    return min(max(_whole(query, "PageSize", PAGE_SIZE), 1), PAGE_SIZE_AT_MOST)


def _whole(query: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(query.get(name) or default)
    except ValueError as wrong:
        raise BadFilter(f"{name} is not a number") from wrong


def _rfc2822(moment: float) -> str:
    return formatdate(moment, usegmt=True).replace("GMT", "+0000")
