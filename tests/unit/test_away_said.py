"""Why the database cannot be had is in the lines that an application logs of it: the pool's own are left out."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest

from shared.app import App
from shared.db.pool import POOL_WAIT_SECONDS, Database
from shared.request import Request, Response
from shared.signature.twilio import sign_twilio
from tests.fakes.settings import settings

FORM = "application/x-www-form-urlencoded"
PASSWORD, KEY = "hunter2hunter2", "A" * 43 + "="
MESSAGE = {"MessageSid": "SM" + "0" * 32, "From": "whatsapp:+31600000001", "Body": "hoi", "NumMedia": "0"}
STATUS = {"MessageSid": "SM" + "0" * 32, "MessageStatus": "sent"}


@pytest.fixture
def app() -> App:
    nowhere = Database(f"postgresql://nobody:{PASSWORD}@127.0.0.1:1/none", 8)
    return App(settings(SECRETS_KEY=KEY), database=nowhere)


def signed(app: App, path: str, fields: dict[str, str]) -> Request:
    """As Twilio sends it."""
    url = app.settings.public_base_url + path
    form = [(name.encode(), value.encode()) for name, value in fields.items()]
    signature = sign_twilio(url, form, app.settings.twilio_auth_token)
    headers = {"content-type": FORM, "x-twilio-signature": signature}
    return Request(url, headers, urlencode(fields).encode())


def test_each_part_that_needs_it_says_why(app: App, caplog: pytest.LogCaptureFixture) -> None:
    message, status = signed(app, "/api/twilio/inbound", MESSAGE), signed(app, "/api/twilio/status", STATUS)
    event = Request(f"{app.settings.public_base_url}/api/events/openai", {}, b"{}")
    asked = (
        lambda: app.receive_message(message), lambda: app.receive_status(status), lambda: app.receive_event("openai", event),
        lambda: app.worker.drain(1, POOL_WAIT_SECONDS),
    )  # fmt: skip
    with ThreadPoolExecutor(len(asked)) as pool:  # beside each other, as each of them waits
        answers = [asking.result() for asking in [pool.submit(ask) for ask in asked]]
    app.close()
    assert [answer.status for answer in answers if isinstance(answer, Response)] == [503] * 3
    said = {line["event"]: line.get("error", "") for line in map(json.loads, caplog.messages)}
    for name in ("inbound_not_stored", "status_not_stored", "event_not_stored", "poll_failed"):
        assert "Connection refused" in said[name]
    assert PASSWORD not in caplog.text
