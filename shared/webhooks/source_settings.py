"""What people set of a source, and what of it can be: pure checks, one sentence each, for adding and for changing alike."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Literal, get_args

from shared.db.text import storable
from shared.errors import UserError
from shared.signature.standard import key

type Scheme = Literal["standard", "t-v1", "x-hub"]
type Normaliser = Literal["openai", "json"]
SCHEMES: Final[tuple[Scheme, ...]] = get_args(Scheme.__value__)
NORMALISERS: Final[tuple[Normaliser, ...]] = get_args(Normaliser.__value__)

ID_FROM = "header"  # the first of the usual headers: shared/webhooks/normalise.py
TOLERANCE_SECONDS, TOLERANCE_AT_MOST = 300, 86_400
SIZE_LIMIT, SIZE_LIMIT_AT_MOST = 1024 * 1024, 10 * 1024 * 1024  # bytes
SECRET_LENGTH_AT_MOST = 1000
OUR_NAME = "antwoord"  # as a source: events of our own (shared/webhooks/deliver.py)
# What a source of normaliser json may say the place of. `text` and `sources`: generated text, and what it was generated from.
FIELDS: Final = ("type", "subject", "occurred_at", "data", "text", "sources")

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_POINTER = re.compile(r"(/([^/~\0\ud800-\udfff]|~[01])*){1,20}")
_POINTER_LENGTH_AT_MOST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """What a person sets of a source and can change, beside its secret.

    `id_from`: `header` (the first of webhook-id, X-Webhook-ID, X-Event-ID), `header:NAME`, `pointer:/PATH` into the verified
    body, or `body-sha256`. `signature_header`: for t-v1 alone. `normaliser`: by the scheme unless it is said. `paths`: for the
    normaliser json alone, the place of each of FIELDS as a JSON pointer, or as `header:NAME`.
    """

    id_from: str = ID_FROM
    signature_header: str | None = None
    tolerance_seconds: int = TOLERANCE_SECONDS
    size_limit: int = SIZE_LIMIT  # bytes
    normaliser: Normaliser | None = None
    paths: Mapping[str, str] = field(default_factory=dict)

    def read_as(self, scheme: Scheme) -> Normaliser:
        """The normaliser: OpenAI signs by the standard; what GitHub and Meta send has no type where OpenAI has its own."""
        return self.normaliser or ("openai" if scheme == "standard" else "json")


def checked_name(name: str) -> str:
    """Raises UserError for what cannot be a source's name."""
    if not _NAME.fullmatch(name):
        raise UserError(
            "A source's name is 1 to 63 small letters, digits and hyphens, and begins with no hyphen.",
            name="source_name",
        )
    if name == OUR_NAME:
        raise UserError(
            f"{OUR_NAME} is what our own events say that they come from: choose another name.", name="source_name_ours"
        )
    return name


def checked_secret(scheme: Scheme, secret: str) -> str:
    """The secret without the blanks that copying brings. Raises UserError, which does not repeat it."""
    used = secret.strip()
    if not used:
        raise UserError(
            "The secret is empty: anybody could sign. Leave it out to have one made.", name="source_secret_empty"
        )
    if len(used) > SECRET_LENGTH_AT_MOST or storable(used) != used:
        raise UserError(
            f"The secret must be text of at most {SECRET_LENGTH_AT_MOST} characters.", name="source_secret_unusable"
        )
    if scheme == "standard":
        try:
            key(used)
        except ValueError:
            raise UserError(
                "The secret is not one of Standard Webhooks: what follows whsec_ must be base64.",
                name="source_secret_not_base64",
            ) from None
    return used


def check(scheme: Scheme, wanted: SourceSettings) -> None:
    """Raise UserError for the first thing that cannot be."""
    if scheme not in SCHEMES:
        raise UserError(f"The scheme must be one of {', '.join(SCHEMES)}.", name="source_scheme")
    if wanted.read_as(scheme) not in NORMALISERS:
        raise UserError(f"The normaliser must be one of {', '.join(NORMALISERS)}.", name="source_normaliser")
    if not 1 <= wanted.tolerance_seconds <= TOLERANCE_AT_MOST:
        raise UserError(f"The tolerance is 1 to {TOLERANCE_AT_MOST:,} seconds.", name="source_tolerance")
    if not 1 <= wanted.size_limit <= SIZE_LIMIT_AT_MOST:
        raise UserError(f"The size limit is 1 to {SIZE_LIMIT_AT_MOST:,} bytes.", name="source_size_limit")
    if wanted.signature_header is not None and (scheme != "t-v1" or not _HEADER.fullmatch(wanted.signature_header)):
        raise UserError(
            "The signature's header is the name of a header, and only the scheme t-v1 lets it be chosen.",
            name="source_signature_header",
        )
    if not _is_id_place(wanted.id_from):
        raise UserError(
            "The id is in header:NAME, in pointer:/PATH of the body, or is body-sha256.", name="source_id_from"
        )
    if wanted.paths and wanted.read_as(scheme) != "json":
        raise UserError(
            "Only the normaliser json is told where things are: choose that one too, or name no places.",
            name="source_paths",
        )
    for named, place in wanted.paths.items():
        if named not in FIELDS or not (_is_pointer(place) or _is_header(place)):
            raise UserError(
                f"{storable(named)} cannot be at {storable(place)}: name one of {', '.join(FIELDS)}, at /PATH in the body or "
                "in header:NAME.",
                name="source_paths",
            )


def version_of(settings: SourceSettings) -> str:
    """A short name of the settings as they are: another one as soon as one of them is another."""
    return hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode()).hexdigest()[:20]


def shown(scheme: Scheme, wanted: SourceSettings) -> dict[str, str | None]:
    """The settings for the audit log; None for what is not set."""
    return {
        "id_from": wanted.id_from,
        "signature_header": wanted.signature_header,
        "tolerance_seconds": str(wanted.tolerance_seconds),
        "size_limit": str(wanted.size_limit),
        "normaliser": wanted.read_as(scheme),
        "paths": ", ".join(f"{named}={wanted.paths[named]}" for named in sorted(wanted.paths)) or None,
    }


def changes_of(scheme: Scheme, was: SourceSettings, now: SourceSettings) -> dict[str, str]:
    """What has changed, for the audit log."""
    before, after = shown(scheme, was), shown(scheme, now)
    return {name: f"{before[name] or '–'} → {after[name] or '–'}" for name in before if before[name] != after[name]}


def _is_id_place(place: str) -> bool:
    if place in (ID_FROM, "body-sha256") or _is_header(place):
        return True
    kind, _, pointer = place.partition(":")
    return kind == "pointer" and _is_pointer(pointer)


def _is_header(place: str) -> bool:
    kind, _, name = place.partition(":")
    return kind == "header" and _HEADER.fullmatch(name) is not None


def _is_pointer(place: str) -> bool:
    return len(place) <= _POINTER_LENGTH_AT_MOST and _POINTER.fullmatch(place) is not None
