"""Twilio: the account, the sender that answers, and where Twilio posts what comes in."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from cli.doctor import clock
from cli.doctor.finding import Finding, advice, left_out, ok, wrong
from cli.doctor.setup import Setup
from cli.twilio_addresses import RETRIES, status_url, webhook_url
from shared.clients.deadline import deadline
from shared.errors import classify, shorten

NEEDED = ("TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN", "TWILIO_WHATSAPP_FROM", "PUBLIC_BASE_URL")
SECONDS = 10.0
SANDBOX = "whatsapp:+14155238886"
ONLINE = ("ONLINE", "ONLINE:UPDATING")
SENDERS_AT_MOST = 1000
WHERE = "at Twilio, Messaging › Senders › WhatsApp senders"


def check(setup: Setup) -> Iterator[Finding]:
    """Ask Twilio about the account and the sender."""
    if missing := setup.lacks("TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN"):
        yield left_out("twilio: account", missing)
        return
    with _opened(setup) as (twilio, http):
        before = time.time()
        try:
            with deadline(SECONDS):
                account = twilio.api.v2010.accounts(setup.settings.twilio_account_sid).fetch()
        except Exception as error:  # noqa: BLE001 - whatever the library raises is a finding
            yield _no_account(error)
            return
        yield _account(account)
        yield clock.compare_date("Twilio", http.headers, before)
        if missing := setup.lacks("TWILIO_WHATSAPP_FROM"):
            yield left_out("twilio: sender", missing)
            return
        try:
            with deadline(SECONDS):
                senders = twilio.messaging.v2.channels_senders.list(channel="whatsapp", limit=SENDERS_AT_MOST)
                found = next((one for one in senders if one.sender_id == setup.settings.twilio_whatsapp_from), None)
                sender = found and twilio.messaging.v2.channels_senders(found.sid).fetch()
        except Exception as error:  # noqa: BLE001 - as above
            yield wrong("twilio: sender", f"Twilio does not say what senders there are: try again. {shorten(error)}")
            return
    yield from _sender(sender, [str(one.sender_id) for one in senders], setup)


@contextlib.contextmanager
def _opened(setup: Setup) -> Iterator[tuple[Any, Any]]:
    """The library's client, and its HTTP client."""
    from shared.clients.twilio_http import connections, open_call

    settings = setup.settings
    with connections(SECONDS) as opened:
        yield open_call(opened, settings.twilio_api_base_url, settings.twilio_account_sid, settings.twilio_auth_token)


def _no_account(error: Exception) -> Finding:
    failure = classify(error)
    if failure.http_status in (401, 403, 404):
        return wrong(
            "twilio: account",
            "Twilio refuses TWILIO_ACCOUNT_SID with TWILIO_AUTH_TOKEN: copy both anew from the first page of its "
            f"console (an API key's secret does not do: webhooks are signed with the token). {failure.text}",
        )
    return wrong("twilio: account", f"Twilio does not answer as it should: try again. {failure.text}")


def _account(account: Any) -> Finding:
    if account.status != "active":
        return wrong("twilio: account", f"It is {account.status}: see the messages in Twilio's console.")
    if account.type == "Trial":
        return advice(
            "twilio: account", "It is a trial: it writes only to numbers that were verified. Upgrade it to go live."
        )
    return ok("twilio: account", "Twilio takes the token; the account is active.")


def _sender(sender: Any, known: list[str], setup: Setup) -> Iterator[Finding]:
    number, base = setup.settings.twilio_whatsapp_from, setup.settings.public_base_url
    if number == SANDBOX:
        yield left_out("twilio: sender", "It is the sandbox: it has no sender of its own.")
        yield left_out(
            "twilio: webhook",
            "Twilio does not show what the sandbox is set to. Under Messaging › Try it out › Send a WhatsApp message › "
            f'Sandbox settings, "When a message comes in" must be {webhook_url(base) if base else "your webhook"} (POST).',
        )
        return
    if sender is None:
        others = f"it has {', '.join(known)}" if known else "it has none"
        yield wrong(
            "twilio: sender", f"This account has no WhatsApp sender {number} ({others}): correct TWILIO_WHATSAPP_FROM."
        )
        return
    if sender.status in ONLINE:
        yield ok("twilio: sender", f"{number} is online.")
    else:
        yield wrong("twilio: sender", f"{number} is {sender.status}: see {WHERE}.")
    if missing := setup.lacks("PUBLIC_BASE_URL"):
        yield left_out("twilio: webhook", missing)
        return
    configured = sender.webhook or {}
    yield _webhook(configured, webhook_url(base))
    yield _status(configured, status_url(base))


def _webhook(configured: dict[str, Any], wanted: str) -> Finding:
    address, _, overrides = str(configured.get("callback_url") or "").partition("#")
    if address != wanted:
        now = f"is {address}" if address else "is not set"
        return wrong(
            "twilio: webhook",
            f'It {now}; {WHERE}, set "Webhook URL for incoming messages" to {wanted}{RETRIES} (POST).',
        )
    if str(configured.get("callback_method") or "POST").upper() != "POST":
        return wrong("twilio: webhook", f"Its method is {configured['callback_method']}: set it to POST, {WHERE}.")
    if "rc=" not in overrides:
        return advice("twilio: webhook", f"It is right, but is tried once only: append {RETRIES} to it, {WHERE}.")
    if not configured.get("fallback_url"):
        return advice("twilio: webhook", f"It is right; set the fallback URL to {wanted} as well, {WHERE}.")
    return ok("twilio: webhook", f"It is {wanted}, with retries and a fallback.")


def _status(configured: dict[str, Any], wanted: str) -> Finding:
    address = str(configured.get("status_callback_url") or "").partition("#")[0]
    if not address:
        return ok("twilio: status URL", "It is not set at Twilio, and need not be: each message names its own.")
    if address != wanted:
        return wrong(
            "twilio: status URL", f'It is {address}; {WHERE}, set "Status callback URL" to {wanted}, or clear it.'
        )
    return ok("twilio: status URL", f"It is {wanted}.")
