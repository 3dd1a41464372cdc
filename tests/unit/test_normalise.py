"""From bodies to events: vendors' shapes, configured places, and bodies that would poison others."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import RequestRefused
from shared.webhooks import normalise
from shared.webhooks.normalise import Normalised
from shared.webhooks.registry import KnownSource

WHEN = datetime(2025, 6, 25, 14, 20, 10, tzinfo=UTC)


def source(*, id_from: str = "header", normaliser: Any = "json", paths: Mapping[str, str] | None = None) -> KnownSource:
    return KnownSource(uuid4(), "vendor", "standard", None, id_from, 300, 1024, normaliser, paths or {}, ("s",))


def openai(**document: Any) -> Normalised:
    return normalise.normalise(source(normaliser="openai"), {}, document)


def generic(document: dict[str, Any], headers: Mapping[str, str] | None = None, **paths: str) -> Normalised:
    return normalise.normalise(source(paths=paths), headers or {}, document)


def refused(body: bytes) -> str:
    with pytest.raises(RequestRefused) as caught:
        normalise.parse(body)
    assert caught.value.status == 400
    return str(caught.value)


@pytest.mark.parametrize(
    ("event_type", "data", "subject"),
    [
        ("response.completed", {"id": "resp_1"}, "resp_1"),
        ("batch.failed", {"id": "batch_1"}, "batch_1"),
        ("fine_tuning.job.succeeded", {"id": "ftjob-1"}, "ftjob-1"),
        ("realtime.call.incoming", {"call_id": "rtc_1", "sip_headers": []}, "rtc_1"),
        ("of.tomorrow", {"what": 1}, None),
        ("of.tomorrow", [1, 2], None),
        ("of.tomorrow", None, None),
    ],
)
def test_openai_s_events_by_their_type(event_type: str, data: Any, subject: str | None) -> None:
    found = openai(id="evt_1", object="event", created_at=1750861210, type=event_type, data=data)
    assert found == Normalised(event_type, subject, WHEN, data)


@pytest.mark.parametrize("event_type", [None, "", 7, ["a"], "x" * 201])
def test_what_has_no_type_is_no_event_of_openai_s(event_type: Any) -> None:
    with pytest.raises(RequestRefused):
        openai(type=event_type)


def test_an_event_without_data_keeps_its_body() -> None:
    assert openai(type="a", n=1).data == {"type": "a", "n": 1}


def test_things_are_where_a_source_says() -> None:
    document = {"created": 1750861210, "kind": "paid", "data": {"object": {"id": 7, "a/b": [{"~": "x"}]}}}
    found = generic(
        document, type="/kind", subject="/data/object/id", occurred_at="/created", data="/data/object", text="/nothing"
    )
    assert found == Normalised("paid", "7", WHEN, document["data"]["object"])  # type: ignore[index]
    assert generic(document, subject="/data/object/a~1b/0/~0").subject == "x"
    assert generic(document, {"x-github-event": "push"}, type="header:X-GitHub-Event").type == "push"


def test_a_header_s_value_is_made_storable() -> None:
    found = generic({}, {"x-kind": "a\0\ud800"}, type="header:X-Kind", data="header:X-Kind")
    assert (found.type, found.data) == ("a\ufffd\ufffd", "a\ufffd\ufffd")


@pytest.mark.parametrize("place", ["/nothing", "/list/9", "/list/x", "/list/-1", "/list/٣", "/text/0", "/list/0/a"])
def test_what_is_not_there_is_left_out(place: str) -> None:
    found = generic({"list": [1], "text": "abc"}, type=place, subject=place, occurred_at=place, data=place)
    assert found == Normalised("vendor", None, None, {"list": [1], "text": "abc"})


def test_generated_text_and_what_it_was_made_from() -> None:
    document = {"answer": "x", "from": [{"text": "a", "n": 1}, "b", ["c"]]}
    found = generic(document, text="/answer", sources="/from")
    assert (found.text, found.sources) == ("x", ["a", "b", "c"])
    assert generic({"answer": [{"text": "a"}, "b"]}, text="/answer").text == "a\nb", "in parts it is checked too"
    assert generic(document, text="/answer").sources is None
    assert generic({"answer": 1, "from": []}, text="/answer", sources="/from").text is None


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (1750861210, WHEN),
        (1750861210000, WHEN),
        (1750861210.0, WHEN),
        ("2025-06-25T14:20:10Z", WHEN),
        ("2025-06-25T16:20:10+02:00", WHEN),
        ("2025-06-25T14:20:10", WHEN),
        (True, None),
        (10**300, None),
        (-(10**300), None),
        (1e308, None),
        ("0001-01-01T00:00:00+14:00", None),
        ("0001-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59Z", None),
        ("yesterday", None),
        ("2" * 5000, None),
        ({}, None),
    ],
    ids=str,
)
def test_when_it_happened(given: Any, found: datetime | None) -> None:
    assert generic({"occurred_at": given}).occurred_at == found


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "not JSON"),
        (b"\xff", "UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b"[]", "not a JSON object"),
        (b'"x"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1} x', "not JSON"),
        (b'{"a": "\x00"}', "not JSON"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1e400}', "no double"),
        (b'{"a": -1e400}', "no double"),
        (b'{"a": ' + b"9" * 5000 + b"}", "no double"),
        (b'{"a": ' + b"[" * 101 + b"]" * 101 + b"}", "nested"),
        (b'{"a": ' + b"[" * 100_000, "nested"),
        (b'{"a":' * 100_000, "nested"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else str(value[:12]),
)
def test_a_body_that_cannot_be_an_event_is_a_bad_request(body: bytes, sentence: str) -> None:
    assert sentence in refused(body)


@pytest.mark.parametrize(
    ("body", "document"),
    [
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'{"a\\u0000": "\\u0000", "b": "\\ud800x"}', {"a\ufffd": "\ufffd", "b": "\ufffdx"}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": ' + b"9" * 308 + b"}", {"a": int("9" * 308)}),
        (b'{"a": 1e-400, "b": -0.0}', {"a": 0.0, "b": -0.0}),
        (b'{"a": ' + b"[" * 99 + b"]" * 99 + b"}", None),
        (b"{}", {}),
    ],
    ids=["twice", "unstorable", "pair", "mark", "long", "small", "deep", "empty"],
)
def test_an_odd_body_is_read(body: bytes, document: Any) -> None:
    found = normalise.parse(body)
    assert document is None or found == document


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    with contextlib.suppress(RequestRefused):
        normalise.parse(body)


@pytest.mark.parametrize(
    ("id_from", "headers", "found"),
    [
        ("header", {"webhook-id": "a", "x-event-id": "b"}, "a"),
        ("header", {"webhook-id": "", "x-event-id": "b"}, "b"),
        ("header", {"x-webhook-id": "c"}, "c"),
        ("header:X-GitHub-Delivery", {"x-github-delivery": "d", "webhook-id": "a"}, "d"),
        ("pointer:/id", {}, "evt_1"),
        ("pointer:/n/0", {}, "7"),
        ("body-sha256", {}, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    ],
)
def test_the_id_is_where_the_source_says(id_from: str, headers: dict[str, str], found: str) -> None:
    given = source(id_from=id_from)
    assert normalise.event_id(given, headers, {"id": "evt_1", "n": [7]}, b"abc") == found


@pytest.mark.parametrize(
    ("id_from", "headers"),
    [
        ("header", {}),
        ("header", {"webhook-id": ""}),
        ("header", {"webhook-id": "a,a"}),
        ("header", {"webhook-id": "é"}),
        ("header", {"webhook-id": "a b"}),
        ("header", {"webhook-id": "x" * 257}),
        ("header:X-GitHub-Delivery", {"webhook-id": "a"}),
        *((f"pointer:/{name}", {}) for name in ("nothing", "true", "list", "none", "empty", "blank", "half", "long", "odd")),
    ],
)  # fmt: skip
def test_without_an_id_it_is_a_bad_request(id_from: str, headers: dict[str, str]) -> None:
    document = {"true": True, "list": [], "none": None, "empty": "", "blank": " ", "half": 1.5, "long": "x" * 257,
                "odd": "a\ufffd"}  # fmt: skip
    with pytest.raises(RequestRefused) as caught:
        normalise.event_id(source(id_from=id_from), headers, document, b"")
    assert caught.value.status == 400


@pytest.mark.parametrize("given", ["a,a", "é", "x" * 257, "a b"])
def test_an_idempotency_key_must_be_readable(given: str) -> None:
    assert normalise.idempotency_key({}) is None
    assert normalise.idempotency_key({"x-idempotency-key": "k-1"}) == "k-1"
    with pytest.raises(RequestRefused):
        normalise.idempotency_key({"x-idempotency-key": given})


def test_what_is_delivered_is_canonical() -> None:
    event = UUID(int=1)
    body = normalise.render(event, "a.b", "vendor", None, WHEN, {"é": 1, "a": [1.5]})
    assert body.decode() == (
        '{"data":{"a":[1.5],"é":1},"id":"evt_00000000000000000000000000000001","occurred_at":"2025-06-25T14:20:10Z",'
        '"source":"vendor","subject":null,"type":"a.b"}'
    )
    assert json.loads(normalise.render(event, "a", "v", "s", None, None))["occurred_at"] is None
