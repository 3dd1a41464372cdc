"""A stand-in for Twilio: Messages, the typing indicator, signed status callbacks and signed inbound webhooks.

POST /2010-04-01/Accounts/{sid}/Messages.json       GET …/Messages.json?To&From&DateSent…
GET | POST (redact) | DELETE …/Messages/{sid}.json  POST /v2/Indicators/Typing.json
POST /phone/messages   (an employee writes)         and what is in twilio_account.py and twilio_admin.py
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Self

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from local.standins.faults import FaultPlan
from local.standins.server import Call, StandIn
from local.standins.twilio_account import Account, Sender, page_of
from local.standins.twilio_admin import FOREIGN, admin_routes, json_object
from local.standins.twilio_callbacks import (
    PAUSES,
    STEPS,
    Outbox,
    Pairs,
    Posted,
    StatusCallbacks,
    Step,
    inbound_form,
    status_form,
)
from local.standins.twilio_conditions import Conditions
from local.standins.twilio_messages import API_VERSION, BadFilter, Message, MessageStore

ACCOUNT_SID = "AC" + "57a9d1" * 5 + "00"
AUTH_TOKEN = "57a9d1" * 5 + "ff"
WHATSAPP_FROM = "whatsapp:+31201234567"
BODY_UNITS_AT_MOST = 1600
TEMPLATE = "Hoi! Hier is het antwoord op je vraag: {{1}}"  # what every content sid stands for
# The words of Advanced Opt-Out that WhatsApp senders have at first; the whole message, in any case.
KEYWORDS = {
    "STOP": ("STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT"),
    "START": ("START", "YES", "UNSTOP"),
    "HELP": ("HELP", "INFO"),
}
_ACCOUNT = f"/{API_VERSION}/Accounts/{{account}}"


class Refused(Exception):
    """An error of the API: HTTP status, Twilio's code, and a sentence."""

    def __init__(self, status: int, code: int, sentence: str) -> None:
        self.status, self.code, self.sentence = status, code, sentence
        super().__init__(sentence)


