"""Twilio's webhooks over HTTP, through the host: what is let in, what is refused, and what happens without a database."""

from __future__ import annotations

import http.client
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote_from_bytes, urlencode
from uuid import uuid4

import psycopg
import pytest

from local.host_process import HostProcess
from local.postgres import EmbeddedPostgres
from shared.db.migrate import migrate
from shared.signature import HMAC_SHA256, parse_form, sign_twilio
from tests.e2e.running import Rows, free_port, until
from tests.fakes.world import ENVIRONMENT

BASE = "https://antwoord.example.org"
INBOUND, STATUS = "/api/twilio/inbound", "/api/twilio/status"
FORM = "application/x-www-form-urlencoded"


class Site:
    """A host that only stores: no timer, no wake, so that jobs stay as they were made."""

    def __init__(self, url: str) -> None:
        self.port = free_port()
        self.database = Rows(url)
        environment = ENVIRONMENT | {
            "DATABASE_URL": url,
            "TWILIO_AUTH_TOKEN_SECONDARY": "token-two",
            "TWILIO_WEBHOOK_SHARED_KEY": "shared-key",
            "PUBLIC_BASE_URL": BASE,
            "PATH": "/usr/bin:/bin",
        }
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the module
        self.host = HostProcess(environment, port=self.port, arguments=["--no-timer", "--no-wake"], log=self.log)

    def post(
        self,
        body: bytes | dict[str, str],
        *,
        path: str = INBOUND,
        token: str = "token-one",
        signature: str | None = "right",
        content_type: str = FORM,
        settings_header: str | None = None,
        signed_base: str = BASE,
    ) -> tuple[int, str, str]:
        """POST a form; `signature` "right" signs it as Twilio does. Returns status, content type and body."""
        data = body if isinstance(body, bytes) else urlencode(body).encode()
        headers = {"Content-Type": content_type}
        if signature == "right":
            algorithm = HMAC_SHA256 if settings_header else "HMAC_SHA1"
            signature = sign_twilio(signed_base + path, parse_form(data), token, algorithm)
        if signature is not None:
            headers["X-Twilio-Signature"] = signature
        if settings_header is not None:
            headers["X-Twilio-Webhooks-Signature-Settings"] = settings_header
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("POST", path, data, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, response.getheader("Content-Type") or "", text

    def messages(self) -> int:
        return int(self.database.value("SELECT count(*) FROM messages"))


def form(sid: str | None = None, **extra: str) -> dict[str, str]:
    return {
        "MessageSid": sid or f"SM{uuid4().hex}",
        "From": "whatsapp:+31600000001",
        "To": "whatsapp:+31201234567",
        "Body": "hoi",
        "NumMedia": "0",
    } | extra


@pytest.fixture(scope="module")
def site(database_url: str) -> Iterator[Site]:
    found = Site(database_url)
    with found.host:
        yield found
    found.database.close()


def test_a_signed_message_is_stored_and_answered_with_empty_twiml(site: Site) -> None:
    sid = f"SM{uuid4().hex}"
    status, content_type, text = site.post(form(sid, Body="Eén vraag + één plus: 100% & <b>"))
    assert (status, content_type) == (200, "text/xml; charset=utf-8")
    assert text == '<?xml version="1.0" encoding="UTF-8"?><Response></Response>'
    body, jobs = site.database.rows(
        "SELECT body, (SELECT count(*) FROM ai_jobs WHERE payload ->> 'message_id' = m.id::text)"
        " FROM messages m WHERE provider_sid = %(sid)s",
        sid=sid,
    )[0]
    assert (body, jobs) == ("Eén vraag + één plus: 100% & <b>", 1)


def test_media_only_empty_values_and_fields_of_tomorrow_verify(site: Site) -> None:
    fields = form(Body="", NumMedia="1", MediaUrl0="https://example.org/x", MediaContentType0="", Futurefield="é+")
    assert site.post(fields)[0] == 200


def test_duplicated_fields_are_signed_as_twilio_s_library_does(site: Site) -> None:
    data = urlencode([*form().items(), ("Tag", "b"), ("Tag", "a"), ("Tag", "b")]).encode()
    assert site.post(data)[0] == 200


def test_the_query_is_part_of_what_is_signed_as_it_was_sent(site: Site) -> None:
    assert site.post(form(), path=f"{INBOUND}?a=%C3%BC&b=1+2&a=%2F")[0] == 200


@pytest.mark.parametrize(("token", "status"), [("token-one", 200), ("token-two", 200), ("token-three", 403)])
def test_either_token_is_good(site: Site, token: str, status: int) -> None:
    assert site.post(form(), token=token)[0] == status


def test_the_default_port_may_be_in_the_signed_url(site: Site) -> None:
    assert site.post(form(), signed_base=BASE + ":443")[0] == 200
    assert site.post(form(), signed_base=BASE + ":8443")[0] == 403


def test_twilio_s_newer_form_is_verified_with_the_shared_key(site: Site) -> None:
    header = "key=webhooks_sharedkey_x,algorithm=HMAC_SHA256"
    assert site.post(form(), token="shared-key", settings_header=header)[0] == 200
    assert site.post(form(), token="token-one", settings_header=header)[0] == 403


@pytest.mark.parametrize("signature", [None, "", "x", "é" * 28, "A" * 28, "A" * 100_000, "AAAA=AAAA", " " * 28])
def test_a_missing_or_wrong_signature_is_forbidden(site: Site, signature: str | None) -> None:
    before = site.messages()
    if signature is not None and len(signature) > 60_000:
        signature = signature[:8000]  # what an HTTP server lets through
    encoded = signature.encode("utf-8").decode("latin-1") if signature else signature
    assert site.post(form(), signature=encoded)[0] == 403
    assert site.messages() == before


def test_a_changed_field_is_forbidden(site: Site) -> None:
    fields = form()
    signature = sign_twilio(BASE + INBOUND, parse_form(urlencode(fields).encode()), "token-one")
    assert site.post(fields | {"Body": "iets anders"}, signature=signature)[0] == 403


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "", "multipart/form-data; boundary=x"])
def test_another_content_type_is_refused(site: Site, content_type: str) -> None:
    assert site.post(form(), content_type=content_type)[0] == 415


