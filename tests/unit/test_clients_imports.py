"""What the webhook's path may import: nothing that takes a noticeable time to load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIGHT = ("signature", "clients.deadline", "clients.identity", "clients.wake", "clients.twilio", "clients.azure_openai")
HEAVY = {"openai", "azure", "twilio", "httpx2", "httpcore2", "httpx", "requests", "urllib3", "numpy", "pydantic"}


def loaded_by(*modules: str) -> set[str]:
    """The top-level names of all that importing these modules of ours loads, in a fresh interpreter."""
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_the_clients_load_their_libraries_where_first_used() -> None:
    loaded = loaded_by(*(f"shared.{name}" for name in LIGHT))
    assert not loaded & HEAVY
    assert "ssl" not in loaded


def test_the_transport_loads_no_sdk() -> None:
    loaded = loaded_by("shared.clients.http")
    assert "httpx2" in loaded
    assert not loaded & {"openai", "azure", "twilio", "requests", "numpy", "pydantic"}
