"""classify() and its words, on exceptions of the real libraries where a class or an attribute of theirs decides."""

from __future__ import annotations

import email.utils
import errno
import socket
import time

import httpx2
import openai
import psycopg
import psycopg_pool
import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.identity import CredentialUnavailableError
from hypothesis import given
from hypothesis import strategies as st
from twilio.base.exceptions import TwilioRestException  # type: ignore[import-untyped]

from shared.clients.deadline import TooLate
from shared.errors import (
    ERROR_TEXT_LIMIT,
    DatabaseAway,
    FailureKind,
    HeldError,
    LeaseLost,
    PermanentError,
    RequestRefused,
    SettingsError,
    TransientError,
    classify,
    protect,
    retry_after_seconds,
    shorten,
)

REQUEST = httpx2.Request("POST", "https://model.example/openai/v1/chat/completions")


def model_error(
    status: int, *, code: str | None = None, headers: dict[str, str] | None = None
) -> openai.APIStatusError:
    response = httpx2.Response(status, headers=headers, request=REQUEST)
    body = {"code": code, "message": "said"}
    return openai.APIStatusError(f"Error code: {status} - said", response=response, body=body)


def twilio_error(status: int, headers: dict[str, str] | None = None) -> Exception:
    error: Exception = TwilioRestException(status, "/Messages.json", "Unable to create record", 20001, "POST")
    error.headers = headers or {}  # type: ignore[attr-defined]
    return error


def caused(error: Exception, by: Exception) -> Exception:
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "kind", "error_class"),
    [
        (TransientError("empty_answer", "no text"), FailureKind.TRANSIENT, "empty_answer"),
        (PermanentError("content_filter", "stopped"), FailureKind.PERMANENT, "content_filter"),
        (HeldError("held", "perhaps"), FailureKind.AMBIGUOUS, "held"),
        (TooLate("frozen"), FailureKind.TRANSIENT, "too_late"),
    ],
)
def test_what_a_job_says_itself_stands(error: Exception, kind: FailureKind, error_class: str) -> None:
    for idempotent in (True, False):
        failure = classify(error, idempotent=idempotent)
        assert (failure.kind, failure.error_class) == (kind, error_class)


@pytest.mark.parametrize(
    ("status", "repeatable", "once"),
    [
        (400, FailureKind.PERMANENT, FailureKind.PERMANENT),
        (401, FailureKind.CREDENTIAL, FailureKind.CREDENTIAL),
        (403, FailureKind.CREDENTIAL, FailureKind.CREDENTIAL),
        (404, FailureKind.PERMANENT, FailureKind.PERMANENT),
        (408, FailureKind.TRANSIENT, FailureKind.AMBIGUOUS),
        (409, FailureKind.TRANSIENT, FailureKind.AMBIGUOUS),
        (413, FailureKind.PERMANENT, FailureKind.PERMANENT),
        (422, FailureKind.PERMANENT, FailureKind.PERMANENT),
        (425, FailureKind.TRANSIENT, FailureKind.AMBIGUOUS),
        (429, FailureKind.TRANSIENT, FailureKind.TRANSIENT),
        (500, FailureKind.TRANSIENT, FailureKind.AMBIGUOUS),
        (502, FailureKind.TRANSIENT, FailureKind.AMBIGUOUS),
        (503, FailureKind.TRANSIENT, FailureKind.AMBIGUOUS),
        (504, FailureKind.TRANSIENT, FailureKind.AMBIGUOUS),
        (599, FailureKind.TRANSIENT, FailureKind.AMBIGUOUS),
        (307, FailureKind.PERMANENT, FailureKind.PERMANENT),
        (200, FailureKind.TRANSIENT, FailureKind.AMBIGUOUS),
    ],
)
def test_statuses(status: int, repeatable: FailureKind, once: FailureKind) -> None:
    for error in (model_error(status), twilio_error(status)):
        assert classify(error).kind is repeatable
        assert classify(error, idempotent=False).kind is once
        assert classify(error).http_status == status


def test_who_says_when_to_come_back_is_believed_within_the_cap() -> None:
    assert classify(model_error(429, headers={"Retry-After": "20"})).retry_after == 20
    assert classify(model_error(429, headers={"retry-after": "20", "Retry-After-Ms": "1250"})).retry_after == 1.25
    assert classify(model_error(429, headers={"retry-after": "20", "retry-after-ms": "soon"})).retry_after == 20
    assert classify(model_error(429, headers={"retry-after-ms": "999999999"})).retry_after == 900
    assert classify(model_error(503, headers={"Retry-After": "20"})).kind is FailureKind.THROTTLED
    throttled = classify(twilio_error(429, {"Retry-After": "20"}), idempotent=False)
    assert (throttled.kind, throttled.retry_after) == (FailureKind.THROTTLED, 20)
    # a 503 that came after the message may have been taken is no promise that it was not
    assert classify(twilio_error(503, {"Retry-After": "20"}), idempotent=False).kind is FailureKind.AMBIGUOUS


