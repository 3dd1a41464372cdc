"""The webhook's one statement: a message, its conversation and its job are stored together, or nothing is.

The job joins the conversation's active autoreply, if there is one. ON CONFLICT DO UPDATE takes that row's lock, so a claim
passes it by while this transaction is open, and a completion waits for it and then sees `rerun`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.types.json import Jsonb

from shared.conversation import consent, words
from shared.conversation.text import storable
from shared.db.pool import Conn, Database, is_worth_repeating, one
from shared.errors import DatabaseAway, RequestRefused
from shared.settings import SECONDS_OF_SETTLING_AT_MOST

TRIES = 3
SECONDS_AT_MOST = 4.5  # for all tries together, so that Twilio has its 503 within five
POOL_WAIT_SECONDS = 2.0
STATEMENT_SECONDS = 3.0

# Twilio's MessageType: a thumb under a message, or taking one back, asks nothing. These others say all that they say in words.
NO_QUESTION = frozenset({"reaction", "deleted", "delete", "revoked", "revoke"})
_TEXTS = frozenset({"", "text", "button", "interactive", "list", "edited", "edit"})

# The statement itself is the function store_inbound of migration 0006: its plan is kept, and the webhook answers sooner.
STORE = """
    SELECT stored_id, due_in FROM store_inbound(
        %(sid)s, %(address)s, %(external_user_id)s, %(profile_name)s, %(body)s, %(media)s, %(raw)s, %(consent)s,
        %(consent_language)s, %(default_language)s, %(confirmed)s, %(line_nl)s, %(line_en)s, %(message_id)s, %(line_id)s,
        %(settle)s, %(settle_at_most)s)
"""
# The same joining for messages that are there already; whoever waits for their answer has waited long enough to settle.
JOIN = """
    INSERT INTO ai_jobs (payload, conversation_id)
    SELECT jsonb_build_object('type', 'autoreply', 'conversation_id', conversation_id, 'message_id', id), conversation_id
    FROM messages
    WHERE conversation_id = %(conversation_id)s AND NOT from_self AND answered_by IS NULL
        AND created_at > now() - interval '24 hours'
    ORDER BY seq DESC LIMIT 1
    ON CONFLICT (conversation_id) WHERE type = 'autoreply' AND status IN ('pending', 'processing')
    DO UPDATE SET rerun = true, payload = excluded.payload, updated_at = now()
    RETURNING id
"""


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message as Twilio reports it; `address` is where an answer goes."""

    sid: str
    address: str
    external_user_id: str | None
    profile_name: str | None
    body: str
    media: list[dict[str, str]]
    opt_out_type: str | None
    raw: dict[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of it: `is_new` is False for a sid that was there already; `due_in` is the job's, in seconds."""

    is_new: bool
    due_in: float | None


def parse(fields: Sequence[tuple[str, str]]) -> Inbound:
    """Read the webhook's form. Raises RequestRefused when it is not a WhatsApp message."""
    raw: dict[str, str | list[str]] = {}
    for name, value in fields:
        known = raw.get(storable(name))
        text = storable(value)
        raw[storable(name)] = text if known is None else [*([known] if isinstance(known, str) else known), text]
    first = {name: value if isinstance(value, str) else value[0] for name, value in raw.items()}
    sid, sender = first.get("MessageSid") or first.get("SmsSid") or "", first.get("From", "")
    if not sid or len(sid) > 64:
        raise RequestRefused(400, "The form has no MessageSid: this is not a message from Twilio.")
    if not sender.startswith("whatsapp:") or not 1 <= len(sender) - 9 <= 128:
        raise RequestRefused(400, "From is not a WhatsApp address: only WhatsApp messages are taken.")
    return Inbound(
        sid=sid,
        address=sender.removeprefix("whatsapp:"),
        external_user_id=first.get("ExternalUserId") or None,
        profile_name=first.get("ProfileName", "")[:256] or None,
        body=_said(first),
        media=_media(first),
        opt_out_type=first.get("OptOutType") or None,
        raw=raw,
    )


def store(database: Database, message: Inbound, *, settle_seconds: float, default_language: str) -> Stored:
    """Store the message with its conversation and job, in one statement, at most three times in 4.5 s.

    Raises DatabaseAway when the database cannot be had in that time, so that Twilio's retry or fallback can act.
    """
    given = parameters(message, settle_seconds=settle_seconds, default_language=default_language)
    ends = time.monotonic() + SECONDS_AT_MOST
    for attempt in range(1, TRIES + 1):
        left = ends - time.monotonic()
        try:
            with database.connection(
                wait=min(POOL_WAIT_SECONDS, left), deadline=min(STATEMENT_SECONDS, left)
            ) as connection:
                row = one(connection, STORE, given)
        except psycopg.Error as error:
            if attempt == TRIES or not is_worth_repeating(error) or time.monotonic() >= ends - 0.2:
                raise DatabaseAway("the message could not be stored") from error
            continue
        assert row is not None
        return Stored(is_new=row[0] is not None, due_in=row[1])
    raise AssertionError("unreachable")


def join(connection: Conn, conversation_id: UUID) -> UUID | None:
    """Have a conversation's open messages answered: by its active autoreply, or by a new one that is due at once.

    Inside a transaction that has locked the conversation. Returns the job's id; None when no open message is a question.
    """
    row = one(connection, JOIN, {"conversation_id": conversation_id})
    return None if row is None else UUID(str(row[0]))


def parameters(message: Inbound, *, settle_seconds: float, default_language: str) -> dict[str, Any]:
    """What STORE is given for a message."""
    change, language = consent.change(message.body, message.opt_out_type)
    line = "start" if change == "start" else "stop"
    return {
        "sid": message.sid,
        "address": message.address,
        "external_user_id": message.external_user_id,
        "profile_name": message.profile_name,
        "body": message.body,
        "media": Jsonb(message.media),
        "raw": Jsonb(message.raw),
        "consent": change,
        "consent_language": language,
        "default_language": default_language,
        "confirmed": (message.opt_out_type or "").upper() in ("STOP", "START", "HELP"),
        "line_nl": words.line(line, "nl"),
        "line_en": words.line(line, "en"),
        "message_id": uuid4(),
        "line_id": uuid4(),
        "settle": settle_seconds,
        "settle_at_most": SECONDS_OF_SETTLING_AT_MOST,
    }


def _said(first: Mapping[str, str]) -> str:
    """The text; of a button or a list what was chosen, where that is not in the body already."""
    return first.get("Body") or first.get("ButtonText") or first.get("ListTitle") or ""


def _media(first: Mapping[str, str]) -> list[dict[str, str]]:
    """References to what came beside the text; nothing is fetched. What has no address is named by its kind."""
    count = first.get("NumMedia", "0")
    media = [
        {"url": first.get(f"MediaUrl{n}", ""), "type": first.get(f"MediaContentType{n}", "")}
        for n in range(min(int(count), 10) if count.isdecimal() and len(count) < 4 else 0)
    ]
    kind = first.get("MessageType", "").lower()[:64]
    if kind in NO_QUESTION:
        return [{"type": kind}]
    if not media and kind not in _TEXTS:
        return [{"type": kind}]  # a location, a contact card, an order …
    if not media and not _said(first):
        return [{"type": "unknown"}]
    return media
