"""The form of a source's settings: what was typed, as text, so that a form that is refused shows it again."""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import UserError
from shared.ops.endpoint_form import whole
from shared.ops.fields import Fields
from shared.webhooks.sources import (
    ID_FROM,
    NORMALISERS,
    SCHEMES,
    SIZE_LIMIT,
    TOLERANCE_SECONDS,
    NewSource,
    Normaliser,
    Scheme,
    SourceSettings,
)

# Which field of the form an error is about.
FIELD_OF = {
    "source_name": "name", "source_name_ours": "name", "source_exists": "name", "source_id_from": "id_from",
    "source_signature_header": "signature_header", "source_tolerance": "tolerance", "source_size_limit": "size_limit",
    "source_secret_empty": "secret", "source_secret_unusable": "secret", "source_secret_not_base64": "secret",
    "source_paths": "paths", "source_path_line": "paths",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Typed:
    """What stands in the form's fields; a secret never comes back."""

    name: str = ""
    scheme: Scheme = "standard"
    id_from: str = ID_FROM
    signature_header: str = ""
    tolerance: str = str(TOLERANCE_SECONDS)
    size_limit: str = str(SIZE_LIMIT)
    normaliser: Normaliser | None = None
    paths: str = ""

    @classmethod
    def read(cls, form: Fields) -> Typed:
        """As it was sent; what is empty is what is usual."""
        return cls(
            form.text("name", 100) or "", form.choice("scheme", SCHEMES) or "standard", form.text("id_from", 400) or ID_FROM,
            form.text("signature_header", 200) or "", form.text("tolerance", 40) or str(TOLERANCE_SECONDS),
            form.text("size_limit", 40) or str(SIZE_LIMIT), form.choice("normaliser", NORMALISERS),
            form.text("paths", 4000) or "",
        )  # fmt: skip

    @classmethod
    def of(cls, settings: SourceSettings) -> Typed:
        """As the settings are now."""
        return cls(
            id_from=settings.id_from,
            signature_header=settings.signature_header or "",
            tolerance=str(settings.tolerance_seconds),
            size_limit=str(settings.size_limit),
            normaliser=settings.normaliser,
            paths="\n".join(f"{named}={settings.paths[named]}" for named in sorted(settings.paths)),
        )

    def settings(self) -> SourceSettings:
        """What it means. Raises UserError for what is no number, and for a line of the places that is none."""
        return SourceSettings(
            id_from=self.id_from,
            signature_header=self.signature_header or None,
            tolerance_seconds=whole(self.tolerance, "source_tolerance"),
            size_limit=whole(self.size_limit, "source_size_limit"),
            normaliser=self.normaliser,
            paths=_paths(self.paths),
        )

    def new(self) -> NewSource:
        """The source that it asks for. Raises UserError like `settings`."""
        wanted = self.settings()
        return NewSource(
            name=self.name, scheme=self.scheme, id_from=wanted.id_from, signature_header=wanted.signature_header,
            tolerance_seconds=wanted.tolerance_seconds, size_limit=wanted.size_limit, normaliser=wanted.normaliser,
            paths=wanted.paths,
        )  # fmt: skip


def _paths(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, place = line.partition("=")
        if line.strip() and not equals:
            raise UserError("Each line is the name of a field, =, and its place.", name="source_path_line")
        if line.strip():
            found[name.strip()] = place.strip()
    return found
