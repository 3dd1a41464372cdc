"""Everything that a developer's machine needs beside the host: a database, and a stand-in for each service without settings.

What the environment already names is used as it is: a real Azure OpenAI or Twilio takes its stand-in's place, one by one.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from local.gateway.server import Gateway
from local.phone.people import Person
from local.phone.server import phone_routes
from local.postgres import EmbeddedPostgres
from local.standins.azure_openai import OpenAIStandIn
from local.standins.twilio import ACCOUNT_SID, WHATSAPP_FROM, TwilioStandIn
from shared.settings import KEY_BYTES

WEBHOOK_PAUSES = (0.2, 0.4, 0.8, 1.6, 3.2)  # long enough for a host that was killed to be there again
RECONCILE_WINDOW = "30"  # short enough to watch; more than the phone page's list is ever late
CHAT, EMBEDDING = "standin-chat", "standin-embedding"
KEY_FILE = "secrets-key"  # kept in the folder of `up`: what it has sealed is read at its next start too


class Stack:
    """A context manager; `environment` is what the host and the command then run with."""

    def __init__(
        self,
        folder: Path,
        given: Mapping[str, str],
        *,
        host_url: str,
        phone_port: int = 0,
        gateway_port: int = 0,
        model_seconds: float = 0.0,
    ) -> None:
        self.environment = {name: value for name, value in given.items() if value.strip()}
        self.postgres: EmbeddedPostgres | None = None
        self.openai: OpenAIStandIn | None = None
        self.twilio: TwilioStandIn | None = None
        self.gateway = Gateway(self.environment, host_url=host_url, port=gateway_port)
        self._folder = folder
        self._host_url = host_url
        self._phone_port = phone_port
        self._model_seconds = model_seconds
        self._closing = contextlib.ExitStack()

    def open(
        self,
        people: Sequence[Person] = (),
        jobs: Callable[[], list[dict[str, Any]]] | None = None,
        kill_host: Callable[[], None] | None = None,
    ) -> Self:
        """Start what is missing. Raises UserError when a port is in use."""
        if "DATABASE_URL" not in self.environment:
            self._open_postgres()
        if "AZURE_OPENAI_ENDPOINT" not in self.environment:
            self._open_openai()
        if not {"TWILIO_ACCOUNT_SID", "TWILIO_API_BASE_URL"} & self.environment.keys():
            self._open_twilio(people, jobs, kill_host)
        self._open_gateway()
        return self

    def _open_postgres(self) -> None:
        self.postgres = EmbeddedPostgres(self._folder / "postgres")
        self._closing.callback(self.postgres.close)
        self.environment["DATABASE_URL"] = self.postgres.create("antwoord")

    def _open_openai(self) -> None:
        self.openai = self._closing.enter_context(OpenAIStandIn(model_seconds=self._model_seconds))
        self.environment |= {
            "AZURE_OPENAI_ENDPOINT": self.openai.url,
            "AZURE_OPENAI_API_KEY": "standin",
            "AZURE_OPENAI_CHAT_DEPLOYMENT": CHAT,
            "AZURE_OPENAI_EMBEDDING_DEPLOYMENT": EMBEDDING,
        }

    def _open_twilio(
        self,
        people: Sequence[Person],
        jobs: Callable[[], list[dict[str, Any]]] | None,
        kill_host: Callable[[], None] | None,
    ) -> None:
        token = secrets.token_hex(16)
        twilio = TwilioStandIn(
            auth_token=token,
            webhook_url=f"{self._host_url}/api/twilio/inbound",
            port=self._phone_port,
            webhook_pauses=WEBHOOK_PAUSES,
        )
        twilio.add_routes(phone_routes(twilio, self.openai, people, jobs, kill_host))
        self.twilio = self._closing.enter_context(twilio)
        self.environment |= {
            "TWILIO_API_BASE_URL": twilio.url,
            "TWILIO_ACCOUNT_SID": ACCOUNT_SID,
            "TWILIO_AUTH_TOKEN": token,
            "TWILIO_WHATSAPP_FROM": WHATSAPP_FROM,
            "PUBLIC_BASE_URL": self._host_url,
        }
        self.environment.setdefault("UNKNOWN_SENDERS", "answer")
        self.environment.setdefault("RECONCILE_WINDOW_SECONDS", RECONCILE_WINDOW)

    def _open_gateway(self) -> None:
        self._closing.enter_context(self.gateway)
        allowed = filter(None, [self.environment.get("OUTBOUND_ALLOW_HOSTS", ""), self.gateway.allowed_host])
        self.environment["OUTBOUND_ALLOW_HOSTS"] = ",".join(allowed)
        self.environment.setdefault("SECRETS_KEY", _kept_key(self._folder / KEY_FILE))

    def close(self) -> None:
        """Stop everything that was started here."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _kept_key(file: Path) -> str:
    """The key that an earlier `up` made here, or a new one; readable by its owner alone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        made = base64.b64encode(os.urandom(KEY_BYTES)).decode("ascii")
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as new:
            new.write(made)
    return file.read_text("ascii").strip()
