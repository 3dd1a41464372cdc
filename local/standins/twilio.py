"""A stand-in for Twilio: Messages, the typing indicator, signed status callbacks and signed inbound webhooks.

POST /2010-04-01/Accounts/{sid}/Messages.json       GET …/Messages.json?To&From&DateSent…       GET …/Messages/{sid}.json
POST /v2/Indicators/Typing.json                     POST /phone/messages   (an employee writes)
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from local.standins.faults import FaultPlan
from local.standins.server import Call, StandIn
from local.standins.twilio_callbacks import PAUSES, STEPS, Outbox, Pairs, Posted, StatusCallbacks, Step, inbound_form
from local.standins.twilio_messages import API_VERSION, BadFilter, Message, MessageStore

ACCOUNT_SID = "AC" + "57a9d1" * 5 + "00"
AUTH_TOKEN = "57a9d1" * 5 + "ff"
WHATSAPP_FROM = "whatsapp:+31201234567"
BODY_UNITS_AT_MOST = 1600
_ACCOUNT = f"/{API_VERSION}/Accounts/{{account}}"


class Refused(Exception):
    """An error of the API: HTTP status, Twilio's code, and a sentence."""

    def __init__(self, status: int, code: int, sentence: str) -> None:
        self.status, self.code, self.sentence = status, code, sentence
        super().__init__(sentence)


class TwilioStandIn(StandIn):
    """Serves one account; as a context manager. `webhook_url` (settable later) is where inbound messages are posted.

    `opted_out` holds addresses that refuse messages (21610); `delivery_errors` maps addresses to the code with which
    their messages end undelivered. Raises UserError when the port is in use.
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
        self.messages = MessageStore()
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
        return [message for message in self.messages.all() if message.direction != "inbound"]

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
        form = inbound_form(self.account_sid, message, profile_name, media_type)
        self._inbound_forms[message.sid] = form + list((extra or {}).items())
        delivery = self._inbound.submit(self.redeliver, message.sid)
        if wait:
            delivery.result()
        return message.sid

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
            self._api("/v2/Indicators/Typing.json", "POST", "typing", self._typing),
            Route("/phone/messages", self._write, methods=["POST"]),
        ]

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
        form = call.form
        self._check(form)
        message = self.messages.add(
            sender=form["From"], to=form["To"], body=form.get("Body", ""), direction="outbound-api", status="queued",
            media=tuple(value for name, value in call.pairs if name == "MediaUrl"),
            status_callback=form.get("StatusCallback") or None,
            content_sid=form.get("ContentSid") or None, content_variables=form.get("ContentVariables") or None,
        )  # fmt: skip
        if self._callbacks is not None:
            self._callbacks.begin(message)
        return JSONResponse(message.as_json(self.account_sid), 201)

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
        if len(body.encode("utf-16-le")) // 2 > BODY_UNITS_AT_MOST:
            raise Refused(400, 21617, "The concatenated message body exceeds the 1600 character limit")
        if to in self.opted_out:
            raise Refused(400, 21610, "Attempt to send to unsubscribed recipient")

    def _fetch(self, call: Call) -> Response:
        message = self.messages.find(call.request.path_params["sid"])
        if message is None:
            raise _not_found(call.request)
        return JSONResponse(message.as_json(self.account_sid))

    def _list(self, call: Call) -> Response:
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

    async def _write(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return JSONResponse({"error": "send JSON"}, 415)  # a foreign page in the same browser cannot, unasked
        try:
            given: dict[str, Any] = await request.json()
            sid = self.receive(
                str(given["from"]), str(given.get("body", "")), profile_name=given.get("profile_name"),
                media_url=given.get("media_url"), media_type=given.get("media_type"), wait=False,
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError):
            return JSONResponse({"error": "a JSON object with from and body is needed"}, 400)
        return JSONResponse({"sid": sid}, 202)


def _not_found(request: Request) -> Refused:
    return Refused(404, 20404, f"The requested resource {request.url.path} was not found")


def _refusal(refused: Refused) -> Response:
    more = f"https://www.twilio.com/docs/errors/{refused.code}"
    body = {"code": refused.code, "message": refused.sentence, "more_info": more, "status": refused.status}
    return JSONResponse(body, refused.status)
