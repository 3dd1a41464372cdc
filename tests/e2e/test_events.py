"""AI vendors' webhooks over HTTP, through the host: what is let in, and what is refused."""

from __future__ import annotations

import contextlib
import http.client
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from local.host_process import HostProcess
from shared.webhooks import sources
from shared.webhooks.sources import NewSource
from tests.e2e.running import Rows, free_port
from tests.fakes.senders import SCHEMES, SECRETS_KEY, VAULT, event_body, signed
from tests.fakes.world import ENVIRONMENT

SIZE_LIMIT = 4096
# GitHub signs the body alone; and what is no field of t=…,v1=… is ignored, as one of tomorrow's would be.
UNSIGNED = {("x-github-delivery", "tampered"), ("stripe-signature", "others")}


class Site:
    """A host that only stores, with a source of each scheme."""

    def __init__(self, url: str) -> None:
        self.port = free_port()
        self.database = Rows(url)
        self.secrets = {}
        with psycopg.connect(url, autocommit=True) as connection:
            for scheme, options in SCHEMES.items():
                wanted = NewSource(name=scheme, size_limit=SIZE_LIMIT, **options)
                self.secrets[scheme] = sources.add(connection, wanted, vault=VAULT, who="anna").secret
        environment = ENVIRONMENT | {"DATABASE_URL": url, "SECRETS_KEY": SECRETS_KEY, "PATH": "/usr/bin:/bin"}
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the module
        self.host = HostProcess(environment, port=self.port, arguments=["--no-timer", "--no-wake"], log=self.log)

    def send(self, scheme: str, body: bytes | None = None, **signing: Any) -> tuple[int, dict[str, str]]:
        """A genuine event."""
        given = event_body() if body is None else body
        return self.post(scheme, given, list(signed(scheme, self.secrets[scheme], given, **signing).items()))

    def post(self, source: str, body: bytes, headers: Sequence[tuple[str, str]]) -> tuple[int, dict[str, str]]:
        """A request with just these headers; status and answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            connection.putrequest("POST", f"/api/events/{source}", skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value.encode())
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            text = response.read().decode()
            assert response.status == 404 or response.getheader("Content-Type") == "application/json"
            return response.status, json.loads(text) if text else {}

    def events(self) -> int:
        return int(self.database.value("SELECT count(*) FROM webhook_events"))


@pytest.fixture(scope="module")
def site(database_url: str) -> Iterator[Site]:
    found = Site(database_url)
    with found.host:
        yield found
    found.database.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_genuine_event_is_accepted_once(site: Site, scheme: str) -> None:
    body, identity, before = event_body(), uuid4().hex, site.events()
    status, answer = site.send(scheme, body, identity=identity)
    assert (status, answer["status"], answer["id"][:4]) == (200, "accepted", "evt_")
    assert site.send(scheme, body, identity=identity) == (200, {"status": "already_processed", "id": answer["id"]})
    assert site.events() == before + 1
    raw = site.database.value("SELECT raw FROM webhook_events WHERE id = %(id)s", id=answer["id"][4:])
    assert bytes(raw) == body


def changed(headers: Mapping[str, str], name: str, *values: str) -> list[tuple[str, str]]:
    """The headers with other values, each in a line of its own, in one's place."""
    return [pair for pair in headers.items() if pair[0] != name] + [(name, value) for value in values]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_hostile_headers_are_refused(site: Site, scheme: str) -> None:
    body, before = event_body(), site.events()
    good = signed(scheme, site.secrets[scheme], body)
    for name in set(good) - {"content-type", "x-github-event"}:
        bad = {
            "missing": (), "empty": ("",), "twice": (good[name], good[name]), "others": (good[name], "x"), "long": ("x" * 5000,),
            "not ASCII": (good[name] + "é",), "tampered": ("A" + good[name][1:],),
        }  # fmt: skip
        for what, values in bad.items():
            if (name, what) in UNSIGNED:
                continue
            status, answer = site.post(scheme, body, changed(good, name, *values))
            assert status in (400, 403), (name, what, answer)
            assert answer["error"].endswith(".")
    assert site.post(scheme, body + b" ", list(good.items()))[0] == 403
    assert site.events() == before


@pytest.mark.parametrize(
    ("source", "status"), [("nobody", 404), ("STANDARD", 404), ("%00", 404), ("x" * 2000, 404), ("a%2Fb", 404)]
)
def test_an_unknown_source_is_not_found(site: Site, source: str, status: int) -> None:
    body = event_body()
    assert site.post(source, body, list(signed("standard", "x", body).items()))[0] == status


def test_a_body_that_is_too_large_is_refused_first(site: Site) -> None:
    assert site.post("standard", b"x" * (SIZE_LIMIT + 1), [])[0] == 413
    assert site.send("standard", event_body(pad="x" * SIZE_LIMIT))[0] == 413
    assert site.send("standard", event_body(pad="x" * (SIZE_LIMIT - 400)))[0] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"\xff", 400),
        (b"[]", 400),
        (b'{"type": "a", "x": 1e400}', 400),
        (b'{"type": "a", "x": ' + b"1" * 3000 + b"}", 400),
        (b'{"type": "a", "x": ' + b"[" * 1500 + b"]" * 1500 + b"}", 400),
        (b'{"type": "a", "x": "\\u0000\\ud800"}', 200),
        (b'{"type": "a", "type": "b"}', 200),
    ],
    ids=["empty", "not-utf-8", "no-object", "huge", "long", "deep", "unstorable", "twice"],
)
def test_poison_is_stored_or_refused_and_the_next_is_taken(site: Site, body: bytes, status: int) -> None:
    assert site.send("standard", body)[0] == status
    assert site.send("standard")[0] == 200


def test_twenty_copies_at_once_are_one_event(site: Site) -> None:
    body, before = event_body(), site.events()
    with ThreadPoolExecutor(20) as pool:
        found = Counter(pool.map(lambda _: site.send("standard", body, identity="wh_twenty")[0], range(20)))
    assert set(found) <= {200, 409}
    assert site.events() == before + 1


def test_the_same_id_with_another_body_is_a_conflict(site: Site) -> None:
    assert site.send("standard", identity="wh_conflict")[0] == 200
    status, answer = site.send("standard", identity="wh_conflict")
    assert status == 422
    assert "wh_conflict" in answer["error"]


def test_other_methods_are_not_found(site: Site) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    connection.request("GET", "/api/events/standard")
    assert connection.getresponse().status == 404
    connection.close()
