"""A webhook's request and its answer, whatever host they came through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Request:
    """What arrived; `url` with the path and the query as they were sent, header names in lower case."""

    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered; `headers` beside the content's type."""

    status: int
    body: str = ""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
