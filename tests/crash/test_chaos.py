"""A short chaos run: hosts killed, the database restarted, faults everywhere; every message is answered once, or visibly is not.

The long form is `./antwoord bench chaos`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.chaos import Chaos, run
from local.postgres import EmbeddedPostgres

SHORT = Chaos(
    messages=300, conversations=30, seed=8, seconds=14.0, hurry=True, settles=True, kill_every=(1.5, 3.0),
    restart_every=8.0, harshness=3.0,
)  # fmt: skip


@pytest.fixture
def own() -> Iterator[EmbeddedPostgres]:
    """A cluster of this file's own, to be restarted."""
    folder = Path(tempfile.mkdtemp(prefix="antwoord-chaos-"))
    cluster = EmbeddedPostgres(folder / "pg", disposable=True)
    yield cluster
    cluster.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.timeout(300)
def test_every_message_is_answered_once_or_visibly_is_not(own: EmbeddedPostgres, tmp_path: Path) -> None:
    outcome = run(SHORT, own, tmp_path, lambda _: None)
    assert outcome.violations == []
    counts = outcome.counts
    assert counts["said"] == SHORT.messages
    assert counts["answered"] > SHORT.messages / 2
    for what in ("hosts killed", "database restarts", "webhooks lost", "webhooks doubled", "identical answers"):
        assert counts[what], what
    for what in ("ambiguous", "lookup_empty", "callback"):
        assert counts[f"event: {what}"], what
