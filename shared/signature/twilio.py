"""Twilio's signatures.

Twilio signs the full URL followed by every form field: names in order, under each name its different values in order,
name and value without anything between. The hash is HMAC-SHA1 with the account's auth token; if one of Twilio's
webhook rules matches, the request names a shared key and a hash in `X-Twilio-Webhooks-Signature-Settings` instead.
Nothing but the secret and the hash differs between the two. Twilio's own library (`twilio.request_validator`) is the
oracle of our tests; it is not imported here, because this module is on the webhook's path.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote_to_bytes

from shared.errors import RequestRefused

FIELDS_AT_MOST = 1000
HMAC_SHA1 = "HMAC_SHA1"
HMAC_SHA256 = "HMAC_SHA256"

_HASHES = {HMAC_SHA1: hashlib.sha1, HMAC_SHA256: hashlib.sha256}
_SIGNATURE_LENGTH_AT_MOST = 64  # base64 of SHA-256 takes 44
_SETTINGS_LENGTH_AT_MOST = 512
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<host>(?:[^@/]*@)?(?:\[[^\]/]*\]|[^:/\[\]@]+))(?::(?P<port>\d*))?", re.I)

Form = Sequence[tuple[bytes, bytes]]


def parse_form(body: bytes) -> list[tuple[bytes, bytes]]:
    """The fields of an application/x-www-form-urlencoded body, in the order sent, as bytes.

    Empty values and repeated fields are kept, as they are signed. A `%` that starts no escape stands for itself, as
    in the parsers that Twilio's library is used with. More than 1,000 fields raise RequestRefused (400).
    """
    if body.count(b"&") >= FIELDS_AT_MOST:
        raise RequestRefused(400, f"The form has more than {FIELDS_AT_MOST} fields.")
    fields = []
    for piece in body.split(b"&"):
        if piece:
            name, _, value = piece.replace(b"+", b" ").partition(b"=")
            fields.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    return fields


def sign_twilio(url: bytes | str, form: Iterable[tuple[bytes, bytes]], secret: str, algorithm: str = HMAC_SHA1) -> str:
    """Twilio's signature of a request, as it stands in `X-Twilio-Signature`.

    `url` is the full URL as Twilio called it, query included. Raises ValueError for an algorithm that is unknown.
    """
    hash_function = _HASHES.get(algorithm.upper())
    if hash_function is None:
        raise ValueError(f"unknown signature algorithm {algorithm!r}")
    signed = bytearray(_as_bytes(url))
    for name, value in sorted(set(form)):  # pairs in order: names in order, and under each name its different values
        signed += name + value
    digest = hmac.new(_as_bytes(secret), signed, hash_function).digest()
    return base64.b64encode(digest).decode("ascii")


def verify_twilio(
    *,
    url_base: str,
    path_and_query: str,
    form: Form,
    signature: str | None,
    settings_header: str | None,
    auth_tokens: Sequence[str],
    shared_key: str | None,
) -> None:
    """Return if the request is Twilio's; raise RequestRefused (403) with one sentence if not.

    `url_base` is PUBLIC_BASE_URL, `path_and_query` what follows it exactly as it was sent, `auth_tokens` the account's
    tokens (two while they rotate). The URL is tried with and without the scheme's default port, since Twilio's
    services differ in that; another port is part of the address and stays.

    The settings header decides by itself which secret counts: with it only the shared key, without it only the auth
    tokens. The header also names the hash, HMAC_SHA1 if it names none; so HMAC_SHA1 with the header is checked with
    the shared key, as in Twilio's libraries: the hash says nothing about the secret, and falling back to the token
    would let a leaked token sign where its owner has moved to a key.
    """
    given = _checked_signature(signature)
    if settings_header:
        algorithm, secrets = _algorithm(settings_header), [shared_key or ""]
        if not shared_key:
            raise RequestRefused(
                403, "The request is signed with a shared key, and TWILIO_WEBHOOK_SHARED_KEY is not set."
            )
    else:
        algorithm, secrets = HMAC_SHA1, list(auth_tokens)
    genuine = False
    for url in _urls(url_base, path_and_query):
        for secret in secrets:
            expected = sign_twilio(url, form, secret, algorithm).encode("ascii")
            # An empty secret would let anybody sign. Every candidate is computed, whichever matches.
            genuine |= hmac.compare_digest(expected, given) and bool(secret)
    if not genuine:
        raise RequestRefused(403, "The signature is not Twilio's for this address and form.")


def _checked_signature(signature: str | None) -> bytes:
    """The header's bytes, if it can be a signature at all."""
    if not signature:
        raise RequestRefused(403, "The request has no X-Twilio-Signature.")
    try:
        given = signature.encode("ascii")
        base64.b64decode(given, validate=True)
    except ValueError:  # not ASCII, or not base64
        given = b""
    if not given or len(given) > _SIGNATURE_LENGTH_AT_MOST:
        raise RequestRefused(403, "X-Twilio-Signature is not a signature.")
    return given


def _algorithm(settings_header: str) -> str:
    """The hash that `key=…,algorithm=…` names: the first one, in any case, HMAC_SHA1 if there is none."""
    if len(settings_header) > _SETTINGS_LENGTH_AT_MOST or not settings_header.isascii():
        raise RequestRefused(403, "X-Twilio-Webhooks-Signature-Settings cannot be read.")
    for part in settings_header.split(","):
        name, _, value = part.partition("=")
        if name.strip() == "algorithm" and value.strip():
            algorithm = value.strip().upper()
            if algorithm not in _HASHES:
                raise RequestRefused(403, "The request is signed with an algorithm that is not known here.")
            return algorithm
    return HMAC_SHA1


def _urls(url_base: str, path_and_query: str) -> list[bytes]:
    """The address without and with the scheme's default port; only as it is if its port is another one."""
    origin = _ORIGIN.fullmatch(url_base.rstrip("/"))
    if origin is None:
        raise ValueError("PUBLIC_BASE_URL must be a scheme and a host")
    default = _DEFAULT_PORTS[origin["scheme"].lower()]
    bare, port = f"{origin['scheme']}://{origin['host']}", origin["port"] or default
    bases = [bare, f"{bare}:{port}"] if port == default else [f"{bare}:{port}"]
    return [_as_bytes(base + path_and_query) for base in bases]


def _as_bytes(text: bytes | str) -> bytes:
    """UTF-8; a lone surrogate, which only hostile input has, gets bytes of its own instead of raising."""
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
