"""What Twilio posts to the application: signed webhooks for inbound messages, signed status callbacks."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import httpx2
from starlette.datastructures import ImmutableMultiDict
from twilio.request_validator import SIGNATURE_HEADER, RequestValidator  # type: ignore[import-untyped]

from local.standins.twilio_messages import API_VERSION, Message, MessageStore

SECONDS_TO_CONNECT, SECONDS_TO_ANSWER = 2.0, 15.0
PAUSES = (0.2, 0.4)  # seconds between the tries of a webhook
WINDOW_SECONDS, OUTSIDE_WINDOW = 24 * 60 * 60.0, 63016

Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Posted:
    """One request to the application: the status that it answered, or the error. `time` is Unix seconds."""

    sid: str
    url: str
    form: dict[str, str]
    status: int | None
    error: str | None
    time: float


@dataclass(slots=True)
class Outbox:
    """Posts signed forms and remembers what came of them."""

    account_sid: str
    auth_token: str
    pauses: Sequence[float] = PAUSES
    posted: list[Posted] = field(default_factory=list)
    _client: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        timeout = httpx2.Timeout(SECONDS_TO_ANSWER, connect=SECONDS_TO_CONNECT)
        # No connection is kept: one that the application closed while it was idle would look like a failed try.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._client = httpx2.Client(timeout=timeout, limits=limits, trust_env=False)

    def post(self, sid: str, url: str, pairs: Pairs) -> int | None:
        """POST the form, signed as Twilio signs; returns the status, or None if no answer came."""
        signature = RequestValidator(self.auth_token).compute_signature(url, ImmutableMultiDict(pairs))
        headers = {
            SIGNATURE_HEADER: signature,
            "Content-Type": "application/x-www-form-urlencoded; charset=UTF-8",
            "User-Agent": "TwilioProxy/1.1",
            "Accept": "*/*",
        }
        status: int | None = None
        error: str | None = None
        try:
            status = self._client.post(url, content=urllib.parse.urlencode(pairs), headers=headers).status_code
        except (httpx2.HTTPError, httpx2.InvalidURL, RuntimeError) as wrong:
            error = f"{type(wrong).__name__}: {wrong}"
        self.posted.append(Posted(sid, url, dict(pairs), status, error, time.time()))
        return status

    def post_inbound(self, sid: str, url: str, pairs: Pairs, closing: threading.Event) -> bool:
        """Post an inbound message, again after each pause on 5xx or no answer. True when it was answered with 2xx."""
        for pause in (*self.pauses, None):
            status = self.post(sid, url, pairs)
            if status is not None and status < 500:
                return 200 <= status < 300
            if pause is None or closing.wait(pause):
                break
        return False

    def close(self) -> None:
        """Close the client."""
        self._client.close()


@dataclass(frozen=True, slots=True)
class Step:
    """A state that a sent message reaches, `after` seconds from the one before it."""

    status: str
    after: float = 0.1


STEPS: tuple[Step, ...] = (Step("sent"), Step("delivered"), Step("read", 0.5))


class StatusCallbacks:
    """Moves sent messages through their states and posts each one, as the conditions say, from threads of its own."""

    def __init__(self, store: MessageStore, outbox: Outbox, steps: Sequence[Step] = STEPS) -> None:
        self.steps = tuple(steps)
        self.delivery_errors: dict[str, int] = {}
        self._store, self._outbox = store, outbox
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._kept_back: dict[str, list[Pairs]] = {}
        self._pool = ThreadPoolExecutor(4, "twilio-callback")
        self._clock = threading.Thread(target=self._run, name="twilio-callbacks", daemon=True)
        self._clock.start()

    def begin(self, message: Message) -> None:
        """Begin with the states of a message that was accepted; one that cannot arrive fails after sent."""
        code = self.delivery_errors.get(message.to) or self._outside_window(message)
        steps = self.steps if code is None else (Step("sent"), Step("undelivered"))
        if not steps:
            return
        if self._store.conditions.callbacks == "early":
            self._reach(message.sid, steps, code)  # whoever waits for the answer to the create call waits for this too
        else:
            self._later(steps[0].after, partial(self._reach, message.sid, steps, code))

    def close(self) -> None:
        """Stop; what is not posted yet never will be."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._clock.join(5)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _outside_window(self, message: Message) -> int | None:
        """WhatsApp's rule, if it is kept: text only within 24 hours of the last message from there."""
        if not self._store.conditions.keeps_window or message.content_sid:
            return None
        since = time.time() - WINDOW_SECONDS
        came_in = any(other.sender == message.to and other.created > since for other in self._store.all())
        return None if came_in else OUTSIDE_WINDOW

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), action))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
                _, _, action = heapq.heappop(self._due)
            self._pool.submit(action)

    def _reach(self, sid: str, steps: tuple[Step, ...], code: int | None) -> None:
        status, left = steps[0].status, steps[1:]
        values: dict[str, object] = {"status": status}
        if status == "sent":
            values["sent"] = time.time()
        if self._store.find(sid) is None or self._closed:
            return
        if status in ("failed", "undelivered"):
            values["error_code"] = code
        message = self._store.change(sid, **values)
        if message.status_callback:
            self._tell(message, is_last=not left)
        if left:
            self._later(left[0].after, partial(self._reach, sid, left, code))

    def _tell(self, message: Message, *, is_last: bool) -> None:
        conditions, form = self._store.conditions, status_form(self._outbox.account_sid, message)
        post = partial(self._outbox.post, message.sid, message.status_callback or "")
        match conditions.callbacks:
            case "lost":
                return
            case "late":
                self._later(conditions.callback_delay, partial(post, form))
            case "twice":
                post(form)
                post(form)
            case "reversed":
                kept = self._kept_back.setdefault(message.sid, [])
                kept.append(form)
                if is_last:
                    for kept_back in reversed(self._kept_back.pop(message.sid)):
                        post(kept_back)
            case _:
                post(form)


