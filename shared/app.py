"""The composition root: settings in, wired objects out. Nothing else constructs clients.

The webhook's path needs the database and the wake alone; the jobs, and with them the model's and Twilio's clients, are
imported when the first job runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from shared import telemetry
from shared.boundary import Checkpoint, pass_by
from shared.clients.wake import Wake, open_wake
from shared.conversation import webhook
from shared.db.pool import Database
from shared.errors import protect
from shared.queue import health
from shared.request import Request, Response
from shared.secrets import Vault
from shared.settings import Settings, load
from shared.webhooks.receive import Receiver

if TYPE_CHECKING:
    from shared.clients.azure_openai import AzureOpenAI, ChatModel, Embedder
    from shared.clients.twilio import Line, TwilioLine
    from shared.db.budget import Teller
    from shared.ops.app import Console
    from shared.queue.housekeeping import Housekeeping
    from shared.queue.job import JobType
    from shared.queue.worker import Worker
    from shared.webhooks.deliver import Courier
    from shared.webhooks.sending import Sender

WAKE_SECONDS = 120.0
# A wake message becomes visible this long before the job is due: the host looks for messages every two seconds at most, and
# a slot that comes early waits (Worker.drain). So the polling is over by the time that settling is.
HEAD_START_SECONDS = 2.0
POSTGRES_SCOPE = "https://ossrdbms-aad.database.windows.net/.default"


class App:
    """One process's application. What is given here takes the place of the real one; a test passes its fakes so."""

    def __init__(
        self,
        settings: Settings,
        *,
        database: Database | None = None,
        wake: Wake | None = None,
        chat: ChatModel | None = None,
        embedder: Embedder | None = None,
        line: Line | None = None,
        checkpoint: Checkpoint = pass_by,
    ) -> None:
        self.settings = settings
        protect(settings.secrets())
        self.database = database or open_database(settings)
        self.wake = wake or open_wake(settings)
        self._chat = chat
        self._embedder = embedder
        self._line = line
        self._checkpoint = checkpoint
        self._lock = threading.Lock()

    def receive_message(self, request: Request) -> Response:
        """`POST /api/twilio/inbound`."""
        return webhook.receive_message(request, self.settings, self.database, self._wake)

    def receive_status(self, request: Request) -> Response:
        """`POST /api/twilio/status`."""
        return webhook.receive_status(request, self.settings, self.database)

    def receive_event(self, source: str, request: Request) -> Response:
        """`POST /api/events/{source}`."""
        return self._receiver.receive(source, request)

    def health(self) -> tuple[int, dict[str, Any]]:
        """`GET /api/health`."""
        return health.check(self.database)

    def metrics(self, request: Request) -> Response:
        """`GET /api/metrics`; what it is made of is imported when it is first asked for."""
        from shared.webhooks import metrics

        return metrics.answer(request, self.settings, self.database)

    @cached_property
    def console(self) -> Console:
        """The console, an ASGI application below /api/ops; what it is made of is imported when it is first opened."""
        from shared.clients.guard import Guard
        from shared.ops.app import Console
        from shared.ops.figures import Overview
        from shared.ops.figures_kept import KeptFigures
        from shared.ops.visit import Services

        settings, database = self.settings, self.database
        guard = Guard(settings.outbound_allow_hosts)
        return Console(
            Services(
                settings,
                database,
                self._open_embedder,
                self._wake,
                Overview(database),
                KeptFigures(),
                guard,
                self.sender,
            )
        )

    def on_timer(self) -> int:
        """The one timer: periodic work, then all that is due. Returns how many jobs ran; never raises."""
        with self._lock:
            worker, housekeeping = self.worker, self._housekeeping
        self._teller.tell()
        with housekeeping.going_on():
            return worker.drain(self.settings.job_concurrency, self.settings.drain_seconds)

    def on_wake(self) -> int:
        """One wake message is one worker slot: due jobs one after another until none is left."""
        with self._lock:
            worker = self.worker
        return worker.drain(1, WAKE_SECONDS)

    def stop(self) -> None:
        """A planned stop, where the host can announce one: take no more jobs, finish or give back what runs."""
        if "worker" in self.__dict__:
            self.worker.stop()

    def close(self) -> None:
        """Let go of connections and threads."""
        self.wake.close()
        if "sender" in self.__dict__:
            self.sender.close()
        self.database.close()

    @cached_property
    def _receiver(self) -> Receiver:
        vault = Vault(self.settings.secrets_key) if self.settings.secrets_key else None
        return Receiver(self.database, vault, self._wake, _why_held, self._checkpoint)

    @cached_property
    def _teller(self) -> Teller:
        from shared.db.budget import Teller

        return Teller(self.database, self.settings.db_pool_max)

    def _wake(self, due_in: float) -> None:
        self.wake.wake(max(due_in - HEAD_START_SECONDS, 0.0))

    def _open_embedder(self) -> Embedder:
        return self._embedder or self._model

    @cached_property
    def _model(self) -> AzureOpenAI:
        from shared.clients.azure_openai import AzureOpenAI

        return AzureOpenAI(self.settings)

    @cached_property
    def _twilio(self) -> TwilioLine:
        from shared.clients.twilio import TwilioLine

        return TwilioLine(self.settings)

    @cached_property
    def worker(self) -> Worker:
        """The one worker of this process."""
        from shared.queue.replays_drive import drive
        from shared.queue.worker import Limits, Worker

        settings = self.settings
        limits = Limits(
            settings.job_concurrency,
            settings.job_lease_seconds,
            settings.job_max_seconds,
            settings.slow_job_threshold_ms,
        )
        carry_on_replays = partial(drive, self.database, self._wake)
        return Worker(
            self.database, self._types, self._wake, limits, self._checkpoint, carry_on_replays, HEAD_START_SECONDS
        )

    @cached_property
    def _housekeeping(self) -> Housekeeping:
        from shared.conversation.overdue import flag_overdue
        from shared.conversation.sweep import Sweep
        from shared.knowledge.ingest import embed_anew
        from shared.knowledge.people_record import refresh_records
        from shared.queue.housekeeping import MINUTE, Chore, Housekeeping, alert_unknown_types, on_connection
        from shared.queue.retention import Retention
        from shared.webhooks.endpoints import hasten_disabled
        from shared.webhooks.gauges import log_gauges
        from shared.webhooks.retention import EventRetention

        settings = self.settings
        sweep = Sweep(
            self._line or self._twilio,
            self._wake,
            settings.sweep_hours,
            settings.settle_seconds,
            settings.default_language,
        )
        model, types = settings.azure_openai_embedding_deployment, list(self._types)
        chores = [
            Chore("flag_overdue", MINUTE, on_connection(flag_overdue)),
            Chore("unknown_types", MINUTE, on_connection(partial(alert_unknown_types, known=types))),
            Chore("embed_anew", MINUTE, on_connection(partial(embed_anew, embedding_model=model))),
            Chore("refresh_records", MINUTE, on_connection(partial(refresh_records, embedding_model=model))),
            Chore("forget_finished", MINUTE, Retention(settings.job_retention_days).forget_finished),
            Chore("forget_events", MINUTE, EventRetention(settings.job_retention_days).forget),
            Chore("hasten_disabled", MINUTE, on_connection(hasten_disabled)),
            Chore("gauges", MINUTE, on_connection(log_gauges)),
            Chore("sweep", settings.sweep_minutes * MINUTE, sweep.take_in),
        ]
        return Housekeeping(self.database, chores)

    @cached_property
    def sender(self) -> Sender:
        """Who sends to endpoints: deliveries, and the pings of a person."""
        from shared.clients.guard import Guard
        from shared.webhooks.sending import Sender

        return Sender(Guard(self.settings.outbound_allow_hosts))

    @cached_property
    def _courier(self) -> Courier:
        from shared.webhooks.deliver import Courier

        vault = Vault(self.settings.secrets_key) if self.settings.secrets_key else None
        return Courier(self.database, self.sender, vault, self.settings.public_base_url, self._checkpoint)

    @cached_property
    def _types(self) -> dict[str, JobType]:
        from shared.jobs import table
        from shared.jobs.services import Services

        model, twilio = self._model, self._twilio
        services = Services(
            self.database,
            self._chat or model,
            self._embedder or model,
            self._line or twilio,
            self.settings,
            self._courier,
            self._checkpoint,
        )
        if services.chat is model and services.line is twilio:
            # Their libraries take most of a second to load: while the first message settles, not while it is answered.
            threading.Thread(target=_prepare, args=(model, twilio), name="client-warm-up", daemon=True).start()
        return table(services)


def _prepare(model: AzureOpenAI, line: TwilioLine) -> None:
    try:
        model.prepare()
        line.prepare()
    except Exception as failed:  # noqa: BLE001 - whoever needs it meets the same failure, and can say what it stopped
        telemetry.warning("warm_up_failed", error_class=type(failed).__name__)


def _why_held(text: str, sources: Sequence[str]) -> str | None:
    """The check of generated texts; what it is made of is imported when the first comes in."""
    from shared.knowledge.supported import unsupported

    return unsupported(text, sources)


def from_environment() -> App:
    """The application of this process. Raises SettingsError with everything that is missing or wrong."""
    return App(load(os.environ))


def open_database(settings: Settings) -> Database:
    """The application's pool, for a process that needs nothing else. Raises SettingsError."""
    return Database(settings.database_url, settings.db_pool_max, token=_token(settings))


def _token(settings: Settings) -> Callable[[], str] | None:
    """Signing in to Postgres by the app's own identity: a token for each new connection, cached by the library."""
    if settings.database_auth != "entra":
        return None
    from shared.clients.identity import token_provider

    return token_provider(POSTGRES_SCOPE)
