"""The error tree, and the one place where a failure gets its class.

    AntwoordError
    ├── SettingsError        a setting is missing or wrong: nothing starts; lists all of them at once
    ├── UserError            a command, file or flag is wrong: one sentence for the person
    ├── RequestRefused       hostile or broken input over HTTP: a 4xx status and one sentence
    ├── DatabaseAway         our own store could not be reached in time
    ├── LeaseLost            another worker has the job now: whatever this one still does must not count
    └── JobError             what a job raises when it knows better than the library that failed
        ├── TransientError   surely not acted on, or harmless to repeat: try again later
        ├── PermanentError   will fail again in the same way: dead letter at once
        └── HeldError        may have been acted on and cannot be repeated: a person decides

`classify` turns any exception into a `Failure`: what its kind is (what the queue does), its class (what a person
filters by), and a shortened text without secrets (what a person reads).
"""

from __future__ import annotations

import datetime
import email.utils
import errno
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

ERROR_TEXT_LIMIT = 500
RETRY_AFTER_CAP_SECONDS = 15 * 60.0


class AntwoordError(Exception):
    """The root of everything that this project raises on purpose."""


class SettingsError(AntwoordError):
    """All that is wrong with the settings, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("Antwoord cannot start:\n" + "\n".join(f"  - {problem}" for problem in problems))


class UserError(AntwoordError):
    """A command, a file or a flag is wrong; the text says what, where, and what to do.

    `name` is a word by which a page finds the sentence in another language.
    """

    def __init__(self, sentence: str, *, name: str | None = None) -> None:
        self.name = name
        super().__init__(sentence)


class RequestRefused(AntwoordError):
    """A request that is answered with `status` (4xx) and one sentence, and is never tried again."""

    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        super().__init__(sentence)


class DatabaseAway(AntwoordError):
    """The database did not answer within the limits of the caller."""


class LeaseLost(AntwoordError):
    """The job's lease token no longer matches: it was rescued, or its run is over."""


class FailureKind(StrEnum):
    """What the queue does with a failed attempt."""

    TRANSIENT = "transient"  # retry after the policy's wait
    THROTTLED = "throttled"  # the other side said when to come back: a snooze, no attempt used
    PERMANENT = "permanent"  # dead letter at once
    AMBIGUOUS = "ambiguous"  # may have been acted on: what the job type says
    DATABASE = "database"  # our own store's fault: the attempt is given back
    CREDENTIAL = "credential"  # our own key was refused: the type rests, no job is buried


class JobError(AntwoordError):
    """A failure that a job names itself: `error_class` is a short word that people filter by.

    `wait` is for a job that knows itself when to try again: seconds, in place of the type's policy.
    """

    kind: FailureKind

    def __init__(
        self, error_class: str, text: str, *, http_status: int | None = None, wait: float | None = None
    ) -> None:
        self.error_class = error_class
        self.http_status = http_status
        self.wait = wait
        super().__init__(text)


class TransientError(JobError):
    """Try again by the type's policy."""

    kind = FailureKind.TRANSIENT


class PermanentError(JobError):
    """Trying again cannot help."""

    kind = FailureKind.PERMANENT


class HeldError(JobError):
    """The outside world may have been changed and nobody can tell: held for a person."""

    kind = FailureKind.AMBIGUOUS


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as the queue and the people see it. `retry_after` and `wait` are in seconds: when the other side
    wants to be asked again, and what the job has decided in place of its type's policy.

    `service` names whose failure it was when that matters: "model" failures in a row make a type rest.
    """

    kind: FailureKind
    error_class: str
    text: str
    http_status: int | None = None
    retry_after: float | None = None
    service: str | None = None
    wait: float | None = None


# 408, 425 and the 5xx of gateways mean "not now"; 409 is Twilio's and OpenAI's word for a conflict that passes.
_PASSING_STATUS = frozenset({408, 409, 425, 502, 503, 504})
_SECRETS = re.compile(
    r"(?i)((?:bearer|basic)\s+|(?:api[-_ ]?key|account_?key|password|secret|token)(?: provided)?[\"'=:\s]+"
    r"|[?&](?:sig|code|key|token)=|://[^/\s:@]+:)[^\s\"',;&@]+"
)
_SHORTEST_SECRET = 8  # characters; a shorter one would strike out words
_protected: frozenset[str] = frozenset()


def protect(secrets: Iterable[str]) -> None:
    """From now on these values are struck out of every error's text, wherever in it they stand."""
    global _protected
    _protected |= {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}


