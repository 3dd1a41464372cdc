"""Twilio's two webhooks: from the raw request to a status and a body. Verify first, then one write, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import psycopg

from shared import signature, telemetry
from shared.conversation import inbound, status
from shared.db.pool import Database
from shared.errors import DatabaseAway, RequestRefused, shorten
from shared.request import Request, Response
from shared.settings import Settings

BODY_LIMIT = 64 * 1024
FORM = "application/x-www-form-urlencoded"
EMPTY_TWIML = '<?xml version="1.0" encoding="UTF-8"?><Response></Response>'


def receive_message(
    request: Request, settings: Settings, database: Database, wake: Callable[[float], None]
) -> Response:
    """`POST /api/twilio/inbound`: 200 with empty TwiML once the message is stored, also when it was there already.

    Hostile or broken input gets 4xx; 503 when the database cannot be had, so that Twilio's retry or fallback can act.
    """
    try:
        fields = _verified_fields(request, settings)
        message = inbound.parse(fields)
        stored = inbound.store(
            database, message, settle_seconds=settings.settle_seconds, default_language=settings.default_language
        )
    except RequestRefused as refused:
        return _refused("inbound_refused", refused)
    except DatabaseAway as away:
        return _away("inbound_not_stored", away)
    if stored.due_in is not None:
        wake(stored.due_in)
    telemetry.event("inbound_stored" if stored.is_new else "inbound_repeated", sid=message.sid)
    return Response(200, EMPTY_TWIML, "text/xml; charset=utf-8")


def receive_status(request: Request, settings: Settings, database: Database) -> Response:
    """`POST /api/twilio/status`: 204 once the status is recorded, also when it changes nothing."""
    try:
        fields = _verified_fields(request, settings)
        status.record(database, dict(fields), _message_id(request.url), template_sid=settings.twilio_template_sid)
    except RequestRefused as refused:
        return _refused("status_refused", refused)
    except (DatabaseAway, psycopg.OperationalError) as away:
        return _away("status_not_stored", away)
    return Response(204)


def _verified_fields(request: Request, settings: Settings) -> list[tuple[str, str]]:
    """The form's fields, after size, type, signature and encoding were checked, in this order."""
    if len(request.body) > BODY_LIMIT:
        raise RequestRefused(413, f"The body is larger than {BODY_LIMIT} bytes.")
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != FORM:
        raise RequestRefused(415, f"The content type must be {FORM}.")
    form = signature.parse_form(request.body)
    signature.verify_twilio(
        url_base=settings.public_base_url,
        path_and_query=_path_and_query(request.url),
        form=form,
        signature=request.headers.get("x-twilio-signature"),
        settings_header=request.headers.get("x-twilio-webhooks-signature-settings"),
        auth_tokens=[token for token in (settings.twilio_auth_token, settings.twilio_auth_token_secondary) if token],
        shared_key=settings.twilio_webhook_shared_key,
    )
    try:
        # Lone surrogates are let through here and replaced where the text is stored; everything else must be UTF-8.
        return [(name.decode("utf-8", "surrogatepass"), value.decode("utf-8", "surrogatepass")) for name, value in form]
    except UnicodeDecodeError as broken:
        raise RequestRefused(400, "The form is not encoded as UTF-8.") from broken


def _path_and_query(url: str) -> str:
    """Everything after the authority, untouched: the signature covers it as it was sent."""
    return "/" + url.partition("://")[2].partition("/")[2]


def _message_id(url: str) -> UUID | None:
    values = parse_qs(urlsplit(url).query).get("message", [])
    try:
        return UUID(values[0]) if values else None
    except ValueError:
        return None


def _refused(event: str, refused: RequestRefused) -> Response:
    telemetry.warning(event, status=refused.status, reason=str(refused))
    return Response(refused.status, f"{refused}\n")


def _away(event: str, away: Exception) -> Response:
    telemetry.error(event, error=shorten(away))
    return Response(503, "The message could not be stored: the database is away. Please try again.\n")