def test_a_body_over_64_kib_is_refused(site: Site) -> None:
    assert site.post(form(Body="x" * (64 * 1024)))[0] == 413
    assert site.post(form(Body="x" * 60_000))[0] == 200


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"\xc3", b"\xe9t\xe9"])
def test_broken_encoding_is_refused(site: Site, raw: bytes) -> None:
    data = urlencode(form()).encode() + b"&Extra=" + quote_from_bytes(raw).encode()
    assert site.post(data)[0] == 400


def test_nul_and_lone_surrogates_are_stored_safely(site: Site) -> None:
    sid = f"SM{uuid4().hex}"
    data = urlencode({k: v for k, v in form(sid).items() if k != "Body"}).encode() + b"&Body=a%00b%ED%A0%80c"
    assert site.post(data)[0] == 200
    assert site.database.value("SELECT body FROM messages WHERE provider_sid = %(sid)s", sid=sid) == "a\ufffdb\ufffdc"


@pytest.mark.parametrize("fields", [{"Body": "x"}, {"MessageSid": "SM1", "From": "+31600000001"}, {"a": "b"}])
def test_a_signed_form_that_is_no_message_is_refused(site: Site, fields: dict[str, str]) -> None:
    status, _, text = site.post(fields)
    assert status == 400
    assert text.endswith(".\n")


def test_too_many_fields_are_refused(site: Site) -> None:
    assert site.post(b"&".join(b"f%d=1" % n for n in range(1500)), signature="x")[0] in (400, 403)


def test_a_repeated_sid_is_answered_alike_also_twenty_at_once(site: Site) -> None:
    fields, before = form(), site.messages()
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: site.post(fields), range(20)))
    assert {answer[0] for answer in answers} == {200}
    assert len({answer[2] for answer in answers}) == 1
    assert site.messages() == before + 1


def test_other_methods_are_not_found(site: Site) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    connection.request("GET", INBOUND)
    assert connection.getresponse().status == 404
    connection.close()


def test_health_tells_version_and_backlog(site: Site) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    connection.request("GET", "/api/health")
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    assert response.status == 200
    assert '"status": "ok"' in text
    assert '"migration": ' in text
    assert '"oldest_due_seconds": ' in text


def outbound(site: Site, status: str, sid: str | None = None) -> str:
    """A message of ours in a state; its id."""
    conversation = site.database.value(
        "INSERT INTO conversations (address) VALUES (%(address)s) RETURNING id", address=f"+{uuid4().int % 10**11}"
    )
    return str(
        site.database.value(
            "INSERT INTO messages (conversation_id, from_self, source, body, status, provider_sid, reply_id, part, parts,"
            " held_reason, send_started_at) VALUES (%(conversation)s, true, 'ai', 'x', %(status)s, %(sid)s,"
            " gen_random_uuid(), 1, 1, 'x', now()) RETURNING id",
            conversation=conversation,
            status=status,
            sid=sid,
        )
    )