def classify(error: BaseException, *, idempotent: bool = True) -> Failure:
    """Give a failure its kind and class.

    `idempotent` says whether the failed call may simply be made again: a model call may, sending a message may not.
    An exception that nobody expected is transient: most are, and the attempts are limited.
    """
    failure = _classify(error, shorten(error), idempotent)
    is_model = any(_is_from(link, "openai") for link in _chain(error))
    return replace(failure, service="model") if is_model else failure


def _classify(error: BaseException, text: str, idempotent: bool) -> Failure:
    if isinstance(error, JobError):
        return Failure(error.kind, error.error_class, text, error.http_status, wait=error.wait)
    if isinstance(error, DatabaseAway) or _is_from(error, "psycopg", "psycopg_pool"):
        return _database(error, text)
    status = _http_status(error)
    if status is not None:
        return _by_status(error, status, text, idempotent)
    return _by_transport(error, text, idempotent)


def shorten(error: BaseException) -> str:
    """The error's own words, on one line, without secrets, at most 500 characters; the sentences of our own need no class."""
    words = " ".join(_words(error).split()) or type(error).__name__
    return presentable(words if isinstance(error, JobError) else f"{type(error).__name__}: {words}")


def presentable(words: str) -> str:
    """A text that comes from elsewhere: without secrets, at most 500 characters, and storable."""
    for secret in _protected:
        words = words.replace(secret, "***")
    clean = _SECRETS.sub(lambda found: found[1] + "***", words)
    clean = clean.replace("\0", "").encode("utf-8", "replace").decode()
    return clean if len(clean) <= ERROR_TEXT_LIMIT else clean[: ERROR_TEXT_LIMIT - 1] + "…"


def retry_after_seconds(value: str | None) -> float | None:
    """Seconds to wait by a `Retry-After` header: delta-seconds or an HTTP date (RFC 9110, 10.2.3).

    Dates in the past give 0; more than 15 minutes is capped; nonsense, such as a negative number, gives None.
    """
    if not value:
        return None
    text = value.strip()
    if re.fullmatch(r"\+?\d+(\.\d+)?", text):
        seconds = float(text)
    else:
        try:
            date = email.utils.parsedate_to_datetime(text)
            if date.tzinfo is None:  # "-0000": a time in UTC that says nothing of a place
                date = date.replace(tzinfo=datetime.UTC)
            seconds = date.timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), RETRY_AFTER_CAP_SECONDS)


def _words(error: BaseException) -> str:
    """What the error says; more than str() where a library hides the telling part, and the same on a terminal."""
    if _is_from(error, "twilio") and isinstance(status := getattr(error, "status", None), int):
        parts = [getattr(error, name, None) for name in ("msg", "title", "detail")]
        code = getattr(error, "code", None)
        named = f" (Twilio {code})" if code and code != status else ""
        return f"HTTP {status}{named}: " + " ".join(str(part) for part in parts if part)
    if _is_from(error, "openai") and (status := _http_status(error)) is not None:
        return _said_by_model(error, status)
    if _is_from(error, "httpx2") and (status := _http_status(error)) is not None:
        return f"HTTP {status}"  # its own words repeat the whole address
    if _is_from(error, "psycopg"):
        return _said_by_database(error)
    cause = error.__cause__
    if cause is not None and _is_from(error, "openai"):  # "Connection error." alone helps nobody
        return f"{error} ({type(cause).__name__}: {cause})"
    return str(error)


def _said_by_model(error: BaseException, status: int) -> str:
    """The service's own message; of a body that is not its own nothing, since it may repeat what was sent."""
    body = getattr(error, "body", None)
    said = body if isinstance(body, Mapping) else {}
    code = f" ({said['code']})" if said.get("code") else ""
    return f"HTTP {status}{code}: {said.get('message') or 'the answer says no reason'}"


def _said_by_database(error: BaseException) -> str:
    """The first line and the state; never the details, which repeat whole rows, nor a value that the line quotes."""
    diagnosis, state = getattr(error, "diag", None), getattr(error, "sqlstate", None)
    primary = getattr(diagnosis, "message_primary", None)
    if not primary:
        return str(error)
    if str(state).startswith("22"):
        primary = re.sub(r'"[^"]*("|$)', '"…"', primary, flags=re.DOTALL)
    return f"{primary} ({state})"


_STATES_OF_OURS = ("0A", "21", "22", "23", "2F", "42", "44", "54", "P0")
_NOT_ALLOWED = "42501"  # to sign in or to read: theirs, among those of 42


