"""Sending over WhatsApp, and looking up what was sent: Twilio's Messages API, through the `twilio` library.

A send cannot be repeated harmlessly, so this client says as exactly as it can what happened: whether a byte left,
what Twilio answered, and whether the answer could be read. The library is loaded where it is first used.
"""

from __future__ import annotations

import email.utils
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from shared import telemetry
from shared.clients.deadline import Call, TooLate, deadline
from shared.errors import FailureKind, HeldError, JobError, TransientError, classify, shorten
from shared.settings import Settings

if TYPE_CHECKING:
    import httpx2

__all__ = ["Inbox", "Line", "Listed", "Listing", "Received", "Template", "TooLate", "TwilioLine"]

SEND_SECONDS = 10.0
FIND_SECONDS = 10.0
TYPING_SECONDS = 1.0
PAGE_SIZE = 50
PAGES_AT_MOST = 4
INBOX_SECONDS = 20.0
INBOX_PAGE_SIZE = 200
INBOX_PAGES_AT_MOST = 50
_PREFIX = "whatsapp:"
_SID_LENGTH_AT_MOST = 64


@dataclass(frozen=True, slots=True)
class Template:
    """An approved template, by its content sid, with what is filled in."""

    sid: str
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Listed:
    """A message as Twilio's list shows it; `created` is by Twilio's clock, `status` in Twilio's words."""

    sid: str
    body: str
    created: datetime
    status: str
    error_code: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What Twilio has sent from our number, newest first, and the time by its clock when it answered.

    `reaches` says that everything is there which was created at or after the time that was asked for.
    """

    messages: tuple[Listed, ...]
    date: datetime
    reaches: bool


@dataclass(frozen=True, slots=True)
class Received:
    """An inbound message as Twilio's list shows it: `address` is who wrote, `media` how many files came with it."""

    sid: str
    address: str
    body: str
    created: datetime
    media: int = 0


@dataclass(frozen=True, slots=True)
class Inbox:
    """What came in over our number, newest first; `reaches` as of a Listing."""

    messages: tuple[Received, ...]
    reaches: bool


class Line(Protocol):
    """What sends messages to employees."""

    def send(
        self,
        *,
        to: str,
        body: str,
        status_callback: str,
        not_after: float | None = None,
        template: Template | None = None,
    ) -> str:
        """Send one message, as text or as a template that takes the body's place, and return its sid.

        `not_after` is a reading of `boot_clock()`: later than that `TooLate` is raised and nothing is sent. Whatever
        else is raised, `classify(error, idempotent=False)` tells whether the message may have gone out.
        """
        ...

    def find(self, *, to: str | None, since: datetime) -> Listing:
        """What was sent from our number to an address (None: to anybody), newest first, back to `since` at least.

        `since` is by Twilio's clock. At most 200 messages, within 10 s. What is raised says nothing of any message.
        """
        ...

    def inbound(self, *, since: datetime) -> Inbox:
        """What Twilio has received for our number, newest first, back to `since` by its clock.

        At most 10,000 messages, within 20 s; what cannot be a WhatsApp message is logged and left out.
        """
        ...

    def typing(self, inbound_sid: str) -> None:
        """Show that an answer to this message is being written. Best effort, 1 s; never raises."""
        ...


class TwilioLine:
    """The real line. TWILIO_API_BASE_URL, if set, takes the place of both of Twilio's hosts."""

    def __init__(
        self,
        settings: Settings,
        *,
        send_seconds: float = SEND_SECONDS,
        find_seconds: float = FIND_SECONDS,
        inbox_seconds: float = INBOX_SECONDS,
        typing_seconds: float = TYPING_SECONDS,
    ) -> None:
        self._settings = settings
        self._send_seconds = send_seconds
        self._find_seconds = find_seconds
        self._inbox_seconds = inbox_seconds
        self._typing_seconds = typing_seconds
        self._lock = threading.Lock()
        self._connections: httpx2.Client | None = None

    def prepare(self) -> None:
        """Load the library now (a quarter of a second), so that a send right after an intent need not wait for it."""
        twilio, _ = self._open()
        _ = twilio.messages, twilio.messaging.v2  # these are loaded when first asked for

    def send(
        self,
        *,
        to: str,
        body: str,
        status_callback: str,
        not_after: float | None = None,
        template: Template | None = None,
    ) -> str:
        """See `Line.send`. Within 10 s in all; never over a connection that was used before; no retries.

        A refusal by Twilio is raised as the library's exception, with `code` (Twilio's) and `headers` on it.
        """
        twilio, http = self._open()
        content = {"body": body} if template is None else _content(template)
        with deadline(self._send_seconds, not_after=not_after) as call:
            try:
                message = twilio.messages.create(
                    to=_address(to),
                    from_=_address(self._settings.twilio_whatsapp_from),
                    status_callback=status_callback,
                    **content,
                )
                return _sid(message.sid)
            except Exception as error:
                told = _told(error, call, http)
                if told is error:
                    raise
                raise told from error

    def find(self, *, to: str | None, since: datetime) -> Listing:
        """See `Line.find`."""
        twilio, http = self._open()
        filters = {"from_": _address(self._settings.twilio_whatsapp_from)} | (
            {} if to is None else {"to": _address(to)}
        )
        found: list[Listed] = []
        with deadline(self._find_seconds), _told_of_lists(http):
            page = twilio.messages.page(**filters, page_size=PAGE_SIZE)
            date = _date(http.headers)
            for number in range(1, PAGES_AT_MOST + 1):
                found += [_listed(message) for message in page]
                reaches = not page.next_page_url or any(message.created < since for message in found)
                if reaches or number == PAGES_AT_MOST:
                    break
                page = page.next_page()
        return Listing(tuple(found), date, reaches)

    def inbound(self, *, since: datetime) -> Inbox:
        """See `Line.inbound`."""
        twilio, http = self._open()
        found: list[Received] = []
        with deadline(self._inbox_seconds), _told_of_lists(http):
            page = twilio.messages.page(
                to=_address(self._settings.twilio_whatsapp_from),
                date_sent_after=since.astimezone(UTC).date(),  # whole days alone are documented
                page_size=INBOX_PAGE_SIZE,
            )
            for number in range(1, INBOX_PAGES_AT_MOST + 1):
                shown = [message for message in map(_received, page) if message is not None]
                found += [message for message in shown if message.created >= since]
                reaches = not page.next_page_url or any(message.created < since for message in shown)
                if reaches or number == INBOX_PAGES_AT_MOST:
                    break
                page = page.next_page()
        return Inbox(tuple(found), reaches)

    def typing(self, inbound_sid: str) -> None:
        """See `Line.typing`."""
        try:
            twilio, _ = self._open()
            with deadline(self._typing_seconds):
                twilio.messaging.v2.typing_indicator.create(channel="whatsapp", message_id=inbound_sid)
        except Exception as error:  # noqa: BLE001  # an ornament must never cost an answer
            telemetry.event("typing_failed", logging.DEBUG, sid=inbound_sid, error_class=classify(error).error_class)

    def close(self) -> None:
        """Close what is open; the next call opens it again."""
        with self._lock:
            opened, self._connections = self._connections, None
        if opened is not None:
            opened.close()

    def _open(self) -> tuple[Any, Any]:
        """The library's client and its HTTP client, for one call."""
        from shared.clients.twilio_http import connections, open_call

        with self._lock:
            if self._connections is None:
                self._connections = connections(self._send_seconds)
            opened, settings = self._connections, self._settings
        return open_call(opened, settings.twilio_api_base_url, settings.twilio_account_sid, settings.twilio_auth_token)


