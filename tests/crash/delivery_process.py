"""A process of its own that delivers with the real application until it ends itself where it is told to."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

import psycopg

import shared.jobs as _jobs  # noqa: F401  # loaded before the processes are forked
from shared.app import App
from shared.boundary import Boundary
from shared.clients.guard import Guard
from shared.settings import load
from shared.webhooks.sending import Sender

Sender(Guard()).prepare()  # what each process would load for itself

ALL_DUE = "UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'"
LEFT = "SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing')"


@dataclass
class Ends:
    """A checkpoint that kills this process when it passes `at` for the first time."""

    at: Boundary
    passed: list[Boundary] = field(default_factory=list)

    def __call__(self, boundary: Boundary) -> None:
        self.passed.append(boundary)
        if boundary is self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def deliver_until(environment: dict[str, str], at: str, slots: int) -> None:
    """Deliver all that there is, or until this process is killed."""
    app = App(load(environment), checkpoint=Ends(Boundary(at)))
    deliver_all(app, environment["DATABASE_URL"], slots)
    app.close()


def deliver_all(app: App, url: str, slots: int) -> None:
    """Until no job is left, without waiting for any."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(40):
            while app.worker.poll_once(slots):
                pass
            row = connection.execute(LEFT).fetchone()
            if row is not None and row[0] == 0:
                return
            connection.execute(ALL_DUE)
    raise AssertionError("the deliveries do not come to an end")
