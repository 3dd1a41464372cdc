"""A process of its own that runs the application's jobs, with its real clients, until it ends itself where it is told to."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

import psycopg

import shared.jobs as _jobs  # noqa: F401  # loaded before the processes are forked
from shared.app import App
from shared.boundary import Boundary
from shared.clients.azure_openai import AzureOpenAI
from shared.clients.twilio import TwilioLine
from shared.settings import load
from tests.fakes.world import ENVIRONMENT

STEP_SECONDS = 45  # by which time is moved between two looks

LET_TIME_PASS = """
    UPDATE messages SET send_started_at = send_started_at - %(age)s * interval '1 second',
        last_lookup_at = last_lookup_at - %(age)s * interval '1 second'
    WHERE from_self AND send_started_at IS NOT NULL AND provider_sid IS NULL
"""
# What every process would load for itself, once: this module is preloaded by the one that they are forked from.
AzureOpenAI(load(ENVIRONMENT)).prepare()
TwilioLine(load(ENVIRONMENT)).prepare()

ALL_DUE = "UPDATE ai_jobs SET next_run_at = now() WHERE status = 'pending'"
LEFT = "SELECT count(*) FROM ai_jobs WHERE status IN ('pending', 'processing')"


@dataclass
class Ends:
    """A checkpoint that sends this process a signal when it passes `at` for the n-th time."""

    at: Boundary
    with_signal: signal.Signals
    times: int = 1
    passed: int = field(default=0, init=False)

    def __call__(self, boundary: Boundary) -> None:
        if boundary is self.at:
            self.passed += 1
            if self.passed == self.times:
                os.kill(os.getpid(), self.with_signal)


def run_until(environment: dict[str, str], at: str, with_signal: signal.Signals, times: int = 1) -> None:
    """Run all jobs to their end, or until the signal; time is moved by SQL, so that no look has to be waited for."""
    app = App(load(environment), checkpoint=Ends(Boundary(at), with_signal, times))
    run_all(app, environment["DATABASE_URL"])
    app.close()


def run_all(app: App, url: str) -> None:
    """Run the jobs, and let time pass between their steps, until none is left."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(12):
            while app.worker.poll_once(1):
                pass
            row = connection.execute(LEFT).fetchone()
            if row is not None and row[0] == 0:
                return
            connection.execute(LET_TIME_PASS, {"age": STEP_SECONDS})
            connection.execute(ALL_DUE)
    raise AssertionError("the jobs do not come to an end")
