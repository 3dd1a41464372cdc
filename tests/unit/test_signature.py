"""Twilio's signatures, with Twilio's own library as the oracle."""

from __future__ import annotations

import hmac
import re
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twilio.request_validator import RequestValidator, get_signature_algorithm  # type: ignore[import-untyped]
from werkzeug.datastructures import MultiDict

from shared.errors import RequestRefused
from shared.signature import FIELDS_AT_MOST, HMAC_SHA1, HMAC_SHA256, parse_form, sign_twilio, verify_twilio

TOKEN = "12345"
BASE = "https://mycompany.com"
PATH = "/myapp.php?foo=1&bar=2"
FORM = [
    (b"CallSid", b"CA1234567890ABCDE"),
    (b"Caller", b"+12349013030"),
    (b"Digits", b"1234"),
    (b"From", b"+12349013030"),
    (b"To", b"+18005551212"),
]
PUBLISHED = "0/KCTR6DLpKmkAf8muzZqo1nDgQ="  # the example of Twilio's documentation
SHARED = "a-shared-key"
SETTINGS = "key=webhooks_sharedkey_01abc,algorithm=HMAC_SHA256"


def verify(
    signature: str | None = PUBLISHED,
    *,
    url_base: str = BASE,
    path: str = PATH,
    form: list[tuple[bytes, bytes]] = FORM,
    settings: str | None = None,
    tokens: tuple[str, ...] = (TOKEN,),
    shared_key: str | None = SHARED,
) -> None:
    verify_twilio(
        url_base=url_base,
        path_and_query=path,
        form=form,
        signature=signature,
        settings_header=settings,
        auth_tokens=tokens,
        shared_key=shared_key,
    )


def refused(signature: str | None, **changed: object) -> str:
    with pytest.raises(RequestRefused) as caught:
        verify(signature, **changed)  # type: ignore[arg-type]
    assert caught.value.status == 403
    return str(caught.value)


class Fields(MultiDict[str, str]):
    """A form as Twilio's library is given it: it asks for `getall` or `getlist`."""


def oracle(secret: str, url: str, body: bytes, algorithm: str = HMAC_SHA1) -> str:
    fields = Fields(parse_qsl(body.decode(), keep_blank_values=True))
    return str(RequestValidator(secret).compute_signature(url, fields, algorithm))


def test_published_example() -> None:
    assert sign_twilio(BASE + PATH, FORM, TOKEN, HMAC_SHA1) == PUBLISHED
    verify(PUBLISHED)
    older = [(name, value.replace(b"+12349013030", b"+14158675309")) for name, value in FORM]  # in Twilio's own tests
    verify("RSOYDt4T1cUTdK1PDd93/VVr8B8=", form=older)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
forms = st.lists(st.tuples(st.sampled_from(["Body", "From", "MediaUrl0", "é", ""]) | texts, texts), max_size=8)


@given(forms, st.sampled_from([HMAC_SHA1, HMAC_SHA256]), texts)
def test_signs_what_the_oracle_signs(fields: list[tuple[str, str]], algorithm: str, secret: str) -> None:
    body = urlencode(fields).encode()
    url = f"{BASE}{PATH}&é=%C3%A9"
    assert sign_twilio(url, parse_form(body), secret, algorithm) == oracle(secret, url, body, algorithm)
    assert sign_twilio(url.encode(), parse_form(body), secret, algorithm) == oracle(secret, url, body, algorithm)


@given(st.text(st.sampled_from("ab=&+%é01Cf;"), max_size=40))
def test_parses_as_the_standard_library_does(text: str) -> None:
    body = text.encode()
    kept = [(name.encode(), value.encode()) for name, value in parse_qsl(text, keep_blank_values=True)]
    parsed = parse_form(body)
    if all(name.isascii() and value.isascii() for name, value in parsed):
        assert parsed == kept


@given(st.binary(max_size=60))
def test_any_bytes_parse_and_sign(body: bytes) -> None:
    sign_twilio(BASE, parse_form(body), TOKEN, HMAC_SHA1)


