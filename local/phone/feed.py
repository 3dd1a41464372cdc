"""What the page shows, as events: messages as they change, typing, people, faults and jobs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import date, datetime
from typing import Any

import anyio.to_thread

from local.phone.people import Person
from local.phone.switches import Switches
from local.standins.twilio import TwilioStandIn
from local.standins.twilio_messages import Message

SECONDS_OF_TYPING = 25.0
SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BETWEEN_BEATS = 15.0

Jobs = Callable[[], list[dict[str, Any]]]
Event = dict[str, Any]


class Feed:
    """Hears what the Twilio stand-in does and tells every page that is open.

    `jobs` is looked at while a page is open, at most every half second for all pages together.
    """

    def __init__(
        self,
        twilio: TwilioStandIn,
        switches: Switches,
        people: Sequence[Person],
        jobs: Jobs | None,
        *,
        can_kill: bool,
    ) -> None:
        self._twilio, self._switches, self._jobs, self._can_kill = twilio, switches, jobs, can_kill
        self._people = list(people)
        self._typing: dict[str, float] = {}
        self._lock = threading.Lock()
        self._pages: dict[asyncio.Queue[Event], asyncio.AbstractEventLoop] = {}
        self._looking = threading.Lock()
        self._looked_at = 0.0
        self._seen: Event = {}
        twilio.messages.listeners.append(self._hear)

    def add_person(self, person: Person) -> None:
        """Another phone; nothing happens if the number is known."""
        with self._lock:
            if any(known.phone == person.phone for known in self._people):
                return
            self._people.append(person)
        self._tell({"type": "people", "people": self._shown_people()})

    def tell_faults(self) -> None:
        """Let the pages know which switches are on."""
        self._tell(self._faults())

    async def events(self, gone: Callable[[], Any]) -> AsyncIterator[str]:
        """Server-sent events for one page: everything at first, then changes; ends when `await gone()`."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        with self._lock:
            self._pages[queue] = asyncio.get_running_loop()
        try:
            yield _write(self._everything())
            seen: dict[str, Event] = {}
            beat = time.monotonic()
            while not await gone():
                for event in [self._faults(), *(await anyio.to_thread.run_sync(self._look))]:
                    if seen.get(event["type"]) != event:
                        seen[event["type"]] = event
                        yield _write(event)
                try:
                    yield _write(await asyncio.wait_for(queue.get(), SECONDS_BETWEEN_LOOKS))
                    while not queue.empty():
                        yield _write(queue.get_nowait())
                except TimeoutError:
                    if time.monotonic() - beat > SECONDS_BETWEEN_BEATS:
                        beat = time.monotonic()
                        yield ": still here\n\n"
        finally:
            with self._lock:
                self._pages.pop(queue, None)

    def _everything(self) -> Event:
        now = time.monotonic()
        return {
            "type": "everything",
            "people": self._shown_people(),
            "messages": [_shown(message) for message in self._twilio.messages.all()],
            "typing": {phone: until - now for phone, until in self._typing.items() if until > now},
            "number": _number(self._twilio.whatsapp_from),
            "switches": self._switches.groups(),
            "on": self._switches.turned_on(),
            "has_jobs": self._jobs is not None,
            "can_kill": self._can_kill,
        }

    def _faults(self) -> Event:
        return {"type": "faults", "on": self._switches.turned_on()}

    def _look(self) -> list[Event]:
        """The jobs, unless somebody looked just now. A database that is away is said, not fatal."""
        if self._jobs is None:
            return []
        with self._looking:
            if time.monotonic() - self._looked_at >= SECONDS_BETWEEN_LOOKS / 2 or not self._seen:
                try:
                    self._seen = {"type": "jobs", "jobs": self._jobs()}
                except Exception as wrong:  # noqa: BLE001 - whatever it is, the page says that there is no view now
                    self._seen = {"type": "jobs", "jobs": None, "error": type(wrong).__name__}
                self._looked_at = time.monotonic()
            return [self._seen]

    def _hear(self, what: str, message: Message) -> None:
        phone = _phone_of(message)
        if what == "typing":
            self._typing[phone] = time.monotonic() + SECONDS_OF_TYPING
            self._tell({"type": "typing", "phone": phone, "seconds": SECONDS_OF_TYPING})
            return
        if message.direction != "inbound":
            self._typing.pop(phone, None)
        self._tell({"type": "message", "message": _shown(message)})

    def _tell(self, event: Event) -> None:
        with self._lock:
            pages = list(self._pages.items())
        for queue, loop in pages:
            if not loop.is_closed():
                loop.call_soon_threadsafe(queue.put_nowait, event)

    def _shown_people(self) -> list[dict[str, str]]:
        with self._lock:
            return [
                {"name": person.name, "phone": person.phone, "language": person.language} for person in self._people
            ]


def _shown(message: Message) -> dict[str, Any]:
    """A message as the page sees it. One's own is sent, then delivered (the webhook answered), then read; or failed."""
    mine = message.direction == "inbound"
    own_status = {"pending": "sent", "lost": "sent", "answered": "delivered"}.get(message.webhook, "failed")
    return {
        "sid": message.sid,
        "phone": _phone_of(message),
        "mine": mine,
        "body": message.body,
        "status": ("read" if message.read else own_status) if mine else message.status,
        "photo": bool(message.media),
        "at": message.created,
    }


def _phone_of(message: Message) -> str:
    return _number(message.sender if message.direction == "inbound" else message.to)


def _number(address: str) -> str:
    return address.removeprefix("whatsapp:")


def _write(event: Event) -> str:
    return f"data: {json.dumps(event, default=_plain)}\n\n"


def _plain(value: object) -> object:
    """Times as ISO 8601, numbers of the database as numbers, all else (ids) as text."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(value)
