"""Sending over WhatsApp: Twilio's Messages API, through the `twilio` library, loaded where first used.

A send cannot be repeated harmlessly, so this client says as exactly as it can what happened: whether a byte left,
what Twilio answered, and whether the answer could be read.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Protocol

from shared import telemetry
from shared.clients.deadline import Call, TooLate, deadline
from shared.errors import FailureKind, HeldError, TransientError, classify, shorten
from shared.settings import Settings

if TYPE_CHECKING:
    import httpx2

__all__ = ["Line", "TooLate", "TwilioLine"]

SEND_SECONDS = 10.0
TYPING_SECONDS = 1.0
_PREFIX = "whatsapp:"
_SID_LENGTH_AT_MOST = 64


class Line(Protocol):
    """What sends messages to employees."""

    def send(self, *, to: str, body: str, status_callback: str, not_after: float | None = None) -> str:
        """Send one message and return its sid.

        `not_after` is a reading of `boot_clock()`: later than that `TooLate` is raised and nothing is sent. Whatever
        else is raised, `classify(error, idempotent=False)` tells whether the message may have gone out.
        """
        ...

    def typing(self, inbound_sid: str) -> None:
        """Show that an answer to this message is being written. Best effort, 1 s; never raises."""
        ...


class TwilioLine:
    """The real line. TWILIO_API_BASE_URL, if set, takes the place of both of Twilio's hosts."""

    def __init__(
        self, settings: Settings, *, send_seconds: float = SEND_SECONDS, typing_seconds: float = TYPING_SECONDS
    ) -> None:
        self._settings = settings
        self._send_seconds = send_seconds
        self._typing_seconds = typing_seconds
        self._lock = threading.Lock()
        self._connections: httpx2.Client | None = None

    def prepare(self) -> None:
        """Load the library now (a quarter of a second), so that a send right after an intent need not wait for it."""
        twilio, _ = self._open()
        _ = twilio.messages, twilio.messaging.v2  # these are loaded when first asked for

    def send(self, *, to: str, body: str, status_callback: str, not_after: float | None = None) -> str:
        """See `Line.send`. Within 10 s in all; never over a connection that was used before; no retries.

        A refusal by Twilio is raised as the library's exception, with `code` (Twilio's) and `headers` on it.
        """
        twilio, http = self._open()
        with deadline(self._send_seconds, not_after=not_after) as call:
            try:
                message = twilio.messages.create(
                    to=_address(to),
                    from_=_address(self._settings.twilio_whatsapp_from),
                    body=body,
                    status_callback=status_callback,
                )
                return _sid(message.sid)
            except Exception as error:
                told = _told(error, call, http)
                if told is error:
                    raise
                raise told from error

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


def _sid(sid: object) -> str:
    if not isinstance(sid, str) or not 0 < len(sid) <= _SID_LENGTH_AT_MOST:
        raise ValueError("there is no sid in it")
    return sid


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
