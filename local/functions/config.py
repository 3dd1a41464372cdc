"""What the host reads before the app: local.settings.json, host.json, and %SETTING% in bindings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.functions.errors import USAGE, CannotStart

MESSAGES_AT_ONCE_AT_MOST = 32  # what the storage service gives in one answer


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """`extensions.queues` of host.json; times are in seconds."""

    batch_size: int = 16
    new_batch_threshold: int = 8
    max_dequeue_count: int = 5
    visibility_timeout: float = 0.0
    max_polling_interval: float = 60.0
    base64: bool = True


@dataclass(frozen=True, slots=True)
class HostConfig:
    """What this host honours of host.json."""

    route_prefix: str = "api"
    queues: QueueOptions = field(default_factory=QueueOptions)


def read_host_json(app_dir: Path) -> HostConfig:
    """The app's host.json, with the cloud's defaults. Raises CannotStart when it is broken."""
    path = app_dir / "host.json"
    extensions = _object(_read_json(path).get("extensions", {}), path, "extensions")
    http = _object(extensions.get("http", {}), path, "extensions.http")
    queues = _object(extensions.get("queues", {}), path, "extensions.queues")
    try:
        return HostConfig(str(http.get("routePrefix", "api")).strip("/"), _queue_options(queues))
    except (ValueError, TypeError) as wrong:
        raise CannotStart(f"{path}: {wrong}", USAGE) from wrong


def fill_from_local_settings(app_dir: Path, environment: MutableMapping[str, str]) -> None:
    """Put `Values` of local.settings.json into the environment; what is set already wins."""
    path = app_dir / "local.settings.json"
    settings = _read_json(path)
    if settings.get("IsEncrypted"):
        raise CannotStart(f"{path} is encrypted; decrypt it with `func settings decrypt`", USAGE)
    for name, value in _object(settings.get("Values", {}), path, "Values").items():
        environment.setdefault(name, value if isinstance(value, str) else json.dumps(value))


def resolve(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Replace each %NAME% by the app setting NAME. Raises ValueError when one is not set."""

    def setting(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise ValueError(f"the app setting {match[1]} is not set, and %{match[1]}% needs it")
        return environment[match[1]]

    return re.sub(r"%([^%\s]+)%", setting, text)


def timespan_seconds(text: str) -> float:
    """Seconds of a .NET time span, [days.]hh:mm:ss[.fraction]. Raises ValueError."""
    match = re.fullmatch(r"(?:(\d+)\.)?(\d+):(\d+):(\d+(?:\.\d+)?)", text)
    if not match:
        raise ValueError(f"{text!r} is not a time span such as 00:00:30")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _queue_options(given: dict[str, Any]) -> QueueOptions:
    batch = _whole(given, "batchSize", 16, 1, MESSAGES_AT_ONCE_AT_MOST)
    encoding = str(given.get("messageEncoding", "base64")).lower()
    if encoding not in ("base64", "none"):
        raise ValueError(f"messageEncoding is {encoding!r}; it must be base64 or none")
    return QueueOptions(
        batch_size=batch,
        new_batch_threshold=_whole(given, "newBatchThreshold", batch // 2, 0, 1000),
        max_dequeue_count=_whole(given, "maxDequeueCount", 5, 1, 1000),
        visibility_timeout=timespan_seconds(given.get("visibilityTimeout", "00:00:00")),
        max_polling_interval=max(timespan_seconds(given.get("maxPollingInterval", "00:01:00")), 0.1),
        base64=encoding == "base64",
    )


def _whole(given: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = given.get(name, default)
    if not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from {low} to {high}")
    return value


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return _object(json.loads(path.read_text("utf-8-sig")), path, "it")
    except ValueError as wrong:
        raise CannotStart(f"{path} is not valid JSON: {wrong}", USAGE) from wrong


def _object(value: Any, path: Path, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CannotStart(f"{path}: {what} must be an object", USAGE)
    return value
