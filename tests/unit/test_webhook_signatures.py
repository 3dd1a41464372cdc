"""The schemes by which webhooks are signed: public vectors, properties, and hostile headers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import OpenAI

from shared.errors import RequestRefused
from shared.signature import (
    new_secret,
    sign_hub,
    sign_standard,
    sign_timestamped,
    verify_hub,
    verify_standard,
    verify_timestamped,
)

# The vector of Standard Webhooks' own libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, TIME, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
# The vector of OpenAI's own libraries.
OPENAI_SECRET = "whsec_RdvaYFYUXuIFuEbvZHwMfYFhUf7aMYjYcmM24+Aj40c="
OPENAI_ID, OPENAI_TIME = "wh_685c059ae39c8190af8c71ed1022a24d", 1750861210
OPENAI_BODY = (
    b'{"id": "evt_685c059ae3a481909bdc86819b066fb6", "object": "event", "created_at": 1750861210,'
    b' "type": "response.completed", "data": {"id": "resp_123"}}'
)
OPENAI_SIGNATURE = "v1,gUAg4R2hWouRZqRQG4uJypNS8YK885G838+EHb4nKBY="
# GitHub's, from its page on validating deliveries.
HUB_SECRET, HUB_BODY = "It's a Secret to Everybody", b"Hello, World!"
HUB_SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

OPENAI = OpenAI(api_key="none")

secrets = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
    lambda text: not text.startswith("whsec_")
)
times = st.integers(0, 10**11)


def standard(
    signature: str | None = SIGNATURE,
    *,
    message_id: str | None = ID,
    timestamp: str | None = str(TIME),
    body: bytes = BODY,
    secrets: tuple[str, ...] = (SECRET,),
    now: float = TIME,
) -> None:
    verify_standard(
        message_id=message_id, timestamp=timestamp, signature=signature, body=body, secrets=secrets, now=now
    )


def refused(call: Callable[[], None]) -> int:
    with pytest.raises(RequestRefused) as caught:
        call()
    return caught.value.status


def test_the_public_vector_of_standard_webhooks() -> None:
    assert sign_standard(ID, TIME, BODY, SECRET) == SIGNATURE
    standard()
    standard(f"v1,AAAA v1a,ignored {SIGNATURE}")


def test_the_public_vector_of_openai() -> None:
    assert sign_standard(OPENAI_ID, OPENAI_TIME, OPENAI_BODY, OPENAI_SECRET) == OPENAI_SIGNATURE
    standard(OPENAI_SIGNATURE, message_id=OPENAI_ID, timestamp=str(OPENAI_TIME), body=OPENAI_BODY,
             secrets=(OPENAI_SECRET,), now=OPENAI_TIME)  # fmt: skip


@settings(max_examples=25)
@given(st.binary(max_size=200), st.binary(min_size=1, max_size=64))
def test_openai_s_library_accepts_what_we_sign(body: bytes, key: bytes) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    now, text = int(time.time()), body.hex()  # the library takes text alone
    signature = sign_standard("wh_1", now, text.encode(), secret)
    headers = {"webhook-id": "wh_1", "webhook-timestamp": str(now), "webhook-signature": signature}
    OPENAI.webhooks.verify_signature(text, headers, secret=secret)


@given(st.binary(max_size=200), secrets, times)
def test_a_timestamped_signature_is_the_hash_that_stripe_s_page_describes(body: bytes, secret: str, now: int) -> None:
    digest = hmac.new(secret.encode(), str(now).encode() + b"." + body, hashlib.sha256).hexdigest()
    assert sign_timestamped(now, body, [secret]) == f"t={now},v1={digest}"


def test_the_public_vector_of_github() -> None:
    assert sign_hub(HUB_BODY, HUB_SECRET) == HUB_SIGNATURE
    verify_hub(signature=HUB_SIGNATURE, body=HUB_BODY, secrets=["another", HUB_SECRET])
    verify_hub(signature=HUB_SIGNATURE.upper().replace("SHA256", "sha256"), body=HUB_BODY, secrets=[HUB_SECRET])


def test_the_time_is_signed_as_it_was_written() -> None:
    # As Stripe's page says: the timestamp, a dot, the body.
    header = sign_timestamped(1492774577, b"{}", ["whsec_test", "old"])
    assert header.startswith("t=1492774577,v1=")
    verify_timestamped(signature=f"{header},v0=6ffb,other", body=b"{}", secrets=["old"], now=1492774577)
    padded = header.replace("t=1", "t=01")
    assert refused(lambda: verify_timestamped(signature=padded, body=b"{}", secrets=["old"], now=1492774577)) == 403


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_within_the_tolerance(seconds: int) -> None:
    standard(now=TIME + seconds)
    verify_timestamped(signature=sign_timestamped(TIME, BODY, ["s"]), body=BODY, secrets=["s"], now=TIME + seconds)


@pytest.mark.parametrize("seconds", [-301, 301])
def test_outside_the_tolerance(seconds: int) -> None:
    header = sign_timestamped(TIME, BODY, ["s"])
    assert refused(lambda: standard(now=TIME + seconds)) == 403
    assert refused(lambda: verify_timestamped(signature=header, body=BODY, secrets=["s"], now=TIME + seconds)) == 403


@given(st.binary(max_size=200), secrets, secrets, times)
def test_what_is_signed_is_verified_and_nothing_else(body: bytes, secret: str, other: str, now: int) -> None:
    signature = sign_standard("msg_1", now, body, secret)
    standard(signature, message_id="msg_1", timestamp=str(now), body=body, secrets=(other, secret), now=now)
    verify_timestamped(signature=sign_timestamped(now, body, [secret]), body=body, secrets=[other, secret], now=now)
    verify_hub(signature=sign_hub(body, secret), body=body, secrets=[other, secret])
    tampered = body + b"x"
    key = secret
    assert refused(lambda: standard(signature, message_id="msg_1", timestamp=str(now), body=tampered, secrets=(key,),
                                    now=now)) == 403  # fmt: skip
    assert refused(lambda: verify_hub(signature=sign_hub(body, key), body=tampered, secrets=[key])) == 403


@given(st.text(max_size=60), st.text(max_size=20), st.text(max_size=60), st.binary(max_size=20))
def test_hostile_headers_are_refused_and_raise_nothing_else(
    message_id: str, timestamp: str, signature: str, body: bytes
) -> None:
    for call in (
        lambda: standard(signature, message_id=message_id, timestamp=timestamp, body=body),
        lambda: verify_timestamped(signature=signature, body=body, secrets=["s"], now=TIME),
        lambda: verify_timestamped(signature=f"t={timestamp},v1={signature}", body=body, secrets=["s"], now=TIME),
        lambda: verify_hub(signature=signature, body=body, secrets=["s"]),
        lambda: verify_hub(signature=f"sha256={signature}", body=body, secrets=["s"]),
    ):
        assert refused(call) in (400, 403)


@pytest.mark.parametrize(
    "call",
    [
        lambda: standard(None),
        lambda: standard(message_id=None),
        lambda: standard(timestamp=None),
        lambda: standard(timestamp="١٦١٤٢٦٥٣٣٠"),
        lambda: standard("v1,é"),
        lambda: standard("x" * 5000),
        lambda: standard(" ".join(["v1,AAAA"] * 21)),
        lambda: verify_timestamped(signature="t=1,t=1,v1=a", body=b"", secrets=["s"], now=1),
        lambda: verify_timestamped(signature="v1=a", body=b"", secrets=["s"], now=1),
        lambda: verify_hub(signature="sha1=abc", body=b"", secrets=["s"]),
    ],
    ids=["unsigned", "no-id", "no-time", "other-digits", "not-ascii", "long", "many", "two-times", "no-t", "sha1"],
)
def test_what_cannot_be_a_signature_is_a_bad_request(call: Callable[[], None]) -> None:
    assert refused(call) == 400


DOUBLED_STANDARD = {"message_id": f"{ID},{ID}", "timestamp": f"{TIME},{TIME}", "signature": f"{SIGNATURE},{SIGNATURE}"}


@pytest.mark.parametrize("name", DOUBLED_STANDARD)
def test_a_header_that_came_twice_is_refused(name: str) -> None:
    """The host hands over both values with a comma between."""
    good = {"message_id": ID, "timestamp": str(TIME), "signature": SIGNATURE}
    given: dict[str, Any] = good | {name: DOUBLED_STANDARD[name]}
    assert refused(lambda: verify_standard(body=BODY, secrets=[SECRET], now=TIME, **given)) in (400, 403)


def test_a_signature_s_header_that_came_twice_is_refused() -> None:
    stamped = sign_timestamped(TIME, BODY, ["s"])
    twice = f"{stamped},{stamped}"
    assert refused(lambda: verify_timestamped(signature=twice, body=BODY, secrets=["s"], now=TIME)) == 400
    hub = f"{HUB_SIGNATURE},{HUB_SIGNATURE}"
    assert refused(lambda: verify_hub(signature=hub, body=HUB_BODY, secrets=[HUB_SECRET])) == 403


@pytest.mark.parametrize("secrets", [(), ("",), ("s", ""), ("whsec_",), ("whsec_é",)])
def test_an_empty_secret_signs_and_verifies_nothing(secrets: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"secret|whsec_"):
        standard(secrets=secrets)


def test_a_new_secret_is_32_random_bytes() -> None:
    made = new_secret()
    assert made != new_secret()
    standard(sign_standard(ID, TIME, BODY, made), secrets=(made,))