def test_form_keeps_empty_and_repeated_fields_and_bytes_that_are_no_text() -> None:
    body = b"Body=&a=2&a=1&a=1&plus=1+%2B+1&bad=%ff%ed%a0%80&%41=%zz&flag&&=x"
    assert parse_form(body) == [
        (b"Body", b""),
        (b"a", b"2"),
        (b"a", b"1"),
        (b"a", b"1"),
        (b"plus", b"1 + 1"),
        (b"bad", b"\xff\xed\xa0\x80"),
        (b"A", b"%zz"),
        (b"flag", b""),
        (b"", b"x"),
    ]
    assert parse_form(b"") == []


def test_repeated_values_are_signed_once_and_in_order() -> None:
    form = parse_form(b"a=2&a=1&a=1&Body=")
    assert sign_twilio("https://x/", form, TOKEN) == sign_twilio("https://x/Bodya1a2", [], TOKEN)


def test_too_many_fields() -> None:
    assert len(parse_form(b"&".join([b"a=1"] * FIELDS_AT_MOST))) == FIELDS_AT_MOST
    with pytest.raises(RequestRefused) as caught:
        parse_form(b"&".join([b"a=1"] * (FIELDS_AT_MOST + 1)))
    assert caught.value.status == 400


def test_either_token() -> None:
    verify(PUBLISHED, tokens=("new", TOKEN))
    verify(PUBLISHED, tokens=(TOKEN, "old"))
    refused(PUBLISHED, tokens=("new", "old"))


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        PUBLISHED[:-1],
        PUBLISHED[:-2] + "g=",
        PUBLISHED.lower(),
        "€" * 28,
        "0/KCTR6DLpKmkAf8muzZqo1nDgQ\udce9",
        "A" * 4096,
        PUBLISHED + ", " + PUBLISHED,
        " " + PUBLISHED,
        "not base64!",
        "\0" * 28,
    ],
)
def test_what_is_no_signature(signature: str | None) -> None:
    malformed = bool(signature) and not re.fullmatch(r"[A-Za-z0-9+/]{27}=", signature or "")
    assert ("is not a signature" in refused(signature)) is malformed


def test_what_was_changed_on_the_way() -> None:
    refused(PUBLISHED, path=PATH + "&baz=3")
    refused(PUBLISHED, path=PATH.replace("foo=1&bar=2", "bar=2&foo=1"))
    refused(PUBLISHED, url_base="http://mycompany.com")
    refused(PUBLISHED, form=FORM[:-1])
    refused(PUBLISHED, form=[*FORM, (b"New", b"")])
    refused(PUBLISHED, path=PATH + "\ud800")


def test_nobody_signs_with_an_empty_secret() -> None:
    empty = sign_twilio(BASE + PATH, FORM, "", HMAC_SHA1)
    refused(empty, tokens=("",))
    refused(empty, tokens=())
    refused(empty, tokens=("", TOKEN))
    verify(PUBLISHED, tokens=("", TOKEN))
    for key in ("", None):
        refused(sign_twilio(BASE + PATH, FORM, "", HMAC_SHA256), settings=SETTINGS, shared_key=key)


@pytest.mark.parametrize(
    ("base", "signed"),
    [
        ("https://a.example", ["https://a.example", "https://a.example:443"]),
        ("https://a.example:443", ["https://a.example", "https://a.example:443"]),
        ("https://a.example:8443", ["https://a.example:8443"]),
        ("https://a.example:80", ["https://a.example:80"]),
        ("http://a.example", ["http://a.example", "http://a.example:80"]),
        ("http://a.example:80/", ["http://a.example", "http://a.example:80"]),
        ("http://127.0.0.1:7071", ["http://127.0.0.1:7071"]),
        ("https://[2001:db8::1]", ["https://[2001:db8::1]", "https://[2001:db8::1]:443"]),
        ("https://[2001:db8::1]:443", ["https://[2001:db8::1]", "https://[2001:db8::1]:443"]),
        ("https://[2001:db8::443]:8443", ["https://[2001:db8::443]:8443"]),
        ("https://u:p@a.example", ["https://u:p@a.example", "https://u:p@a.example:443"]),
    ],
)
def test_default_ports(base: str, signed: list[str]) -> None:
    candidates = {
        "https://a.example", "https://a.example:443", "https://a.example:8443", "https://a.example:80",
        "http://a.example", "http://a.example:80", "http://127.0.0.1:7071", "http://127.0.0.1",
        "https://[2001:db8::1]", "https://[2001:db8::1]:443", "https://[2001:db8::443]:8443", "https://[2001:db8::443]",
        "https://u:p@a.example", "https://u:p@a.example:443",
    }  # fmt: skip
    for url in candidates:
        signature = sign_twilio(url + PATH, FORM, TOKEN)
        if url in signed:
            verify(signature, url_base=base)
        else:
            refused(signature, url_base=base)


