"""Sources: who may send us events. The list, adding one, a new secret, and disabling and enabling it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from shared.errors import UserError
from shared.ops import refusal
from shared.ops.endpoints import OVERLAPS
from shared.ops.fields import Fields
from shared.ops.render import url
from shared.ops.routes import Route, action, form, page
from shared.ops.visit import Visit
from shared.secrets import open_vault
from shared.webhooks import sources
from shared.webhooks.sources import FIELDS, NORMALISERS, SCHEMES, NewSource, Normaliser, Scheme, Source

FIELD_OF = {
    "source_name": "name", "source_exists": "name", "source_id_from": "id_from", "source_signature_header": "signature_header",
    "source_secret_empty": "secret", "source_secret_unusable": "secret", "source_secret_not_base64": "secret",
    "source_paths": "paths", "source_path_line": "paths",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Typed:
    """What stands in the form's fields; a secret never comes back."""

    name: str = ""
    scheme: Scheme = "standard"
    id_from: str = "header"
    signature_header: str = ""
    normaliser: Normaliser | None = None
    paths: str = ""

    @classmethod
    def read(cls, form: Fields) -> Typed:
        """As it was sent."""
        return cls(
            form.text("name", 100) or "", form.choice("scheme", SCHEMES) or "standard", form.text("id_from", 400) or "header",
            form.text("signature_header", 200) or "", form.choice("normaliser", NORMALISERS),
            form.text("paths", 4000) or "",
        )  # fmt: skip

    def wanted(self) -> NewSource:
        """What it means. Raises UserError for a line of the places that is none."""
        return NewSource(
            name=self.name,
            scheme=self.scheme,
            id_from=self.id_from,
            signature_header=self.signature_header or None,
            normaliser=self.normaliser,
            paths=_paths(self.paths),
        )


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
            made = sources.add(connection, typed.wanted(), vault=vault, who=visit.who, secret=given)
    except UserError as wrong:
        return _form(visit, typed, wrong)
    return _secret(visit, made.id, made.name, made.secret)


def one(visit: Visit) -> Response:
    """One source."""
    return _page(visit)


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


def _page(visit: Visit, problem: UserError | None = None) -> Response:
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
        overlaps=list(OVERLAPS.items()),
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
    )


def _secret(visit: Visit, source_id: Any, name: str, secret: str, overlap: float | None = None) -> Response:
    return visit.page(
        "webhooks/secret.html", of="source", name=name, secret=secret, place=f"/webhooks/sources/{source_id}",
        address=_address(visit.settings.public_base_url, name), overlap=overlap,
    )  # fmt: skip


def _address(base: str | None, name: str) -> str:
    """Where its events are posted to."""
    return f"{base or ''}/api/events/{name}"


def _paths(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, place = line.partition("=")
        if line.strip() and not equals:
            raise UserError("Each line is the name of a field, =, and its place.", name="source_path_line")
        if line.strip():
            found[name.strip()] = place.strip()
    return found


ROUTES: tuple[Route, ...] = (
    page("/webhooks/sources", listed),
    form("/webhooks/sources/new", new),
    action("/webhooks/sources/new", add),
    page("/webhooks/sources/{id:uuid}", one),
    action("/webhooks/sources/{id:uuid}/rotate", rotate),
    action("/webhooks/sources/{id:uuid}/disable", disable),
    action("/webhooks/sources/{id:uuid}/enable", enable),
)
