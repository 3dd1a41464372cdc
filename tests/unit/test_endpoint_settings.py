"""What can be an endpoint: its URL, types, limits, secret and extra headers. One sentence for what cannot, without values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import uuid4

import pytest

from shared.clients.guard import Guard
from shared.errors import UserError
from shared.secrets import SecretUnreadable, Vault
from shared.signature import new_secret
from shared.webhooks.endpoint_headers import checked_headers, open_headers, seal_headers
from shared.webhooks.endpoint_settings import (
    EndpointSettings,
    changes_of,
    checked,
    checked_name,
    checked_secret,
    shown,
)

GUARD = Guard(("orders.internal", "10.0.0.7:8080"))
PLAIN = EndpointSettings(url="https://hooks.example.org/in")


@pytest.mark.parametrize(
    "url", [PLAIN.url, "http://orders.internal/x", "http://10.0.0.7:8080/", "https://hooks.example.org:8443/a?b=c"]
)
def test_urls_that_may_be_delivered_to(url: str) -> None:
    assert checked(replace(PLAIN, url=f" {url} "), GUARD, ()).url == url


@pytest.mark.parametrize(
    "url",
    ["http://hooks.example.org/", "https://10.0.0.7/", "https://169.254.169.254/", "ftp://x/", "", "https://a:b@c.example/",
     "https://[::ffff:127.0.0.1]/", "https://hooks.example.org/\ud800", "https://hooks.example.org/a b"],
)  # fmt: skip
def test_urls_that_may_not_tell_what_to_do(url: str) -> None:
    with pytest.raises(UserError, match=r"OUTBOUND_ALLOW_HOSTS|cannot be read") as refused:
        checked(replace(PLAIN, url=url), GUARD, ())
    assert refused.value.name == "endpoint_url"


def test_a_url_that_was_accepted_before_is_not_checked_again() -> None:
    old = "http://was.internal/"
    assert checked(replace(PLAIN, url=old, rate=2.0), GUARD, (), known_url=old).rate == 2.0


def test_types_are_tidied() -> None:
    given = (" response.completed", "batch.*", "", "response.completed")
    assert checked(replace(PLAIN, events=given), GUARD, ()).events == ("response.completed", "batch.*")


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"events": ("a*b",)}, "endpoint_events"), ({"events": ("a b",)}, "endpoint_events"),
        ({"events": ("a\x00",)}, "endpoint_events"), ({"events": ("x" * 201,)}, "endpoint_events"),
        ({"events": tuple(f"t{n}" for n in range(101))}, "endpoint_events_many"),
        ({"schedule": "never"}, "endpoint_schedule"),
        ({"rate": 0.0}, "endpoint_rate"), ({"rate": -1.0}, "endpoint_rate"), ({"rate": float("nan")}, "endpoint_rate"),
        ({"rate": float("inf")}, "endpoint_rate"), ({"rate": 1001.0}, "endpoint_rate"),
        ({"concurrency": 0}, "endpoint_concurrency"), ({"concurrency": 65}, "endpoint_concurrency"),
        ({"timeout_seconds": 0.05}, "endpoint_timeout"), ({"timeout_seconds": 51.0}, "endpoint_timeout"),
        ({"timeout_seconds": float("nan")}, "endpoint_timeout"),
        ({"signature_header": "two words"}, "endpoint_header_name"), ({"signature_header": ""}, "endpoint_header_name"),
        ({"signature_header": "Host"}, "endpoint_signature_header"),
        ({"signature_header": "X-Webhook-ID"}, "endpoint_signature_header"),
        ({"signature_header": "x-api-key"}, "endpoint_signature_header"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)  # fmt: skip
def test_settings_that_cannot_be(changed: dict[str, object], name: str) -> None:
    with pytest.raises(UserError) as refused:
        checked(replace(PLAIN, **changed), GUARD, ("X-Api-Key",))  # type: ignore[arg-type]
    assert refused.value.name == name


@pytest.mark.parametrize("name", ["", "-a", "Orders", "a" * 64, "a b", "a\n", "é"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(UserError, match="small letters"):
        checked_name(name)


@pytest.mark.parametrize(
    "secret", [new_secret(), "sixteen-letters!", "whsec_" + "QUJD" * 6], ids=["made", "plain", "short"]
)
def test_secrets_that_can_sign(secret: str) -> None:
    assert checked_secret(secret) == secret


@pytest.mark.parametrize(
    "secret", ["", "short", "whsec_", "whsec_not-base64-at-all", "whsec_QUJDREVGRw==", "é" * 20, "a b" * 9]
)
def test_secrets_that_cannot_are_not_repeated(secret: str) -> None:
    with pytest.raises(UserError) as refused:
        checked_secret(secret)
    assert not secret or secret not in str(refused.value).replace("whsec_ must", "")


def test_headers_are_kept_sealed_for_their_endpoint() -> None:
    vault, mine, other = Vault([b"k" * 32]), uuid4(), uuid4()
    headers = checked_headers({" Authorization ": " Bearer abc ", "X-Cafe": "thé"})
    assert headers == {"Authorization": "Bearer abc", "X-Cafe": "thé"}
    sealed = seal_headers(headers, mine, vault)
    assert sealed is not None
    assert b"Bearer" not in sealed
    assert open_headers(sealed, mine, vault) == headers
    with pytest.raises(SecretUnreadable):
        open_headers(sealed, other, vault)
    assert seal_headers({}, mine, vault) is None
    assert open_headers(None, mine, vault) == {}


RESERVED = [
    "Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
    "HOST", "Expect", "Accept-Encoding", "User-Agent", "Content-Type", "content-length", "Content-Encoding", "webhook-id",
    "Webhook-Signature", "X-Webhook-ID", "X-Webhook-Signature", "x-webhook-else", "X-Idempotency-Key", "X-Replay-Id",
    "X-Replay-Attempt", "X-Original-Timestamp",
]  # fmt: skip


@pytest.mark.parametrize("name", RESERVED)
def test_what_the_gateway_sets_nobody_else_does(name: str) -> None:
    with pytest.raises(UserError) as refused:
        checked_headers({name: "value-of-it"})
    assert refused.value.name == "endpoint_header_reserved"


@pytest.mark.parametrize(
    "headers",
    [
        {"X A": "secret-value"}, {"": "secret-value"}, {"X-Ä": "secret-value"}, {"X:": "secret-value"},
        {"X-A": "secret-value\r\nHost: evil"}, {"X-A": "secret-value\x00"}, {"X-A": "secret-value\x7f"},
        {"X-A": "secret-value\x85"}, {"X-A": "secret-value €"}, {"X-A": "secret-value\ud800"}, {"X-A": ""},
        {"X-A": "secret-value" * 400}, {"X-A": "secret-value", "x-a": "2"}, {f"X-{n}": "secret-value" for n in range(21)},
    ],
    ids=lambda headers: ascii(next(iter(headers.items())))[:40],
)  # fmt: skip
def test_headers_that_cannot_be_sent_are_told_without_their_value(headers: Mapping[str, str]) -> None:
    with pytest.raises(UserError) as refused:
        checked_headers(headers)
    assert "secret-value" not in str(refused.value)


def test_of_a_url_the_log_has_its_host_alone() -> None:
    other = replace(PLAIN, url="https://hooks.example.org/services/T0KEN", rate=2.5, events=("a", "b*"))
    assert "T0KEN" not in str(shown(other))
    assert changes_of(PLAIN, other) == {
        "url": "https://hooks.example.org/… → https://hooks.example.org/…", "rate": "∞ → 2.5", "events": "– → a, b*",
    }  # fmt: skip
