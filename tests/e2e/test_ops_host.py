"""The console behind the local host, as Azure would hand it its requests: cookies, bodies, files, broken addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from shared.db.pool import Database
from shared.ops.session import create_link
from tests.e2e.running import Outside

METRICS_TOKEN = "for-the-scraper-alone"
HERE_HEADERS = {"Sec-Fetch-Site": "same-origin", "Origin": "null"}


class Browser(requests.Session):
    """Takes an empty `domain=`, which the host always writes, for none, as browsers do (RFC 6265, 5.2.3) and Python does not."""

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        kwargs["allow_redirects"], follows = False, kwargs.get("allow_redirects", True)
        answer = super().send(request, **kwargs)
        for name, value in re.findall(r"(antwoord_\w+)=([^;,]*)", answer.headers.get("set-cookie", "")):
            self.cookies.set(name, value, path="/api/ops")
            if not value:
                self.cookies.clear("", "/api/ops", name)
        if follows and answer.is_redirect:
            return self.get(f"{answer.url.split('/api/')[0]}{answer.headers['location']}", timeout=10)
        return answer


@pytest.fixture(scope="module")
def outside(database_url: str) -> Iterator[Outside]:
    with Outside(database_url, OPS_AUTH="local", METRICS_TOKEN=METRICS_TOKEN) as running:
        running.start_host()
        yield running


@pytest.fixture(scope="module")
def browser(outside: Outside, database: Database) -> requests.Session:
    session = Browser()
    session.headers.update(HERE_HEADERS)
    with database.connection() as connection:
        token = create_link(connection)
    answer = session.post(f"{outside.url}/api/ops/sign-in", data={"token": token}, timeout=10)
    assert "<h1>Overzicht</h1>" in answer.text
    return session


def csrf_of(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found
    return found[1]


def test_a_cookie_survives_the_host(outside: Outside, browser: requests.Session) -> None:
    for path in ("", "/", "/jobs?state=failed&phone=%2B31612345678", "/live/overview"):
        assert browser.get(f"{outside.url}/api/ops{path}", timeout=10).status_code == 200, path
    assert requests.get(f"{outside.url}/api/ops", timeout=10).status_code == 401


def test_an_action_works_and_a_forged_one_does_not(outside: Outside, browser: requests.Session) -> None:
    page = browser.get(f"{outside.url}/api/ops", timeout=10).text
    form = {"csrf": csrf_of(page), "language": "en", "back": "/api/ops/jobs?state=done"}
    answer = browser.post(f"{outside.url}/api/ops/language", data=form, timeout=10)
    assert answer.url.endswith("/api/ops/jobs?state=done")
    assert '<html lang="en">' in answer.text
    assert browser.cookies["antwoord_ops_language"] == "en"
    forged = browser.post(
        f"{outside.url}/api/ops/language", data=form, headers={"Origin": "https://evil.example"}, timeout=10
    )
    assert forged.status_code == 403


def test_files_are_whole_and_kept_and_pages_are_not(outside: Outside, browser: requests.Session) -> None:
    page = browser.get(f"{outside.url}/api/ops", timeout=10)
    assert page.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for address in re.findall(r'(?:href|src)="(/api/ops/static/[^"]+)"', page.text):
        file = browser.get(f"{outside.url}{address}", timeout=10)
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]
        assert int(file.headers["content-length"]) == len(file.content) > 50
    assert browser.head(f"{outside.url}/api/ops", timeout=10).status_code == 200


def test_no_request_ends_in_an_empty_500(outside: Outside, browser: requests.Session) -> None:
    for path, status in (
        ("/%FF", 400),
        ("/jobs/%00", 404),
        ("/none", 404),
        ("/jobs?before=x", 400),
        ("/jobs?type=%FF%00", 200),
    ):
        answer = browser.get(f"{outside.url}/api/ops{path}", timeout=10)
        assert (answer.status_code, bool(answer.text)) == (status, True), path
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert browser.post(f"{outside.url}/api/ops/language", data="x" * 70_000, timeout=10).status_code == 413
    assert browser.post(f"{outside.url}/api/ops/jobs", data={"x": "1"}, timeout=10).status_code == 403
    assert "Traceback" not in outside.logged()


def test_signing_out_ends_it(outside: Outside, browser: requests.Session) -> None:
    page = browser.get(f"{outside.url}/api/ops", timeout=10).text
    answer = browser.post(f"{outside.url}/api/ops/sign-out", data={"csrf": csrf_of(page)}, timeout=10)
    assert answer.status_code == 200
    assert "antwoord_ops" not in browser.cookies
    assert browser.get(f"{outside.url}/api/ops", timeout=10).status_code == 401


def test_metrics_come_with_their_type_and_not_without_the_token(outside: Outside) -> None:
    address = f"{outside.url}/api/metrics"
    answer = requests.get(address, headers={"Authorization": f"Bearer {METRICS_TOKEN}"}, timeout=10)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\n# TYPE antwoord_dead_letters gauge\n" in answer.text
    for hostile in (None, "Bearer x", b"Bearer \xff\xfe", b"\x80" * 4000, f"Basic {METRICS_TOKEN}"):
        refused = requests.get(address, headers={"Authorization": hostile} if hostile else {}, timeout=10)
        assert refused.status_code == 401, hostile
        assert refused.headers["www-authenticate"] == "Bearer"
    assert requests.post(address, timeout=10).status_code in (404, 405)