@pytest.mark.parametrize(
    "base", ["https://a.example", "https://a.example:443", "http://a.example", "http://a.example:80"]
)
def test_the_oracle_agrees_about_default_ports(base: str) -> None:
    for url in ("https://a.example", "https://a.example:443", "http://a.example", "http://a.example:80"):
        signature = sign_twilio(url + PATH, FORM, TOKEN)
        fields = Fields([(name.decode(), value.decode()) for name, value in FORM])
        if RequestValidator(TOKEN).validate(base + PATH, fields, signature):
            verify(signature, url_base=base)
        else:
            refused(signature, url_base=base)


@pytest.mark.parametrize(
    ("header", "algorithm"),
    [
        (SETTINGS, HMAC_SHA256),
        ("algorithm=HMAC_SHA256,key=webhooks_sharedkey_1", HMAC_SHA256),
        (" key=k , algorithm = hmac_sha256 ", HMAC_SHA256),
        ("algorithm=HMAC_SHA256,algorithm=HMAC_SHA1", HMAC_SHA256),
        ("key=k,algorithm=HMAC_SHA1", HMAC_SHA1),
        ("key=k", HMAC_SHA1),
        ("key=k,algorithm=", HMAC_SHA1),
    ],
)
def test_shared_key(header: str, algorithm: str) -> None:
    assert get_signature_algorithm(header).upper() == algorithm
    verify(oracle(SHARED, BASE + PATH, urlencode(FORM).encode(), algorithm), settings=header)
    other = HMAC_SHA1 if algorithm == HMAC_SHA256 else HMAC_SHA256
    refused(sign_twilio(BASE + PATH, FORM, SHARED, other), settings=header)
    # the header decides which secret counts: the token never stands in for the key, nor the key for the token
    refused(sign_twilio(BASE + PATH, FORM, TOKEN, algorithm), settings=header)
    refused(sign_twilio(BASE + PATH, FORM, SHARED, HMAC_SHA1), settings=None)


def test_shared_key_that_is_not_configured() -> None:
    assert "TWILIO_WEBHOOK_SHARED_KEY" in refused(PUBLISHED, settings=SETTINGS, shared_key=None)
    assert "TWILIO_WEBHOOK_SHARED_KEY" in refused(PUBLISHED, settings="key=k,algorithm=HMAC_SHA1", shared_key=None)


@pytest.mark.parametrize("header", ["algorithm=HMAC_MD5", "algorithm=none,algorithm=HMAC_SHA256", "é", "k" * 513])
def test_settings_header_that_cannot_be_followed(header: str) -> None:
    refused(sign_twilio(BASE + PATH, FORM, SHARED, HMAC_SHA256), settings=header)
    refused(PUBLISHED, settings=header)


def test_an_empty_settings_header_is_none() -> None:
    verify(PUBLISHED, settings="")


def test_every_candidate_is_computed_and_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def counted(expected: bytes, given: bytes) -> bool:
        compared.append((expected, given))
        return real(expected, given)

    monkeypatch.setattr(hmac, "compare_digest", counted)  # the standard library's, not ours
    verify(PUBLISHED, tokens=(TOKEN, "other"))
    assert len(compared) == 4
    assert all(isinstance(side, bytes) for pair in compared for side in pair)


def test_unknown_algorithm_is_an_error_when_signing() -> None:
    with pytest.raises(ValueError, match="HMAC_MD5"):
        sign_twilio(BASE, [], TOKEN, "HMAC_MD5")
