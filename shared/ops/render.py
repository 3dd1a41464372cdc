"""Pages from templates: everything is escaped, and a name that a template misspells is an error."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from shared.conversation.codes import meaning
from shared.ops.files import static_files
from shared.ops.routes import PREFIX
from shared.ops.text import CLIP, clip, plain, said

FOLDER = Path(__file__).parent / "templates"


@cache
def environment() -> Environment:
    """The templates with the helpers that all of them have."""
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {"url": url, "static": static, "live": live, "long": long, "meaning": meaning}
    made.filters |= {"said": said, "clip": clip, "plain": plain}
    return made


def render(template: str, context: dict[str, Any]) -> str:
    """A template's text."""
    return environment().get_template(template).render(context)


def url(path: str = "", /, **query: object) -> str:
    """The address of a page: `url('/jobs', state='failed')`. What is None or empty is left out."""
    pairs = [(name, value) for name, value in query.items() if value is not None and value != ""]
    return f"{PREFIX}{path}" + (f"?{urlencode(pairs)}" if pairs else "")


def static(name: str) -> str:
    """The address of one of our own files."""
    return f"{PREFIX}/static/{name}?v={static_files()[name].version}"


@pass_context
def long(context: Context, text: object, limit: int = CLIP) -> Markup:
    """A text of any length: its beginning, and the whole of it on demand."""
    whole = "" if text is None else str(text)
    if len(whole) <= limit:
        return Markup('<div class="said" dir="auto">{}</div>').format(whole)
    more = context["t"]("text.show_all", n=context["t"].number(len(whole)))
    return Markup(
        '<details class="long"><summary><span class="said" dir="auto">{}</span> <span class="more">{}</span></summary>'
        '<div class="said" dir="auto">{}</div></details>'
    ).format(clip(whole, limit), more, whole)


@pass_context
def live(context: Context, name: str, template: str, address: str) -> Markup:
    """A part of a page that refreshes itself: `template`, now and whenever `address` gives something else."""
    return framed(name, render(template, {**context.get_all()}), address)


def framed(name: str, inner: str, address: str) -> Markup:
    """The frame around a live part: it knows the digest of what it shows, and asks only for something else."""
    return Markup(
        '<div id="live-{}" class="live" hx-get="{}" hx-trigger="tick from:body" hx-swap="outerMorph" hx-sync="this:drop"'
        ' hx-headers=\'{{"X-Seen":"{}"}}\'>{}</div>'
    ).format(name, address, digest(inner), Markup(inner))  # noqa: S704 - a template of ours has escaped it


def digest(text: str) -> str:
    """A short name of a text's content."""
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def utc_now() -> datetime:
    """This moment, for showing how long ago things were."""
    return datetime.now(UTC)
