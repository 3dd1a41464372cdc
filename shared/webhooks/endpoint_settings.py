"""What people set of an endpoint, and what of it can be: pure checks, one sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from shared.clients.guard import Guard, NoSuchName, NotAllowed
from shared.db.text import storable
from shared.errors import UserError
from shared.signature.standard import PREFIX, key
from shared.signature.timestamped import DEFAULT_HEADER
from shared.webhooks.endpoint_headers import checked_signature_header

type Schedule = Literal["table", "decorrelated"]
SCHEDULES: Final[tuple[Schedule, ...]] = get_args(Schedule.__value__)

RATE_AT_LEAST, RATE_AT_MOST = 1 / 3600, 1000.0
CONCURRENCY_AT_MOST = 64
TIMEOUT_AT_LEAST, TIMEOUT_AT_MOST = 0.1, 50.0  # seconds
TYPES_AT_MOST = 100
TYPE_LENGTH_AT_MOST = 200
SECRET_LENGTH_AT_LEAST, SECRET_LENGTH_AT_MOST = 16, 256

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """What a person sets, beside secret and extra headers.

    `events`: types, a trailing * for a prefix; none: all that come from sources. `rate`: attempts a second over all instances,
    None for no limit. `concurrency`: attempts at once over all instances.
    """

    url: str
    events: tuple[str, ...] = ()
    signature_header: str = DEFAULT_HEADER
    schedule: Schedule = "table"
    rate: float | None = None
    concurrency: int = 4
    timeout_seconds: float = 15.0


def checked_name(name: str) -> str:
    """Raises UserError for what cannot be an endpoint's name."""
    if not _NAME.fullmatch(name):
        raise UserError(
            "An endpoint's name is 1 to 63 small letters, digits and hyphens, and begins with no hyphen.",
            name="endpoint_name",
        )
    return name


def check_url(guard: Guard, url: str) -> None:
    """Raise UserError, with a sentence that says why and what to do, for a URL that may not be delivered to."""
    try:
        guard.check_url(url)
    except NoSuchName as refused:
        raise UserError(f"{refused} Correct the URL.", name="endpoint_host_name") from None
    except NotAllowed as refused:
        hint = "" if "OUTBOUND_ALLOW_HOSTS" in str(refused) else " Internal services are named in OUTBOUND_ALLOW_HOSTS."
        raise UserError(f"{refused}{hint}", name="endpoint_url") from None


def checked(
    wanted: EndpointSettings, guard: Guard, header_names: Sequence[str], *, known_url: str | None = None
) -> EndpointSettings:
    """The settings, tidied. Raises UserError."""
    url = wanted.url.strip()
    if url != known_url:
        check_url(guard, url)
    if storable(url) != url:
        raise UserError("The URL cannot be read.", name="endpoint_url")
    if wanted.schedule not in SCHEDULES:
        raise UserError(f"A schedule is {' or '.join(SCHEDULES)}.", name="endpoint_schedule")
    if wanted.rate is not None and not RATE_AT_LEAST <= wanted.rate <= RATE_AT_MOST:
        raise UserError(
            f"A rate is attempts a second, from one an hour (0.0003) to {RATE_AT_MOST:,.0f}, or none.",
            name="endpoint_rate",
        )
    if not 1 <= wanted.concurrency <= CONCURRENCY_AT_MOST:
        raise UserError(
            f"The concurrency is a whole number from 1 to {CONCURRENCY_AT_MOST}.", name="endpoint_concurrency"
        )
    if not TIMEOUT_AT_LEAST <= wanted.timeout_seconds <= TIMEOUT_AT_MOST:
        raise UserError(f"The timeout is {TIMEOUT_AT_LEAST:g} to {TIMEOUT_AT_MOST:g} seconds.", name="endpoint_timeout")
    return replace(
        wanted, url=url, events=_checked_types(wanted.events),
        signature_header=checked_signature_header(wanted.signature_header, header_names),
    )  # fmt: skip


def _checked_types(given: Sequence[str]) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(word for word in (text.strip() for text in given) if word))
    if len(types) > TYPES_AT_MOST:
        raise UserError(f"An endpoint names at most {TYPES_AT_MOST} types of events.", name="endpoint_events_many")
    for word in types:
        if not word.isprintable() or " " in word or "*" in word[:-1] or len(word) > TYPE_LENGTH_AT_MOST:
            raise UserError(
                f"{word!r} is no type of event: types have no spaces, and a * only at their end, for all that begin so.",
                name="endpoint_events",
            )
    return types


def checked_secret(secret: str) -> str:
    """Raises UserError, which does not repeat it."""
    if not SECRET_LENGTH_AT_LEAST <= len(secret) <= SECRET_LENGTH_AT_MOST or not re.fullmatch(r"[!-~]+", secret):
        raise UserError(
            f"A secret is {SECRET_LENGTH_AT_LEAST} to {SECRET_LENGTH_AT_MOST} characters of ASCII without spaces; leave it "
            "out and one is made.",
            name="endpoint_secret",
        )
    try:
        length = len(key(secret))
    except ValueError:
        length = 0
    if length < SECRET_LENGTH_AT_LEAST:
        raise UserError(
            f"What follows {PREFIX} must be base64 of at least {SECRET_LENGTH_AT_LEAST} bytes.", name="endpoint_secret"
        )
    return secret


def columns(wanted: EndpointSettings) -> dict[str, Any]:
    """The settings as a statement's parameters."""
    return {item.name: getattr(wanted, item.name) for item in fields(wanted)} | {"events": list(wanted.events)}


def shown(wanted: EndpointSettings) -> dict[str, str]:
    """The settings for the audit log: of the URL its host alone, since some carry a token in the path."""
    return {
        "url": f"{urlsplit(wanted.url).scheme}://{urlsplit(wanted.url).netloc}/…",
        "events": listed(wanted.events),
        "signature_header": wanted.signature_header,
        "schedule": wanted.schedule,
        "rate": "∞" if wanted.rate is None else f"{wanted.rate:g}",
        "concurrency": str(wanted.concurrency),
        "timeout_seconds": f"{wanted.timeout_seconds:g}",
    }


def changes_of(was: EndpointSettings, now: EndpointSettings) -> dict[str, str]:
    """What has changed, for the audit log."""
    before, after = shown(was), shown(now)
    return {name: f"{before[name]} → {after[name]}" for name in before if getattr(was, name) != getattr(now, name)}


def listed(names: Iterable[str]) -> str:
    """Names on one line."""
    return ", ".join(names) or "–"
