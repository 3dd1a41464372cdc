"""Fetch a file of people from another system: one GET, within limits of time and size, to an address that the guard admits.

What it sends is then a file like any other (people_file.py). Of the address only the host and the file's name are repeated: the
rest of it may hold a token.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from shared.clients.deadline import deadline
from shared.clients.guard import Guard, NotAllowed
from shared.errors import AntwoordError, UserError, classify
from shared.knowledge.people_file import SIZE_LIMIT

SECONDS = 60.0  # of the whole call, however slowly it comes

# The encodings that a file can be in, by the names that they have in HTTP.
_CHARSETS = {"utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252", "cp1252"}
_NO_TYPES = {
    "text/html": "a web page (one to sign in on?)",
    "application/xhtml+xml": "a web page (one to sign in on?)",
    "application/json": "JSON",
    "application/problem+json": "JSON",
    "application/xml": "XML",
    "text/xml": "XML",
}


class SourceAway(AntwoordError):
    """The other system could not be reached, or did not send the whole file: it may go well another time."""


def fetch(url: str, guard: Guard, *, bearer: str | None = None, seconds: float = SECONDS) -> tuple[str, bytes]:
    """The name and the bytes of the file at `url`.

    `bearer` is sent as `Authorization: Bearer …`. Raises UserError for what will not be otherwise next time, SourceAway for
    the rest; one sentence each.
    """
    url = url.strip()
    try:
        guard.check_url(url)
    except NotAllowed as refused:
        raise UserError(str(refused)) from None
    if bearer is not None and not re.fullmatch(r"[!-~]+", bearer):
        raise UserError("The token must be ASCII without spaces.")
    return _name(url), _get(url, guard, bearer, seconds)


def _get(url: str, guard: Guard, bearer: str | None, seconds: float) -> bytes:
    import httpx2

    from shared.clients.http import DeadlineTransport, ResponseTooLarge

    headers = {"Accept": "text/csv, text/plain;q=0.9, */*;q=0.1", "User-Agent": "Antwoord-Import/1"}
    if bearer is not None:
        headers["Authorization"] = f"Bearer {bearer}"
    host = urlsplit(url).netloc
    transport = DeadlineTransport(keep_alive=False, body_limit=SIZE_LIMIT, guard=guard)
    try:
        # The transport itself, and no client around it: nobody follows a redirect or unpacks beyond the limit.
        with deadline(seconds):
            response = transport.handle_request(httpx2.Request("GET", url, headers=headers))
            try:
                _check_status(host, response.status_code)
                _check_kind(host, response.headers)
                assert isinstance(response.stream, httpx2.SyncByteStream)
                return b"".join(response.stream)
            finally:
                response.close()
    except AntwoordError as known:
        if isinstance(known, NotAllowed):
            raise UserError(str(known)) from None
        raise
    except ResponseTooLarge:
        raise UserError(
            f"What {host} sends is larger than {SIZE_LIMIT // 1_000_000} MB. Cut it into several files.",
            name="file_too_large",
        ) from None
    except httpx2.InvalidURL:
        raise UserError("The URL cannot be read.") from None
    except (httpx2.HTTPError, OSError) as error:
        raise SourceAway(_broken(host, error, seconds)) from None
    finally:
        transport.close()


def _check_status(host: str, status: int) -> None:
    if status == 200:
        return
    if status in (401, 403):
        raise UserError(
            f"{host} refuses it (HTTP {status}): it asks for a token, or for another one; see --bearer-from."
        )
    if 300 <= status < 400:
        raise UserError(
            f"{host} points to another place (HTTP {status}), which is not followed: give the URL that it leads to."
        )
    if status in (408, 425, 429) or status >= 500:
        raise SourceAway(f"{host} cannot give the file now (HTTP {status}): try again later.")
    raise UserError(f"{host} has no file at this URL (HTTP {status}).")


def _check_kind(host: str, headers: object) -> None:
    """A file is judged by its bytes; here only what they do not tell."""
    import httpx2

    assert isinstance(headers, httpx2.Headers)
    kind, _, rest = headers.get("content-type", "").partition(";")
    if kind.strip().lower() in _NO_TYPES:
        raise UserError(f"What {host} sends is {_NO_TYPES[kind.strip().lower()]}, not CSV.")
    charset = re.search(r"(?:^|;)\s*charset\s*=\s*\"?([^\s;\"]*)", rest, re.IGNORECASE)
    if charset and charset[1] and charset[1].lower() not in _CHARSETS:
        raise UserError(f"What {host} sends is in {charset[1][:40]}; only UTF-8 and Windows-1252 can be read.")
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UserError(f"What {host} sends is packed as {encoding[:40]}, which cannot be read.")


def _broken(host: str, error: Exception, seconds: float) -> str:
    match classify(error).error_class:
        case "connect":
            return f"{host} cannot be reached: {error}."
        case "timeout":
            return f"{host} did not send the whole file within {seconds:g} s."
        case "broken_answer":
            return f"What {host} sends cannot be unpacked."
        case _:
            return f"{host} broke off in the middle of the file."


def _name(url: str) -> str:
    """The file's own name, or else the host's."""
    parts = urlsplit(url)
    return unquote(parts.path).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or parts.netloc
