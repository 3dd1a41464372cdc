"""The least that can stand for Azure's worker: it loads `function_app`, and serves its HTTP triggers. Standard library alone.

    python -I -S bare_host.py SITE PACKAGE

SITE holds the packages of requirements.txt and nothing else, PACKAGE what is deployed. Prints `ready PORT`. Besides the app:
GET /modules imports every module of shared/, and every one that they import at any time, and tells which modules came from
elsewhere than those two and Python itself.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import os
import pkgutil
import re
import sys
import sysconfig
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit


def main(site: str, package: str) -> None:
    """Load the app as the worker does, its folder the last on the path, and serve it until killed."""
    sys.path += [site, package]
    os.chdir(package)
    functions = importlib.import_module("azure.functions")
    app = importlib.import_module("function_app").app
    routes: list[tuple[str, re.Pattern[str], Callable[..., Any]]] = []
    for function in app.get_functions():
        trigger = function.get_trigger().get_dict_repr()
        if str(trigger["type"]).lower() == "httptrigger":
            pattern = re.compile("/api/" + re.sub(r"\{\*\w+\}", ".*", trigger["route"]))
            routes += [(str(method), pattern, function.get_user_function()) for method in trigger["methods"]]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/modules":
                return self._send(200, "application/json", json.dumps(foreign(site, package)).encode())
            return self._serve()

        def do_POST(self) -> None:
            self._serve()

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = urlsplit(self.path)
            call = next(
                call for method, pattern, call in routes
                if method.split(".")[-1] == self.command and pattern.fullmatch(parts.path)
            )  # fmt: skip
            request = functions.HttpRequest(
                method=self.command, url=f"https://antwoord.example.org{self.path}", params=dict(parse_qsl(parts.query)),
                headers={name.lower(): value for name, value in self.headers.items()}, body=body,
            )  # fmt: skip
            answer = asyncio.run(call(request, None)) if inspect.iscoroutinefunction(call) else call(request)
            self._send(answer.status_code, answer.mimetype or "", answer.get_body())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"ready {server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


def foreign(site: str, package: str) -> dict[str, Any]:
    """How many modules shared/ has, and those that were not found in the package, the site or Python's own library."""
    shared = importlib.import_module("shared")
    names = [module.name for module in pkgutil.walk_packages(shared.__path__, "shared.")]
    for name in [*names, *sorted(imported_anywhere(os.path.join(package, "shared")))]:
        importlib.import_module(name)
    library = sysconfig.get_paths()["stdlib"]
    homes = tuple(os.path.join(home, "") for home in (site, package, library))
    files = {
        name: getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if name != "__main__"
    }
    elsewhere = {name: file for name, file in files.items() if file and not file.startswith(homes)}
    inside = [file for name, file in files.items() if name.split(".")[0] in ("shared", "function_app")]
    return {"modules": len(names), "elsewhere": elsewhere, "ours": sorted({str(file) for file in inside})}


def imported_anywhere(folder: str) -> set[str]:
    """Every module that a file names in an import, also in one that runs only when it is needed."""
    found: set[str] = set()
    for path in Path(folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