def test_content_filter() -> None:
    assert classify(model_error(400, code="content_filter")).error_class == "content_filter"
    assert classify(model_error(400, code="context_length_exceeded")).error_class == "rejected"


@pytest.mark.parametrize(
    ("error", "repeatable", "once", "error_class"),
    [
        (httpx2.ConnectError("x"), FailureKind.TRANSIENT, FailureKind.TRANSIENT, "connect"),
        (httpx2.ConnectTimeout("x"), FailureKind.TRANSIENT, FailureKind.TRANSIENT, "connect"),
        (httpx2.PoolTimeout("x"), FailureKind.TRANSIENT, FailureKind.TRANSIENT, "connect"),
        (ConnectionRefusedError("x"), FailureKind.TRANSIENT, FailureKind.TRANSIENT, "connect"),
        (socket.gaierror("x"), FailureKind.TRANSIENT, FailureKind.TRANSIENT, "connect"),
        (OSError(errno.ENETUNREACH, "x"), FailureKind.TRANSIENT, FailureKind.TRANSIENT, "connect"),
        (OSError(errno.EPIPE, "x"), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "dropped"),
        (ServiceRequestError("x"), FailureKind.TRANSIENT, FailureKind.TRANSIENT, "connect"),
        (httpx2.ReadTimeout("x"), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "timeout"),
        (httpx2.WriteTimeout("x"), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "timeout"),
        (TimeoutError("x"), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "timeout"),
        (httpx2.ReadError("x"), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "dropped"),
        (httpx2.WriteError("x"), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "dropped"),
        (httpx2.RemoteProtocolError("x"), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "dropped"),
        (ConnectionResetError("x"), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "dropped"),
        (httpx2.DecodingError("x"), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "broken_answer"),
        (openai.APITimeoutError(REQUEST), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "timeout"),
        (openai.APIConnectionError(request=REQUEST), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "dropped"),
        (ClientAuthenticationError("x"), FailureKind.CREDENTIAL, FailureKind.CREDENTIAL, "credential"),
        (CredentialUnavailableError("x"), FailureKind.CREDENTIAL, FailureKind.CREDENTIAL, "credential"),
        (RuntimeError("x"), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "unexpected"),
        (LeaseLost("x"), FailureKind.TRANSIENT, FailureKind.AMBIGUOUS, "unexpected"),
    ],
)
def test_transport(error: Exception, repeatable: FailureKind, once: FailureKind, error_class: str) -> None:
    for seen in (error, caused(RuntimeError("around it"), error)):
        assert (classify(seen).kind, classify(seen).error_class) == (repeatable, error_class)
        assert (classify(seen, idempotent=False).kind) is once


def test_what_a_library_hides_in_the_cause_counts() -> None:
    refused = caused(openai.APIConnectionError(request=REQUEST), httpx2.ConnectError("[Errno 111] Connection refused"))
    failure = classify(refused, idempotent=False)
    assert (failure.kind, failure.error_class) == (FailureKind.TRANSIENT, "connect")
    assert failure.text == "APIConnectionError: Connection error. (ConnectError: [Errno 111] Connection refused)"
    slow = caused(openai.APITimeoutError(REQUEST), httpx2.ConnectTimeout("timed out"))
    assert classify(slow, idempotent=False).error_class == "connect"


def test_an_earlier_failure_that_was_dealt_with_does_not_count() -> None:
    error: Exception
    try:
        try:
            raise httpx2.ConnectError("the first try")  # noqa: TRY301
        except httpx2.ConnectError:
            raise httpx2.ReadTimeout("the second") from None
    except httpx2.ReadTimeout as caught:
        error = caught
    assert classify(error, idempotent=False).kind is FailureKind.AMBIGUOUS


