"""Sources: who may send us events. The list, and adding, changing, rotating, disabling and enabling one."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from shared.errors import UserError
from shared.ops import refusal
from shared.ops.endpoints import OVERLAPS
from shared.ops.render import url
from shared.ops.routes import Route, action, form, page
from shared.ops.source_form import FIELD_OF, Typed
from shared.ops.visit import Visit
from shared.secrets import open_vault
from shared.webhooks import sources
from shared.webhooks.sources import FIELDS, NORMALISERS, SCHEMES, Source


def listed(visit: Visit) -> Response:
    """All of them."""
    with visit.database.connection() as connection:
        rows = sources.list_sources(connection)
    base = visit.settings.public_base_url
    return visit.page("webhooks/sources.html", rows=[(row, _address(base, row.name)) for row in rows])


def new(visit: Visit) -> Response:
    """The form to add one."""
    return _form(visit, Typed())


def add(visit: Visit) -> Response:
    """Add one, and show its secret, once."""
    typed = Typed.read(visit.form)
    given = visit.form.text("secret", 2000)
    try:
        vault = open_vault(visit.settings.secrets_key)
        with visit.database.connection() as connection:
            made = sources.add(connection, typed.new(), vault=vault, who=visit.who, secret=given)
    except UserError as wrong:
        return _form(visit, typed, wrong)
    return _secret(visit, made.id, made.name, made.secret)


def one(visit: Visit) -> Response:
    """One source."""
    return _page(visit)


def change(visit: Visit) -> Response:
    """Set what was filled in; a form that cannot be comes back with it."""
    found, typed = _find(visit), Typed.read(visit.form)
    if found is None:
        return visit.missing()
    try:
        with visit.database.connection() as connection:
            sources.change(
                connection, found.name, typed.settings(), seen=visit.form.text("seen") or "", who=visit.who
            )  # fmt: skip
    except UserError as wrong:
        is_changed = wrong.name == "source_changed"  # then what the form shows is what there is now
        return _page(visit, wrong, None if is_changed else typed)
    return visit.back(f"/webhooks/sources/{found.id}", notice="source_changed")


def rotate(visit: Visit) -> Response:
    """Give it a new secret, and show that, once."""
    overlap = OVERLAPS[visit.form.choice("overlap", OVERLAPS) or "24"]
    given = visit.form.text("secret", 2000)
    try:
        vault = open_vault(visit.settings.secrets_key)
        with visit.database.connection() as connection:
            found = _find(visit)
            if found is None:
                return visit.missing()
            made = sources.rotate(
                connection, found.name, vault=vault, who=visit.who, overlap_hours=overlap, secret=given
            )
    except UserError as wrong:
        return _page(visit, wrong)
    return _secret(visit, made.id, made.name, made.secret, overlap * 3600)


def disable(visit: Visit) -> Response:
    """Take nothing more from it."""
    found = _find(visit)
    if found is None:
        return visit.missing()
    try:
        with visit.database.connection() as connection:
            sources.disable(connection, found.name, who=visit.who, reason=visit.form.raw("reason"))
    except UserError as wrong:
        return _page(visit, wrong)
    return visit.back(f"/webhooks/sources/{found.id}", notice="source_disabled")


def enable(visit: Visit) -> Response:
    """Take events from it again."""
    found = _find(visit)
    if found is None:
        return visit.missing()
    try:
        with visit.database.connection() as connection:
            sources.enable(connection, found.name, who=visit.who)
    except UserError as wrong:
        return _page(visit, wrong)
    return visit.back(f"/webhooks/sources/{found.id}", notice="source_enabled")


def _find(visit: Visit) -> Source | None:
    with visit.database.connection() as connection:
        return next((row for row in sources.list_sources(connection) if row.id == visit.id()), None)


def _page(visit: Visit, problem: UserError | None = None, typed: Typed | None = None) -> Response:
    found = _find(visit)
    if found is None:
        return visit.missing()
    return refusal.page_with(
        visit,
        problem,
        "webhooks/source.html",
        url(f"/webhooks/sources/{found.id}"),
        field_of=FIELD_OF,
        it=found,
        address=_address(visit.settings.public_base_url, found.name),
        typed=typed or Typed.of(found.settings),
        seen=visit.form.text("seen") if typed else found.version,  # what comes back was typed over what was seen then
        normalisers=NORMALISERS,
        fields=FIELDS,
        overlaps=list(OVERLAPS.items()),
        is_new=False,
    )


def _form(visit: Visit, typed: Typed, problem: UserError | None = None) -> Response:
    return refusal.page_with(
        visit,
        problem,
        "webhooks/source_new.html",
        url("/webhooks/sources/new"),
        field_of=FIELD_OF,
        typed=typed,
        schemes=SCHEMES,
        normalisers=NORMALISERS,
        fields=FIELDS,
        is_new=True,
        it=None,
    )


def _secret(visit: Visit, source_id: Any, name: str, secret: str, overlap: float | None = None) -> Response:
    return visit.page(
        "webhooks/secret.html", of="source", name=name, secret=secret, place=f"/webhooks/sources/{source_id}",
        address=_address(visit.settings.public_base_url, name), overlap=overlap,
    )  # fmt: skip


def _address(base: str | None, name: str) -> str:
    """Where its events are posted to."""
    return f"{base or ''}/api/events/{name}"


ROUTES: tuple[Route, ...] = (
    page("/webhooks/sources", listed),
    form("/webhooks/sources/new", new),
    action("/webhooks/sources/new", add),
    page("/webhooks/sources/{id:uuid}", one),
    action("/webhooks/sources/{id:uuid}/change", change),
    action("/webhooks/sources/{id:uuid}/rotate", rotate),
    action("/webhooks/sources/{id:uuid}/disable", disable),
    action("/webhooks/sources/{id:uuid}/enable", enable),
)
