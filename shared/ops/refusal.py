"""A form that is refused: its page again, with why, in the reader's language, and what was filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from shared.errors import UserError
from shared.ops import failures
from shared.ops.fields import Upload
from shared.ops.visit import Visit


def page_with(
    visit: Visit,
    problem: UserError | None,
    template: str,
    address: str,
    /,
    *,
    field_of: Mapping[str, str] | None = None,
    **context: Any,
) -> Response:
    """A page that a form leads back to when it is refused: then with why, and the field that it is about.

    `address` is the page's own, whatever was posted where; `field_of` says which field an error's name is about.
    """
    return visit.page(
        template,
        409 if problem else 200,
        **{
            "here": address,
            "target": address,
            "problem": failures.sentence(visit, problem) if problem else None,
            "wrong_field": (field_of or {}).get(problem.name or "") if problem else None,
        }
        | context,
    )


def chosen(upload: Upload | None) -> Upload:
    """The file of a form. Raises UserError when none was chosen."""
    if upload is None:
        raise UserError("Choose a file.", name="no_file")
    return upload
