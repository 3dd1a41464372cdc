"""A web site at PUBLIC_BASE_URL that is not quite the application: each path answers what a test sets."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass
class Site:
    """A context manager. `health` and `version_there` are what it says of itself; statuses are by path and, of the status
    callback, by whether its signature is the first one seen (the genuine one) or not."""

    health: dict[str, Any]
    health_status: int = 200
    signed: int = 204
    forged: int = 403
    console: int = 403
    location: str = ""
    clock_offset: float = 0.0
    text: str | None = None  # answered to every GET in place of all this
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def __enter__(self) -> Self:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                if site.text is not None:
                    self._answer(200, site.text)
                elif self.path == "/api/health":
                    self._answer(site.health_status, json.dumps(site.health))
                else:
                    self._answer(site.console, "")

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                site.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                posts = sum(path.startswith("/api/twilio/") for path, _ in site.seen)
                self._answer(site.signed if posts % 2 else site.forged, "")

            def _answer(self, status: int, body: str) -> None:
                self.send_response_only(status)
                self.send_header("Date", formatdate(time.time() + site.clock_offset, usegmt=True))
                self.send_header("Content-Length", str(len(body)))
                if site.location:
                    self.send_header("Location", site.location)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
