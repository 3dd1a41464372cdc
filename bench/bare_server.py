"""The baseline of `start`: uvicorn and Starlette with one route, and nothing else. `python -m bench.bare_server PORT`"""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def health(request: Request) -> Response:
    """Always well."""
    del request
    return JSONResponse({"status": "ok"})


if __name__ == "__main__":
    app = Starlette(routes=[Route("/api/health", health)])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), http="h11", loop="asyncio", log_level="critical")
