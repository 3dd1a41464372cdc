"""The audit log: who did what to which, the newest first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from shared import audit
from shared.audit import Entry
from shared.ops.audit_query import TYPES, Target, names_of, target_of
from shared.ops.render import url
from shared.ops.routes import Route, page
from shared.ops.visit import Visit

PAGE_SIZE = 50
# Details that say something to a reader, in the order in which they are told; the others are ids, and folded.
TOLD: Final = ("title", "name", "collection", "source", "rows", "dry_run", "outcome", "type", "became", "reason", "edited",
               "covers", "settled",
               "weight", "max_running", "total", "rate", "restarted", "joined", "left_out", "left_paused",
               "not_deliveries", "skipped", "to", "url", "events", "concurrency", "timeout_seconds", "schedule",
               "signature_header", "headers", "overlap_hours", "result", "http_status", "scheme", "id_from", "tolerance_seconds",
               "size_limit", "normaliser", "paths")  # fmt: skip
NAMING: Final = ("title", "source", "endpoint")  # what names a thing that is gone
PLACES: Final = {
    "conversation": "/conversations/",
    "document": "/documents/",
    "person": "/people/",
    "import": "/people/imports/",
    "job": "/jobs/",
    "replay": "/jobs/replays/",
    "job_type": "/jobs/queue/",
    "event": "/webhooks/events/",
    "delivery": "/webhooks/deliveries/",
    "endpoint": "/webhooks/endpoints/",
    "source": "/webhooks/sources/",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the log for a page: `name` of what it is about, and `address` of its page as long as that is there."""

    entry: Entry
    name: str | None
    address: str | None
    is_gone: bool
    told: list[tuple[str, Any]]
    filter: list[tuple[str, Any]]
    jobs: int
    raw: str


def log(visit: Visit) -> Response:
    """The lines that the address asks for."""
    who, target = visit.query.text("who"), visit.query.text("target")
    before, steps = visit.query.number("before"), visit.query.text("steps")
    with visit.database.connection() as connection:
        entries = audit.list_entries(
            connection, limit=PAGE_SIZE + 1, before_id=before, who=who, target=target, steps=steps is not None
        )
        shown = entries[:PAGE_SIZE]
        names = names_of(connection, [of for entry in shown if (of := target_of(entry))])
    lines = [_line(entry, names) for entry in shown]
    filters = {"who": who, "target": target, "steps": steps}
    return visit.page(
        "audit/list.html",
        lines=lines,
        who=who,
        target=target,
        steps=steps,
        other_steps=url("/audit", who=who, target=target, steps=None if steps else "1"),
        kinds=(*TYPES, "job_type"),
        about=next((line.name for line in lines if target and line.entry.target_id == target), None),
        older=url("/audit", **filters, before=shown[-1].id) if len(entries) > PAGE_SIZE else None,
        newest=url("/audit", **filters) if before else None,
    )


def _line(entry: Entry, names: dict[Target, str]) -> Line:
    target, details = target_of(entry), entry.details
    of: tuple[str, object] | None = target
    found = names.get(target) if target else None
    if entry.target_type == "job_type":  # named by what it is; its page tells whether it is still there
        of, found = ("job_type", quote(entry.target_id or "", safe="")), entry.target_id
    name = found or next((details[key] for key in NAMING if isinstance(details.get(key), str)), None)
    jobs, chosen_by = details.get("jobs"), details.get("filter")
    told = [(key, details[key]) for key in TOLD if _says_something(key, details.get(key))]
    return Line(
        entry=entry,
        name=name,
        address=url(f"{PLACES[of[0]]}{of[1]}") if of and found else None,
        is_gone=of is not None and found is None,
        told=[(key, value) for key, value in told if value != name and not (key == "type" and found)],
        filter=[(key, value) for key, value in chosen_by.items() if value] if isinstance(chosen_by, dict) else [],
        jobs=len(jobs) if isinstance(jobs, list) else 0,
        raw=json.dumps(details, indent=2, ensure_ascii=False) if details else "",
    )


def _says_something(key: str, value: object) -> bool:
    """Whether a detail is worth a line: what is usual is not."""
    return value not in (None, "", {}, [], False, 0) and (key, value) not in (
        ("outcome", "added"),
        ("became", "restarted"),
    )


ROUTES: tuple[Route, ...] = (page("/audit", log),)
