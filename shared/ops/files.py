"""The console's own static files: few, read once, found by name in a table and never by a path."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """`version` changes with the content, so that a browser may keep what it has for good."""

    content: bytes
    kind: str
    version: str


@cache
def static_files() -> dict[str, StaticFile]:
    """All of them, by name."""
    found = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in KINDS:
            content = path.read_bytes()
            found[path.name] = StaticFile(content, KINDS[path.suffix], hashlib.sha256(content).hexdigest()[:12])
    return found
