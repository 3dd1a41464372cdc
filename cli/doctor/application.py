"""The application from outside, at PUBLIC_BASE_URL: healthy, of this version, letting in what is signed and nothing else."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import httpx2

from cli.doctor import clock
from cli.doctor.finding import Finding, left_out, ok, wrong
from cli.doctor.setup import Setup
from cli.twilio_addresses import status_url
from shared.clients.deadline import deadline
from shared.clients.http import DeadlineTransport
from shared.db.migrate import available
from shared.errors import shorten
from shared.queue.health import VERSION
from shared.settings import Settings
from shared.signature import parse_form, sign_twilio

NEEDED = ("PUBLIC_BASE_URL", "TWILIO_AUTH_TOKEN")
SECONDS = 15.0  # an instance that has slept takes its time
HEALTH, SIGNATURE, CONSOLE = "app: health", "app: signature", "app: forged sign-in"
SIGN_IN = "/.auth/login/"  # where the platform signs people in, and we send them


def check(setup: Setup) -> Iterator[Finding]:
    """Look at it as a browser, as Twilio, and as somebody who forges Twilio's or the platform's requests."""
    if missing := setup.lacks("PUBLIC_BASE_URL"):
        yield left_out("app", missing)
        return
    with httpx2.Client(transport=DeadlineTransport(call_seconds=SECONDS), timeout=SECONDS) as client:
        yield from _outside(client, setup)


def _outside(client: httpx2.Client, setup: Setup) -> Iterator[Finding]:
    base, before = setup.settings.public_base_url, time.time()
    try:
        with deadline(SECONDS):
            answer = client.get(f"{base}/api/health")
    except httpx2.HTTPError as error:
        yield wrong(HEALTH, f"{base} does not answer: check PUBLIC_BASE_URL, and that the app runs. {shorten(error)}")
        yield left_out(SIGNATURE, "The app does not answer.")
        yield left_out(CONSOLE, "The app does not answer.")
        return
    told = _told(answer)
    if told is None:  # neither the signature nor the forged headers are anything to try on a stranger
        yield wrong(HEALTH, _stranger(answer, base))
        yield left_out(SIGNATURE, "It is not this app that answers.")
        yield left_out(CONSOLE, "It is not this app that answers.")
        return
    yield _health(answer.status_code, told)
    yield clock.compare_date("app", answer.headers, before)
    checks = [(CONSOLE, _console)]
    if missing := setup.lacks("TWILIO_AUTH_TOKEN"):
        yield left_out(SIGNATURE, missing)
    else:
        checks.insert(0, (SIGNATURE, _signature))
    for name, look in checks:
        try:
            with deadline(SECONDS):
                yield look(client, setup.settings)
        except httpx2.HTTPError as error:
            yield wrong(name, f"{base} has stopped answering: see its log. {shorten(error)}")


def _told(answer: httpx2.Response) -> dict[str, Any] | None:
    """What the application says of its health; None when it is not this application that answers."""
    try:
        told = answer.json()
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) and "version" in told else None


def _stranger(answer: httpx2.Response, base: str) -> str:
    if 300 <= answer.status_code < 400:
        return f"{base} redirects: PUBLIC_BASE_URL must be the final address, as Twilio follows no redirect."
    return (
        f"{base}/api/health answers {answer.status_code}, not as this app does: is PUBLIC_BASE_URL another site, or does the "
        "app not start? Its log says."
    )


def _health(status: int, told: dict[str, Any]) -> Finding:
    version, reason = told["version"], told.get("reason")
    if status != 200:
        return wrong(HEALTH, f"It answers {status}: {reason or 'see its log.'}")
    if version != VERSION:
        return wrong(
            HEALTH, f"It is version {version}, and this is {VERSION}: run `azd deploy`, or the doctor of that version."
        )
    if told.get("migration") != len(available()):
        return wrong(HEALTH, f"Its database is at migration {told.get('migration')}, this code's is {len(available())}: "
                     "DATABASE_URL here is another database than the app's, or another version's.")  # fmt: skip
    return ok(HEALTH, f"It answers 200: version {version}, migration {told['migration']}.")


def _signature(client: httpx2.Client, settings: Settings) -> Finding:
    """A status for a message that nobody knows changes nothing: 204 when it is signed, and 403 when it is not."""
    url = f"{status_url(settings.public_base_url)}?message={uuid4()}&try=1"
    form = {"MessageSid": f"SM{uuid4().hex}", "MessageStatus": "sent", "AccountSid": settings.twilio_account_sid or ""}
    body = urlencode(form).encode()
    genuine = sign_twilio(url, parse_form(body), settings.twilio_auth_token)
    forged = sign_twilio(url, parse_form(body), f"not-{settings.twilio_auth_token}")
    signed, unsigned = (
        client.post(
            url,
            content=body,
            headers={"Content-Type": "application/x-www-form-urlencoded", "X-Twilio-Signature": signature},
        ).status_code
        for signature in (genuine, forged)
    )
    if unsigned == 204:
        return wrong(
            SIGNATURE, "A wrongly signed request is let in: take the app off the network, and deploy it again."
        )
    if signed == 403:
        return wrong(
            SIGNATURE,
            "A request signed as Twilio signs is refused: the app's TWILIO_AUTH_TOKEN or PUBLIC_BASE_URL is not what "
            "it is here. Set both there, and restart it.",
        )
    if 300 <= signed < 400:
        return wrong(
            SIGNATURE, "It redirects: PUBLIC_BASE_URL must be the final address, as Twilio follows no redirect."
        )
    if (signed, unsigned) != (204, 403):
        return wrong(SIGNATURE, f"It answers {signed} to a signed request and {unsigned} to a forged one, not 204 and 403: "
                     "see its log.")  # fmt: skip
    return ok(SIGNATURE, "A signed request is let in, a wrongly signed one is refused.")


def _console(client: httpx2.Client, settings: Settings) -> Finding:
    """Somebody who is not signed in sends the headers by which the platform names who is."""
    answer = client.get(f"{settings.public_base_url}/api/ops/", headers=_forged(settings), follow_redirects=False)
    status, location = answer.status_code, answer.headers.get("location", "")
    if status in (401, 403):
        return ok(CONSOLE, f"Forged identity headers are not believed: {status}.")
    if 300 <= status < 400 and (SIGN_IN in location or urlsplit(location).hostname == "login.microsoftonline.com"):
        return ok(CONSOLE, "Forged identity headers are not believed: it asks to sign in.")
    if status < 400:
        return wrong(
            CONSOLE,
            "Anybody can open the console by sending forged identity headers: set OPS_AUTH=off now. Then switch on the "
            "app's authentication, with no excluded paths, and check again.",
        )
    return wrong(CONSOLE, f"The console answers {status} to forged identity headers, not 403: see the app's log.")


def _forged(settings: Settings) -> dict[str, str]:
    """What the platform sends for an administrator."""
    name = "doctor@antwoord.invalid"
    claims = [
        {"typ": "tid", "val": settings.ops_tenant_id or ""},
        {"typ": "roles", "val": settings.ops_role},
        {"typ": "preferred_username", "val": name},
    ]
    principal = {"auth_typ": "aad", "name_typ": "preferred_username", "role_typ": "roles", "claims": claims}
    return {
        "X-MS-CLIENT-PRINCIPAL": base64.b64encode(json.dumps(principal).encode()).decode(),
        "X-MS-CLIENT-PRINCIPAL-IDP": "aad",
        "X-MS-CLIENT-PRINCIPAL-NAME": name,
        "X-MS-CLIENT-PRINCIPAL-ID": str(uuid4()),
    }
