"""A person at the console, for tests: signed in by a one-time link, with a browser's headers, through the ASGI application."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import httpx2
from starlette.testclient import TestClient

from shared.app import App
from shared.ops.session import create_link

HERE = "http://127.0.0.1:7071"


class Visitor:
    """`get` and `post` take paths below /api/ops; `post` sends the session's CSRF token and what a browser would send."""

    def __init__(self, app: App, *, signed_in: bool = True, language: str | None = None) -> None:
        self.app = app
        self.client = TestClient(app.console, base_url=HERE, follow_redirects=False, raise_server_exceptions=True)
        self.csrf = ""
        if signed_in:
            self.sign_in()
        if language:
            self.post("/language", language=language, back="/api/ops")

    def sign_in(self) -> None:
        """By a new one-time link."""
        with self.app.database.connection() as connection:
            token = create_link(connection)
        assert self.post("/sign-in", token=token).status_code == 303
        found = re.search(r'name="csrf" value="([^"]+)"', self.get("").text)
        assert found
        self.csrf = found[1]

    def get(self, path: str, **headers: str) -> httpx2.Response:
        """Open a page."""
        return self.client.get(f"/api/ops{path}", headers=headers)

    def post(
        self,
        path: str,
        *,
        files: dict[str, tuple[str, bytes]] | None = None,
        headers: dict[str, str] | None = None,
        **form: Any,
    ) -> httpx2.Response:
        """Press a button. A value that is a list is sent once for each of its items."""
        sent = {"Origin": "null", "Sec-Fetch-Site": "same-origin"} | (headers or {})
        return self.client.post(f"/api/ops{path}", data={"csrf": self.csrf} | form, files=files, headers=sent)

    def follow(self, response: httpx2.Response) -> httpx2.Response:
        """Where a redirect leads."""
        assert response.status_code in (302, 303), response.text
        return self.client.get(response.headers["location"])


def words_of(page: str) -> str:
    """What a page says, without its markup."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())