def _address(number: str) -> str:
    return number if number.startswith(_PREFIX) else _PREFIX + number


def _content(template: Template) -> dict[str, str]:
    variables = json.dumps(dict(template.variables), ensure_ascii=False)
    return {"content_sid": template.sid, "content_variables": variables}


def _sid(sid: object) -> str:
    if not isinstance(sid, str) or not 0 < len(sid) <= _SID_LENGTH_AT_MOST:
        raise ValueError("there is no sid in it")
    return sid


def _listed(message: Any) -> Listed:
    if not isinstance(message.date_created, datetime):
        raise TransientError("broken_answer", "Twilio lists a message without a date of creation")
    code = message.error_code
    return Listed(
        sid=_sid(message.sid),
        body=str(message.body or ""),
        created=message.date_created.replace(tzinfo=message.date_created.tzinfo or UTC),
        status=str(message.status or "").lower(),
        error_code=None if code is None else str(code),
    )


def _received(message: Any) -> Received | None:
    """One that came in over WhatsApp; what looks otherwise is left out, and said."""
    if message.direction != "inbound":
        return None
    sender, created = str(message.from_ or ""), message.date_sent or message.date_created
    try:
        sid = _sid(message.sid)
    except ValueError:
        sid = ""
    if not sid or not sender.startswith(_PREFIX) or not isinstance(created, datetime):
        telemetry.warning("inbound_listed_oddly", sid=str(message.sid)[:_SID_LENGTH_AT_MOST])
        return None
    return Received(
        sid=sid,
        address=sender.removeprefix(_PREFIX),
        body=str(message.body or ""),
        created=created.replace(tzinfo=created.tzinfo or UTC),
        media=int(count) if (count := str(message.num_media or "0")).isdecimal() else 0,
    )


def _date(headers: Mapping[str, str]) -> datetime:
    """The time by Twilio's clock, to the second."""
    said = next((value for name, value in headers.items() if name.lower() == "date"), "")
    try:
        date = email.utils.parsedate_to_datetime(said)
    except ValueError as error:
        raise TransientError("no_date", "Twilio's answer does not say its time") from error
    return date.replace(tzinfo=date.tzinfo or UTC)


@contextmanager
def _told_of_lists(http: Any) -> Iterator[None]:
    """Whatever goes wrong with a list, as `classify` should see it."""
    try:
        yield
    except JobError:
        raise
    except Exception as error:
        told = _unlisted(error, http)
        if told is error:
            raise
        raise told from error


def _unlisted(error: Exception, http: Any) -> Exception:
    """A failed look at the list, as `classify` should see it: with the status, or as an answer that cannot be read."""
    if http.status is None:
        return error
    if 200 <= http.status < 300:
        return TransientError("broken_answer", f"Twilio answered {http.status}, but {shorten(error)}")
    refusal: Any = error
    refusal.status, refusal.headers = http.status, http.headers
    return error


def _told(error: Exception, call: Call, http: Any) -> Exception:
    """The error as `classify` should see it: what we know here and it cannot know is said."""
    if http.status is None:
        if not call.started and classify(error, idempotent=False).kind is FailureKind.AMBIGUOUS:
            return TransientError("not_sent", f"Nothing left for Twilio: {shorten(error)}")
        return error
    if 200 <= http.status < 300:
        return HeldError("broken_answer", f"Twilio answered {http.status}, but {shorten(error)}")
    refusal: Any = error
    refusal.status = http.status  # the library believes what the body says
    refusal.headers = http.headers  # and drops these
    if getattr(refusal, "code", None) == http.status:
        refusal.code = None  # and takes the status for Twilio's code where there is none
    return error