class TwilioStandIn(StandIn):
    """Serves one account; as a context manager. `webhook_url` (settable later) is where inbound messages are posted.

    `opted_out` holds addresses that refuse messages (21610); `delivery_errors` maps addresses to the code with which
    their messages end undelivered; `conditions` is how it behaves beside its faults. Raises UserError when the port is
    in use.
    """

    def __init__(
        self,
        *,
        account_sid: str = ACCOUNT_SID,
        auth_token: str = AUTH_TOKEN,
        whatsapp_from: str = WHATSAPP_FROM,
        webhook_url: str | None = None,
        steps: Sequence[Step] = STEPS,
        webhook_pauses: Sequence[float] = PAUSES,
        port: int = 0,
        faults: FaultPlan | None = None,
    ) -> None:
        super().__init__(port=port, faults=faults)
        self.account_sid, self.auth_token, self.whatsapp_from = account_sid, auth_token, whatsapp_from
        self.webhook_url = webhook_url
        self.opted_out: set[str] = set()
        self.conditions = Conditions()
        self.account = Account(account_sid)
        self.senders: list[Sender] | None = None  # None: the one that answers, with its webhook as it is now
        self._tries_of_webhook = len(webhook_pauses)
        self.messages = MessageStore(self.conditions)
        self._steps = steps
        self._outbox = Outbox(account_sid, auth_token, webhook_pauses)
        self._callbacks: StatusCallbacks | None = None
        self._inbound_forms: dict[str, Pairs] = {}
        self._inbound = ThreadPoolExecutor(8, "twilio-inbound")
        self._closing = threading.Event()
        self._delivery_errors: dict[str, int] = {}

    @property
    def posted(self) -> list[Posted]:
        """Every request made to the application, webhooks and callbacks, with what it answered; oldest first."""
        return list(self._outbox.posted)

    @property
    def sent(self) -> list[Message]:
        """The messages that the application had accepted here, oldest first."""
        return [message for message in self.messages.all() if message.direction != "inbound" and not message.is_foreign]

    @property
    def delivery_errors(self) -> dict[str, int]:
        """Addresses whose messages end undelivered, with the code."""
        return self._delivery_errors

    def start(self) -> Self:
        """Serve, and begin to post."""
        super().start()
        self._callbacks = StatusCallbacks(self.messages, self._outbox, self._steps)
        self._callbacks.delivery_errors = self._delivery_errors
        return self

    def stop(self) -> None:
        """Stop serving and posting."""
        self._closing.set()
        super().stop()
        if self._callbacks is not None:
            self._callbacks.close()
        self._inbound.shutdown(wait=True, cancel_futures=True)
        self._outbox.close()

    def retry_webhooks(self, pauses: Sequence[float]) -> None:
        """From now on try a webhook again after each of these pauses, in seconds."""
        self._outbox.pauses = tuple(pauses)
        self._tries_of_webhook = len(self._outbox.pauses)

    def receive(
        self,
        from_number: str,
        body: str,
        *,
        profile_name: str | None = None,
        media_url: str | None = None,
        media_type: str | None = None,
        extra: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> str:
        """An employee writes: create the inbound message and post the signed webhook; returns the sid.

        `from_number` is E.164, with or without `whatsapp:`. It is tried again after each pause on 5xx or no answer; the outcome
        is on the message (`webhook`) and each try in `posted`. `wait=False` returns at once and posts from another thread.
        """
        sender = from_number if from_number.startswith("whatsapp:") else f"whatsapp:{from_number}"
        message = self.messages.add(
            sender=sender, to=self.whatsapp_from, body=body, direction="inbound", status="received", webhook="pending",
            media=(media_url,) if media_url else (),
        )  # fmt: skip
        form = inbound_form(self.account_sid, message, profile_name, media_type) + list((extra or {}).items())
        if self.conditions.keeps_stop:
            form += self._opt_out(sender, body)
        self._inbound_forms[message.sid] = form
        if self.conditions.webhook == "lost":
            self.messages.change(message.sid, webhook="lost")
            return message.sid
        delivery = self._inbound.submit(self._deliver, message.sid)
        if wait:
            delivery.result()
        return message.sid

    def _deliver(self, sid: str) -> None:
        how = self.conditions.webhook
        if how == "late" and self._closing.wait(self.conditions.webhook_delay):
            return
        if self.redeliver(sid) and how == "twice":
            self.redeliver(sid)

    def _opt_out(self, sender: str, body: str) -> Pairs:
        """What Twilio does itself with its own words: it keeps a list, answers, and says so to the application."""
        kind = next((kind for kind, words in KEYWORDS.items() if body.strip().upper() in words), None)
        if kind is None:
            return []
        (self.opted_out.add if kind == "STOP" else self.opted_out.discard)(sender)
        self.place(sender, f"({kind})", direction="outbound-reply")
        return [("OptOutType", kind)]

    def place(self, to: str, body: str = FOREIGN, *, direction: str = "outbound-api") -> str:
        """Somebody else who uses this account, or Twilio itself, writes to an address from our number; returns the sid."""
        address = to if to.startswith("whatsapp:") else f"whatsapp:{to}"
        return self.messages.add(
            sender=self.whatsapp_from, to=address, body=body, direction=direction, status="sent", sent=time.time(),
            is_foreign=True,
        ).sid  # fmt: skip

    def report(self, sid: str, status: str | None = None) -> int | None:
        """Post a status callback for a message that was sent (again), whatever the conditions; what was answered."""
        message = self.messages.find(sid)
        if message is None or not message.status_callback:
            return None
        form = status_form(self.account_sid, replace(message, status=status or message.status))
        return self._outbox.post(sid, message.status_callback, form)

    def accept(self, pairs: Pairs) -> Message:
        """Accept a message as if its request had come through just now, whatever the faults say."""
        form = dict(pairs)
        template, variables = form.get("ContentSid") or None, form.get("ContentVariables") or None
        message = self.messages.add(
            sender=form["From"], to=form["To"], direction="outbound-api", status="queued",
            body=_filled_in(variables) if template else form.get("Body", ""),
            media=tuple(value for name, value in pairs if name == "MediaUrl"),
            status_callback=form.get("StatusCallback") or None, content_sid=template, content_variables=variables,
        )  # fmt: skip
        if self._callbacks is not None:
            self._callbacks.begin(message)
        return message

    def redeliver(self, sid: str) -> bool:
        """Post an inbound message's webhook (again); True when it was answered with 2xx."""
        if self.webhook_url is None:
            done = False
        else:
            done = self._outbox.post_inbound(sid, self.webhook_url, self._inbound_forms[sid], self._closing)
        self.messages.change(sid, webhook="answered" if done else "failed")
        return done

    def routes(self) -> list[BaseRoute]:
        """Twilio's, and the one through which an employee writes."""
        return [
            self._api(f"{_ACCOUNT}/Messages.json", "POST", "create", self._create),
            self._api(f"{_ACCOUNT}/Messages.json", "GET", "list", self._list),
            self._api(f"{_ACCOUNT}/Messages/{{sid}}.json", "GET", "fetch", self._fetch),
            self._api(f"{_ACCOUNT}/Messages/{{sid}}.json", "POST", "fetch", self._redact),
            self._api(f"{_ACCOUNT}/Messages/{{sid}}.json", "DELETE", "fetch", self._delete),
            self._api("/v2/Indicators/Typing.json", "POST", "typing", self._typing),
            self._api(f"{_ACCOUNT}.json", "GET", "account", lambda _: JSONResponse(self.account.as_json())),
            self._api("/v2/Channels/Senders", "GET", "senders", self._list_senders),
            self._api("/v2/Channels/Senders/{sender}", "GET", "senders", self._fetch_sender),
            Route("/phone/messages", self._write, methods=["POST"]),
            *admin_routes(self.conditions, self.messages, self.place),
        ]

    def clock(self) -> float:
        """The stand-in's own, which may be wrong."""
        return super().clock() + self.conditions.clock_offset

    def failure(self, status: int, code: int | str | None) -> Response:
        """Twilio's JSON for an error."""
        number = (
            int(code) if code is not None and str(code).isdecimal() else {429: 20429, 401: 20003}.get(status, 20500)
        )
        return _refusal(Refused(status, number, "The stand-in was told to fail."))

    def _api(self, path: str, method: str, where: str, act: Callable[[Call], Response]) -> Route:
        def answer(call: Call) -> Response:
            try:
                self._authenticate(call.request)
                return act(call)
            except Refused as refused:
                return _refusal(refused)

        return Route(path, self.operation(where, answer), methods=[method])

    def _authenticate(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = password = ""
        if scheme.lower() != "basic" or (name, password) != (self.account_sid, self.auth_token):
            raise Refused(401, 20003, "Authenticate")
        if request.path_params.get("account", self.account_sid) != self.account_sid:
            raise _not_found(request)

    def _create(self, call: Call) -> Response:
        self._check(call.form)
        message = self.accept(call.pairs)
        return JSONResponse(message.as_json(self.account_sid, clock_offset=self.conditions.clock_offset), 201)

    def _check(self, form: dict[str, str]) -> None:
        to, body = form.get("To", ""), form.get("Body", "")
        if not to:
            raise Refused(400, 21604, "A 'To' phone number is required.")
        if not form.get("From"):
            raise Refused(400, 21603, "A 'From' phone number is required.")
        if form["From"] != self.whatsapp_from:
            raise Refused(400, 63007, "Twilio could not find a Channel with the specified From address")
        if not re.fullmatch(r"whatsapp:\+?[A-Za-z0-9.]{5,64}", to):
            raise Refused(400, 21211, f"Invalid 'To' Phone Number: {to}")
        if not (body or form.get("MediaUrl") or form.get("ContentSid")):
            raise Refused(400, 21602, "Message body is required.")
        if (template := form.get("ContentSid")) and not re.fullmatch(r"HX[0-9a-fA-F]{32}", template):
            raise Refused(400, 21655, "The ContentSid is invalid")
        if (variables := form.get("ContentVariables")) and _variables(variables) is None:
            raise Refused(400, 21656, "The ContentVariables parameter is invalid")
        if len(body.encode("utf-16-le")) // 2 > BODY_UNITS_AT_MOST:
            raise Refused(400, 21617, "The concatenated message body exceeds the 1600 character limit")
        if to in self.opted_out:
            raise Refused(400, 21610, "Attempt to send to unsubscribed recipient")

    def _fetch(self, call: Call) -> Response:
        return JSONResponse(self.messages.show(self._named(call), self.account_sid))

    def _redact(self, call: Call) -> Response:
        if call.form.get("Body") != "":
            raise Refused(400, 20001, "Only the body can be changed, and only to nothing")
        message = self.messages.change(self._named(call).sid, body="")
        return JSONResponse(self.messages.show(message, self.account_sid))

    def _delete(self, call: Call) -> Response:
        self.messages.delete(self._named(call).sid)
        return Response(status_code=204)

    def _named(self, call: Call) -> Message:
        message = self.messages.find(call.request.path_params["sid"])
        if message is None:
            raise _not_found(call.request)
        return message

    def _list(self, call: Call) -> Response:
        to = call.request.query_params.get("To", "")
        if self.conditions.foreign and to not in ("", self.whatsapp_from):
            newest = next((message for message in reversed(self.messages.all()) if message.to == to), None)
            if newest is None or not newest.is_foreign:
                self.place(to)
        try:
            return JSONResponse(self.messages.page(self.account_sid, call.request.query_params))
        except BadFilter as wrong:
            raise Refused(400, 20001, str(wrong)) from wrong

    def _typing(self, call: Call) -> Response:
        form = call.form
        if form.get("channel") != "whatsapp":
            raise Refused(400, 20001, "Invalid parameter: channel")
        message = self.messages.find(form.get("messageId", ""))
        if message is None or message.direction != "inbound":
            raise Refused(404, 20404, "The message was not found")
        self.messages.tell("typing", self.messages.change(message.sid, read=True))
        return JSONResponse({"success": True})

    def own_sender(self) -> Sender:
        """The sender of the number that answers, as if its webhook had been set by the book."""
        hook = self.webhook_url
        overrides = f"#rc={self._tries_of_webhook}&rp=all"
        return Sender(self.whatsapp_from, callback_url=hook and hook + overrides, fallback_url=hook)

    def _list_senders(self, call: Call) -> Response:
        wanted = call.request.query_params.get("Channel", "whatsapp")
        shown = [self.own_sender()] if self.senders is None else self.senders
        return JSONResponse(page_of([one for one in shown if one.sender_id.startswith(f"{wanted}:")], self.url))

    def _fetch_sender(self, call: Call) -> Response:
        shown = [self.own_sender()] if self.senders is None else self.senders
        found = next((one for one in shown if one.sid == call.request.path_params["sender"]), None)
        if found is None:
            raise _not_found(call.request)
        return JSONResponse(found.as_json(self.url))

    async def _write(self, request: Request) -> Response:
        given = await json_object(request)
        if isinstance(given, Response):
            return given
        try:
            sid = self.receive(
                str(given["from"]), str(given.get("body", "")), profile_name=given.get("profile_name"),
                media_url=given.get("media_url"), media_type=given.get("media_type"), wait=False,
            )  # fmt: skip
        except (KeyError, TypeError, AttributeError):
            return JSONResponse({"error": "a JSON object with from and body is needed"}, 400)
        return JSONResponse({"sid": sid}, 202)


def _variables(text: str) -> dict[str, str] | None:
    """A template's variables, or None when that is no JSON object."""
    try:
        given = json.loads(text)
    except ValueError:
        return None
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else None


def _filled_in(variables: str | None) -> str:
    """What the list shows of a message that was sent as a template: Twilio's text, not the application's."""
    values = _variables(variables or "{}") or {}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values.get(found[1], ""), TEMPLATE)


def _not_found(request: Request) -> Refused:
    return Refused(404, 20404, f"The requested resource {request.url.path} was not found")


def _refusal(refused: Refused) -> Response:
    more = f"https://www.twilio.com/docs/errors/{refused.code}"
    body = {"code": refused.code, "message": refused.sentence, "more_info": more, "status": refused.status}
    return JSONResponse(body, refused.status)
