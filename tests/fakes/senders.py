"""A sender of events in tests: requests signed as a source's scheme wants them, and a world that takes them in."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from shared.db.pool import Database
from shared.request import Request, Response
from shared.secrets import Vault
from shared.signature import sign_hub, sign_standard, sign_timestamped
from shared.webhooks import sources
from shared.webhooks.sources import NewSource
from tests.fakes.deliveries import add_endpoint, forget_deliveries
from tests.fakes.world import World

KEY = b"k" * 32
SECRETS_KEY = base64.b64encode(KEY).decode()
VAULT = Vault([KEY])
HUB_ID = "X-GitHub-Delivery"
SCHEMES: Mapping[str, dict[str, Any]] = {
    "standard": {"scheme": "standard"},
    "t-v1": {"scheme": "t-v1", "signature_header": "Stripe-Signature", "id_from": "pointer:/id", "normaliser": "json"},
    "x-hub": {"scheme": "x-hub", "id_from": f"header:{HUB_ID}", "normaliser": "json",
              "paths": {"type": "header:X-GitHub-Event"}},
}  # fmt: skip


def event_body(identity: str | None = None, **changes: Any) -> bytes:
    """A body as OpenAI sends it."""
    return json.dumps(
        {"id": identity or f"evt_{uuid4().hex}", "object": "event", "created_at": 1750861210,
         "type": "response.completed", "data": {"id": "resp_123"}} | changes
    ).encode()  # fmt: skip


def signed(
    scheme: str,
    secret: str,
    body: bytes,
    *,
    identity: str | None = None,
    at: float | None = None,
    **changes: str | None,
) -> dict[str, str]:
    """The headers of a genuine request; `changes` by name with _ for -, None takes one away."""
    now, identity = int(time.time() if at is None else at), identity or f"wh_{uuid4().hex}"
    match scheme:
        case "standard":
            headers = {
                "webhook-id": identity,
                "webhook-timestamp": str(now),
                "webhook-signature": sign_standard(identity, now, body, secret),
            }
        case "t-v1":
            headers = {"stripe-signature": sign_timestamped(now, body, [secret])}
        case _:
            headers = {
                "x-hub-signature-256": sign_hub(body, secret),
                HUB_ID.lower(): identity,
                "x-github-event": "push",
            }
    for name, value in changes.items():
        headers.pop(name.replace("_", "-"), None)
        if value is not None:
            headers[name.replace("_", "-")] = value
    return headers | {"content-type": "application/json"}


class Sending(World):
    """A world without anything of the gateway in it; sources are added by the name of their scheme or with options."""

    def __init__(self, database: Database, **changes: str) -> None:
        super().__init__(database, SECRETS_KEY=SECRETS_KEY, **changes)
        forget_deliveries(self)
        self.secrets: dict[str, tuple[str, str]] = {}

    def add_source(self, name: str = "openai", **options: Any) -> str:
        """Its secret."""
        wanted = NewSource(name=name, **{"scheme": "standard", **options})
        with self.database.connection() as connection:
            made = sources.add(connection, wanted, vault=VAULT, who="anna")
        self.secrets[name] = (wanted.scheme, made.secret)
        return made.secret

    def rotate_source(self, name: str, *, overlap_hours: float = 24.0) -> str:
        """Its new secret, which events are signed with from now on; the old one is returned."""
        scheme, old = self.secrets[name]
        with self.database.connection() as connection:
            made = sources.rotate(connection, name, vault=VAULT, who="anna", overlap_hours=overlap_hours)
        self.secrets[name] = (scheme, made.secret)
        return old

    def add_endpoints(self, names: Sequence[str]) -> None:
        """Endpoints that ask for all that comes from sources."""
        for name in names:
            add_endpoint(self, name)

    def send(self, name: str = "openai", body: bytes | None = None, **signing: Any) -> tuple[int, dict[str, str]]:
        """One genuine event; status and answer."""
        given = event_body() if body is None else body
        scheme, secret = self.secrets[name]
        return self.deliver(name, given, signed(scheme, secret, given, **signing))

    def deliver(self, name: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, str]]:
        """One request as it is."""
        return read(self.respond(name, body, headers))

    def respond(self, name: str, body: bytes, headers: Mapping[str, str]) -> Response:
        """The same with the whole answer."""
        url = f"https://antwoord.example.org/api/events/{name}"
        return self.app.receive_event(name, Request(url, headers, body))

    def retry_after(self, name: str = "openai", body: bytes | None = None, **signing: Any) -> tuple[int, int]:
        """One genuine event that is refused for now: status, and the seconds after which to come again."""
        given = event_body() if body is None else body
        scheme, secret = self.secrets[name]
        answer = self.respond(name, given, signed(scheme, secret, given, **signing))
        return answer.status, int(answer.headers["Retry-After"])

    def count(self, table: str) -> int:
        """Its rows."""
        return int(self.value(f"SELECT count(*) FROM {table}"))


def read(response: Response) -> tuple[int, dict[str, str]]:
    """Status and JSON of an answer."""
    assert response.content_type == "application/json"
    return response.status, json.loads(response.body)
