"""A short chaos run: hosts killed, the database restarted, faults everywhere; every message is answered once, or visibly is not.

The long form is `./antwoord bench chaos`; a seed that found something is added here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.chaos import Chaos, run
from local.postgres import EmbeddedPostgres


@pytest.fixture
def own() -> Iterator[EmbeddedPostgres]:
    """A cluster of this file's own, to be restarted."""
    cluster = EmbeddedPostgres(Path(tempfile.mkdtemp(prefix="antwoord-chaos-")) / "pg", disposable=True)
    yield cluster
    cluster.close()


@pytest.mark.timeout(300)
def test_every_message_is_answered_once_or_visibly_is_not(own: EmbeddedPostgres, tmp_path: Path) -> None:
    chaos = Chaos(
        300, 20, seed=1, seconds=12, hurry=True, settles=True, kill_every=(1.5, 3.0), restart_every=8,
    )  # fmt: skip
    outcome = run(chaos, own, tmp_path, lambda _: None)
    assert outcome.violations == []
    counts = outcome.counts
    assert counts["said"] == 300
    assert counts["answered"] > 200
    for what in ("hosts killed", "database restarts", "webhooks lost", "webhooks doubled", "identical answers"):
        assert counts[what], what
    assert counts["evidence: callback"] + counts["evidence: list"], "no send was in doubt"
    assert any(name.startswith("fault at list") for name in counts), "nothing was looked up"
