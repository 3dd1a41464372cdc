"""What the jobs work with: given by the composition root, so that a test can pass others."""

from __future__ import annotations

from dataclasses import dataclass

from shared.boundary import Checkpoint, pass_by
from shared.clients.azure_openai import ChatModel, Embedder
from shared.clients.twilio import Line
from shared.db.pool import Database
from shared.settings import Settings
from shared.webhooks.deliver import Courier


@dataclass(frozen=True, slots=True)
class Services:
    """The database, the model, the line to WhatsApp, the settings, who delivers events, and the points at which a test may end
    the process.
    """

    database: Database
    chat: ChatModel
    embedder: Embedder
    line: Line
    settings: Settings
    courier: Courier
    checkpoint: Checkpoint = pass_by