def status_form(account_sid: str, message: Message) -> Pairs:
    """The form of a status callback for WhatsApp."""
    pairs = [
        ("ChannelInstallSid", "XE" + "0" * 32),
        ("ChannelPrefix", "whatsapp"),
        ("ChannelToAddress", message.to.removeprefix("whatsapp:")),
        ("SmsSid", message.sid),
        ("SmsStatus", message.status),
        ("MessageStatus", message.status),
        ("MessageSid", message.sid),
        ("StructuredMessage", "false"),
        ("To", message.to),
        ("From", message.sender),
        ("AccountSid", account_sid),
        ("ApiVersion", API_VERSION),
    ]
    if message.status in ("delivered", "read"):
        pairs.append(("EventType", message.status.upper()))
    if message.error_code is not None:
        pairs.append(("ErrorCode", str(message.error_code)))
    return pairs


def inbound_form(account_sid: str, message: Message, profile_name: str | None, media_type: str | None) -> Pairs:
    """The form that Twilio posts for an inbound WhatsApp message."""
    kind = "text" if not message.media else (media_type or "image/jpeg").partition("/")[0]
    pairs = [
        ("SmsMessageSid", message.sid),
        ("NumMedia", str(len(message.media))),
        ("MessageType", kind),
        ("SmsSid", message.sid),
        ("SmsStatus", "received"),
        ("Body", message.body),
        ("To", message.to),
        ("NumSegments", "1"),
        ("ReferralNumMedia", "0"),
        ("MessageSid", message.sid),
        ("AccountSid", account_sid),
        ("From", message.sender),
        ("ApiVersion", API_VERSION),
    ]
    if message.sender.startswith("whatsapp:+"):
        pairs.append(("WaId", message.sender.removeprefix("whatsapp:+")))
    if profile_name is not None:
        pairs.append(("ProfileName", profile_name))
    for index, url in enumerate(message.media):
        pairs += [(f"MediaUrl{index}", url), (f"MediaContentType{index}", media_type or "image/jpeg")]
    return pairs
