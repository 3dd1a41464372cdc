"""From a verified body to one event of ours: where its id is, what it is about, when it happened.

What is done with a body that would poison others; its raw bytes are kept in each case that is stored:
- refused with 400: not UTF-8, not JSON (NaN and Infinity are none), not an object, nested more than 100 deep, a number that
  no double can hold (1e400, an integer of more than 308 digits);
- stored: NUL and lone surrogates in texts and names, which Postgres cannot hold, as U+FFFD; of a name that stands twice the
  last value, in `data` as well as in what is delivered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Any
from uuid import UUID

from shared.db.text import storable
from shared.errors import RequestRefused
from shared.idempotency import body_hash
from shared.webhooks.registry import KnownSource

PUBLIC_PREFIX = "evt_"
DEPTH_AT_MOST = 100
DIGITS_AT_MOST = 308
ID_LENGTH_AT_MOST = 256
TYPE_LENGTH_AT_MOST = 200
SUBJECT_LENGTH_AT_MOST = 500
ID_HEADERS = ("webhook-id", "x-webhook-id", "x-event-id")
IDEMPOTENCY_HEADER = "x-idempotency-key"

# Where the normaliser json looks for what it was not told the place of; the data is then the whole body.
PATHS: Mapping[str, str] = {"type": "/type", "subject": "/subject", "occurred_at": "/occurred_at"}
# OpenAI's events name what they are about by one of these in their data.
OPENAI_SUBJECTS = ("id", "call_id", "session_id")
_MILLISECONDS_FROM = 10**11  # in seconds that would be the year 5138
_REPLACED = "\ufffd"


@dataclass(frozen=True, slots=True)
class Normalised:
    """One event of ours; `text` is what was generated and `sources` from what, where the source says where they are."""

    type: str
    subject: str | None
    occurred_at: datetime | None
    data: Any
    text: str | None = None
    sources: list[str] | None = None


def parse(raw: bytes) -> dict[str, Any]:
    """The body as an object that Postgres can hold. Raises RequestRefused (400)."""
    try:
        document = json.loads(
            raw.decode("utf-8-sig"), parse_int=_whole, parse_float=_fraction, parse_constant=_no_number
        )
    except UnicodeDecodeError:
        raise RequestRefused(400, "The body is not encoded as UTF-8.") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise RequestRefused(400, "The body is not JSON.") from None
    if not isinstance(document, dict):
        raise RequestRefused(400, "The body is not a JSON object.")
    cleaned: dict[str, Any] = _cleaned(document, 1)
    return cleaned


def event_id(source: KnownSource, headers: Mapping[str, str], document: Mapping[str, Any], raw: bytes) -> str:
    """The sender's id of the event, from where the source says. Raises RequestRefused (400)."""
    kind, _, place = source.id_from.partition(":")
    if kind == "body-sha256":
        return body_hash(raw).hex()
    if kind == "pointer":
        found = _at(document, place)
        if isinstance(found, int) and not isinstance(found, bool):
            found = str(found)
        if not isinstance(found, str) or not found.strip():
            raise RequestRefused(400, f"The body has no id at {place}.")
        if len(found) > ID_LENGTH_AT_MOST or _REPLACED in found:
            raise RequestRefused(400, f"The id at {place} cannot be read.")
        return found
    names = (place.lower(),) if place else ID_HEADERS
    named = next((name for name in names if headers.get(name)), None)
    if named is None:
        raise RequestRefused(400, f"The request has no {names[0]}.")
    return _token(headers[named], named)


def idempotency_key(headers: Mapping[str, str]) -> str | None:
    """`X-Idempotency-Key`, if there is one. Raises RequestRefused (400)."""
    given = headers.get(IDEMPOTENCY_HEADER)
    return _token(given, "X-Idempotency-Key") if given else None


def normalise(source: KnownSource, headers: Mapping[str, str], document: dict[str, Any]) -> Normalised:
    """The event that a body tells of. Raises RequestRefused (400)."""
    return _openai(document) if source.normaliser == "openai" else _generic(source, headers, document)


def public_id(event: UUID) -> str:
    """An event's id as senders and receivers know it: `evt_` and 32 hexadecimal digits."""
    return PUBLIC_PREFIX + event.hex