def _database(error: BaseException, text: str) -> Failure:
    """Lost, restarting, deadlocked or full is the database's fault; a constraint or a bad value is ours."""
    state = getattr(error, "sqlstate", None) or ""
    ours = state.startswith(_STATES_OF_OURS) and state != _NOT_ALLOWED
    if ours or type(error).__name__ in ("DataError", "ProgrammingError", "IntegrityError", "NotSupportedError"):
        return Failure(FailureKind.PERMANENT, "database_refused", text)
    return Failure(FailureKind.DATABASE, "database", text)


def _by_status(error: BaseException, status: int, text: str, idempotent: bool) -> Failure:
    retry_after = _retry_after(error)
    if status in (401, 403):
        return Failure(FailureKind.CREDENTIAL, "credential", text, status)
    if status == 429 or (status == 503 and retry_after is not None and idempotent):
        kind = FailureKind.THROTTLED if retry_after is not None else FailureKind.TRANSIENT
        return Failure(kind, "throttled", text, status, retry_after)
    if status in _PASSING_STATUS or status >= 500:
        return Failure(_maybe_acted_on(idempotent), "unavailable", text, status, retry_after)
    if 200 <= status < 300:  # accepted, but the answer could not be read
        return Failure(_maybe_acted_on(idempotent), "broken_answer", text, status)
    if _is_content_filter(error):
        return Failure(FailureKind.PERMANENT, "content_filter", text, status)
    return Failure(FailureKind.PERMANENT, "rejected", text, status)


_UNOPENED = frozenset(
    {"ConnectError", "ConnectTimeout", "PoolTimeout", "ConnectionRefusedError", "gaierror", "SSLCertVerificationError"}
)
_NO_WAY_THERE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL})
_SILENT = frozenset({"ReadTimeout", "WriteTimeout", "APITimeoutError", "TimeoutError"})
_UNREADABLE = frozenset({"ResponseTooLarge", "DecodingError", "JSONDecodeError"})
_BROKEN = frozenset(
    {"ReadError", "WriteError", "CloseError", "RemoteProtocolError", "TransportError", "APIConnectionError"}
    | {"ConnectionResetError", "BrokenPipeError"}
)


def _by_transport(error: BaseException, text: str, idempotent: bool) -> Failure:
    """Tell a connection that never opened from one that broke, or went silent, later."""
    chain = list(_chain(error))
    names = {kind.__name__ for link in chain for kind in type(link).__mro__}
    if names & {"ClientAuthenticationError", "CredentialUnavailableError"}:  # our own identity got no token
        return Failure(FailureKind.CREDENTIAL, "credential", text)
    no_way = any(isinstance(link, OSError) and link.errno in _NO_WAY_THERE for link in chain)
    if no_way or names & (_UNOPENED | {"ServiceRequestError"}):
        return Failure(FailureKind.TRANSIENT, "connect", text)
    if names & _UNREADABLE:
        return Failure(_maybe_acted_on(idempotent), "broken_answer", text)
    if names & _SILENT:
        return Failure(_maybe_acted_on(idempotent), "timeout", text)
    if names & _BROKEN:
        return Failure(_maybe_acted_on(idempotent), "dropped", text)
    return Failure(_maybe_acted_on(idempotent), "unexpected", text)


def _maybe_acted_on(idempotent: bool) -> FailureKind:
    return FailureKind.TRANSIENT if idempotent else FailureKind.AMBIGUOUS


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it, at most ten deep."""
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            return
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _is_from(error: BaseException, *packages: str) -> bool:
    """Whether the error's class comes from a package, without importing it."""
    return any(base.__module__.split(".")[0] in packages for base in type(error).__mro__)


def _http_status(error: BaseException) -> int | None:
    if not _is_from(error, "openai", "twilio", "httpx2"):
        return None
    response = getattr(error, "__dict__", {}).get("response")  # httpx2 raises on a look at one that is not there
    places = (
        getattr(error, "status_code", None),
        getattr(error, "status", None),
        getattr(response, "status_code", None),
    )
    return next((status for status in places if isinstance(status, int)), None)


def _retry_after(error: BaseException) -> float | None:
    """Azure says it in milliseconds too, which is the finer of the two."""
    milliseconds = _header(error, "retry-after-ms")
    if milliseconds is not None and re.fullmatch(r"\d{1,12}", milliseconds.strip()):
        return min(int(milliseconds) / 1000, RETRY_AFTER_CAP_SECONDS)
    return retry_after_seconds(_header(error, "retry-after"))


def _header(error: BaseException, name: str) -> str | None:
    headers: Any = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    return next((str(value) for key, value in dict(headers).items() if str(key).lower() == name), None)


def _is_content_filter(error: BaseException) -> bool:
    if "openai" not in sys.modules:
        return False
    return getattr(error, "code", None) == "content_filter" or "content_filter" in str(error)