@pytest.mark.parametrize(
    ("error", "service"),
    [
        (model_error(500), "model"),
        (openai.APITimeoutError(REQUEST), "model"),
        (caused(TransientError("x", "y"), openai.APITimeoutError(REQUEST)), "model"),
        (twilio_error(500), None),
        (httpx2.ReadTimeout("x"), None),
    ],
)
def test_whose_failure_it_was(error: Exception, service: str | None) -> None:
    assert classify(error).service == service


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("server closed the connection"),
        psycopg.errors.AdminShutdown("restarting"),
        psycopg.errors.DeadlockDetected("deadlock"),
        psycopg.errors.SerializationFailure("again"),
        psycopg.errors.QueryCanceled("timeout"),
        psycopg.errors.TooManyConnections("full"),
        psycopg.errors.InsufficientPrivilege("grants are missing"),
        psycopg_pool.PoolTimeout("pool"),
        DatabaseAway("away"),
    ],
)
def test_our_database_is_at_fault(error: Exception) -> None:
    assert classify(error).kind is FailureKind.DATABASE
    assert classify(error, idempotent=False).kind is FailureKind.DATABASE


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.UniqueViolation("twice"),
        psycopg.errors.CheckViolation("no"),
        psycopg.errors.UndefinedColumn("no such column"),
        psycopg.errors.UntranslatableCharacter("NUL"),
        psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"),
        psycopg.ProgrammingError("the query has 2 placeholders but 1 parameters were passed"),
    ],
)
def test_our_statement_is_at_fault(error: Exception) -> None:
    assert (classify(error).kind, classify(error).error_class) == (FailureKind.PERMANENT, "database_refused")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0),
        ("7", 7),
        (" 7.25 ", 7.25),
        ("+7", 7),
        ("-1", None),
        ("900", 900),
        ("901", 900),
        ("9" * 400, 900),
        ("1e3", None),
        ("inf", None),
        ("nan", None),
        ("in a minute", None),
        ("\0", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 900),
        ("Fri, 99 Dec 2999 23:59:59 GMT", None),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(value) == seconds


def test_retry_after_as_a_date() -> None:
    for zone in ("GMT", "-0000", "+0000"):
        date = email.utils.formatdate(time.time() + 600).replace("-0000", zone)
        assert 500 <= (retry_after_seconds(date) or 0) <= 600


@given(st.text(max_size=60))
def test_retry_after_never_raises(value: str) -> None:
    seconds = retry_after_seconds(value)
    assert seconds is None or 0 <= seconds <= 900


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer sEcReT-1.x",
        "Authorization: Basic sEcReT=",
        "api-key: sEcReT",
        "api_key=sEcReT&x=1",
        "Incorrect API key provided: sEcReT.",
        "AccountName=a;AccountKey=sEcReT==;EndpointSuffix=x",
        "password=sEcReT host=db",
        '{"token": "sEcReT"}',
        "postgresql://user:sEcReT@db.example/antwoord",
        "https://a.queue.core.windows.net/wake?sv=1&sig=sEcReT%3D&se=2",
    ],
)
def test_secrets_are_struck_out(text: str) -> None:
    words = shorten(RuntimeError(text))
    assert "sEcReT" not in words
    assert "***" in words


def test_a_secret_that_is_known_is_struck_out_wherever_it_stands() -> None:
    protect(["kNoWn-SeCrEt-7", "short", ""])
    assert shorten(RuntimeError("<p>kNoWn-SeCrEt-7</p> short")) == "RuntimeError: <p>***</p> short"


def test_words_are_short_and_on_one_line() -> None:
    assert shorten(RuntimeError("a\n\n  b\tc\0")) == "RuntimeError: a b c"
    assert shorten(RuntimeError()) == "RuntimeError: RuntimeError"
    assert len(shorten(RuntimeError("x" * 10_000))) == ERROR_TEXT_LIMIT
    assert shorten(RuntimeError("lone \ud800")).encode()


def test_our_own_sentences_need_no_class_before_them() -> None:
    assert (
        shorten(HeldError("held", "it may have been sent:\n nobody can tell"))
        == "it may have been sent: nobody can tell"
    )
    assert shorten(TransientError("broken_answer", "")) == "TransientError"


def test_twilios_code_is_in_the_words() -> None:
    assert shorten(twilio_error(400)) == "TwilioRestException: HTTP 400 (Twilio 20001): Unable to create record"


def test_refusals_and_settings_keep_what_they_were_given() -> None:
    refusal = RequestRefused(413, "Too large.")
    assert (refusal.status, str(refusal)) == (413, "Too large.")
    wrong = SettingsError(["A is not set.", "B is wrong."])
    assert "A is not set." in str(wrong)
    assert wrong.problems == ["A is not set.", "B is wrong."]