def render(
    event: UUID, event_type: str, source: str, subject: str | None, occurred_at: datetime | None, data: Any
) -> bytes:
    """What is delivered: canonical JSON (names in order, no blanks, UTF-8)."""
    return canonical({
        "id": public_id(event), "type": event_type, "source": source, "subject": subject,
        "occurred_at": None if occurred_at is None else occurred_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "data": data,
    }).encode("utf-8")  # fmt: skip


def canonical(value: Any) -> str:
    """JSON with names in order and no blanks."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _openai(document: dict[str, Any]) -> Normalised:
    """OpenAI's and Azure OpenAI's envelope is the same for every type, so one that is new passes through as it is.

    Source: https://platform.openai.com/docs/api-reference/webhook-events.
    """
    event_type = document.get("type")
    if not isinstance(event_type, str) or not event_type or len(event_type) > TYPE_LENGTH_AT_MOST:
        raise RequestRefused(400, "The body has no type that is an event's.")
    data = document.get("data", document)
    subjects = (_subject(data.get(name)) for name in OPENAI_SUBJECTS) if isinstance(data, dict) else ()
    subject = next((found for found in subjects if found), None)
    return Normalised(event_type, subject, _time(document.get("created_at")), data)


def _generic(source: KnownSource, headers: Mapping[str, str], document: dict[str, Any]) -> Normalised:
    """Whatever is where it was said to be. Without a type the event is of the type that its source is called."""

    def found(name: str) -> Any:
        place = source.paths.get(name) or PATHS.get(name)
        if place is None:
            return None
        if not place.startswith("header:"):
            return _at(document, place)
        value = headers.get(place[7:].lower())
        return None if value is None else storable(value)

    event_type, data, text, origin = found("type"), found("data"), found("text"), found("sources")
    is_type = isinstance(event_type, str) and event_type.strip() and len(event_type) <= TYPE_LENGTH_AT_MOST
    return Normalised(
        event_type if is_type else source.name,
        _subject(found("subject")),
        _time(found("occurred_at")),
        document if data is None else data,
        "\n".join(_texts(text)) or None,  # it may come in parts
        None if origin is None else list(_texts(origin)),
    )


def _at(document: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) leads to, or None."""
    value = document
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isascii() and name.isdecimal() and len(name) < 10:
            value = value[int(name)] if int(name) < len(value) else None
        else:
            return None
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _token(value: str, name: str) -> str:
    """A header's value that is one id. A comma means that the header was sent twice: the host joins them so."""
    if len(value) > ID_LENGTH_AT_MOST or not all("!" <= character <= "~" for character in value) or "," in value:
        raise RequestRefused(400, f"{name} cannot be read.")
    return value


def _subject(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return value if isinstance(value, str) and 0 < len(value) <= SUBJECT_LENGTH_AT_MOST else None


def _time(value: Any) -> datetime | None:
    """Unix seconds or milliseconds, or ISO 8601, in UTC when it says no zone; None for what is no time.

    Nor is the first or the last year that there is: on another clock some of its moments are in none.
    """
    found = _moment(value)
    return found if found and MINYEAR < found.year < MAXYEAR else None


def _moment(value: Any) -> datetime | None:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) >= _MILLISECONDS_FROM else value, UTC)
        if isinstance(value, str) and len(value) <= 64:
            found = datetime.fromisoformat(value)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _whole(text: str) -> int:
    if len(text) > DIGITS_AT_MOST:
        raise _too_large()
    return int(text)


def _fraction(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _too_large()
    return number


def _no_number(text: str) -> float:
    raise RequestRefused(400, f"The body is not JSON: {text} is no number.")


def _cleaned(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict | list) and depth > DEPTH_AT_MOST:
        raise _too_deep()
    if isinstance(value, dict):
        return {storable(name): _cleaned(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [_cleaned(inner, depth + 1) for inner in value]
    return value


def _too_deep() -> RequestRefused:
    return RequestRefused(400, f"The body is nested more than {DEPTH_AT_MOST} deep.")


def _too_large() -> RequestRefused:
    return RequestRefused(400, "The body holds a number that no double can hold.")