def state(site: Site, message: str) -> tuple[str, str | None, str | None]:
    found = site.database.rows("SELECT status, provider_sid, error_code FROM messages WHERE id = %(id)s", id=message)[0]
    return found[0], found[1], found[2]


@pytest.mark.parametrize(
    ("before", "callbacks", "after"),
    [
        ("sent", ["queued", "sent", "delivered", "read"], "read"),
        ("sent", ["read", "delivered", "sent"], "read"),
        ("sent", ["delivered", "failed"], "delivered"),
        ("sent", ["undelivered", "sent"], "failed"),
        ("sent", ["failed", "delivered"], "failed"),
        ("sending", ["queued"], "sent"),
        ("sending", ["delivered"], "delivered"),
        ("held", ["accepted"], "sent"),
        ("held", ["read"], "read"),
        ("draft", ["sent"], "draft"),
        ("sent", ["nonsense", ""], "sent"),
    ],
)
def test_statuses_only_move_forward(site: Site, before: str, callbacks: list[str], after: str) -> None:
    message, sid = outbound(site, before), f"SM{uuid4().hex}"
    for word in callbacks:
        fields = {"MessageSid": sid, "MessageStatus": word}
        assert site.post(fields, path=f"{STATUS}?message={message}&try=1")[0] == 204
        assert site.post(fields, path=f"{STATUS}?message={message}&try=1")[0] == 204
    assert state(site, message)[0] == after
    assert state(site, message)[1] == (None if before == "draft" else sid)


def test_a_callback_finds_its_message_by_sid_too_and_keeps_the_first_error(site: Site) -> None:
    sid = f"SM{uuid4().hex}"
    message = outbound(site, "sent", sid)
    for code in ("63016", "30008"):
        site.post({"MessageSid": sid, "MessageStatus": "failed", "ErrorCode": code}, path=STATUS)
    assert state(site, message) == ("failed", sid, "63016")
    reason = site.database.value(
        "SELECT c.needs_person_reason FROM conversations c JOIN messages m ON m.conversation_id = c.id WHERE m.id = %(id)s",
        id=message,
    )
    assert reason == "undelivered"


@pytest.mark.parametrize(
    "query", ["", "?message=nonsense", "?message=6fd5c07f-cfec-462d-af3a-90751c1e4aed&try=1", "?message=" + "0" * 3000]
)
def test_a_callback_for_nobody_is_answered_and_changes_nothing(site: Site, query: str) -> None:
    assert site.post({"MessageSid": f"SM{uuid4().hex}", "MessageStatus": "sent"}, path=STATUS + query)[0] == 204


def test_an_unsigned_callback_is_forbidden(site: Site) -> None:
    assert site.post({"MessageSid": "SM1", "MessageStatus": "sent"}, path=STATUS, signature=None)[0] == 403


class Own:
    """A cluster of this test's own, to be stopped, frozen and started."""

    def __init__(self) -> None:
        self.cluster = EmbeddedPostgres(Path(tempfile.mkdtemp(prefix="antwoord-away-")) / "pg", disposable=True)
        with psycopg.connect(self.cluster.create("antwoord"), autocommit=True) as connection:
            migrate(connection)


@pytest.fixture
def own() -> Iterator[Own]:
    found = Own()
    yield found
    found.cluster.resume()
    found.cluster.close()


def is_refused_in_time(site: Site, path: str) -> None:
    """POST a good form. The five seconds are a promise to Twilio, so they are checked here; thrice, if need be, as the machine
    itself may stand still for some of them."""
    for _ in range(3):
        began = time.monotonic()
        status, _, text = site.post(
            form() if path == INBOUND else {"MessageSid": "SM1", "MessageStatus": "sent"}, path=path
        )
        seconds = time.monotonic() - began
        assert status == 503
        assert "database is away" in text
        if seconds < 5:
            return
    raise AssertionError(f"{path} took {seconds:.1f} s")


def test_without_a_database_it_says_503_within_five_seconds_and_works_again_after(own: Own) -> None:
    site = Site(own.cluster.url("antwoord"))
    with site.host:
        assert site.post(form())[0] == 200
        own.cluster.restart()  # the pool's connections are dead now: nobody notices
        assert site.post(form())[0] == 200
        own.cluster.freeze()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda path: is_refused_in_time(site, path), (INBOUND, STATUS)))
        own.cluster.resume()
        until(lambda: site.post(form())[0] == 200)
        own.cluster.stop()
        is_refused_in_time(site, INBOUND)
        own.cluster.start()
        until(lambda: site.post(form())[0] == 200)
        site.database.close()
