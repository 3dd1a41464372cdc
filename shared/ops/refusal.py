"""Why something cannot be done, in the reader's language: for a form that says so itself and keeps what was filled in."""

from __future__ import annotations

from shared.errors import UserError
from shared.ops.fields import Upload
from shared.ops.visit import Visit


def refused(visit: Visit, wrong: UserError) -> str:
    """The line `error.NAME` of the catalogue, or else the sentence as it was raised."""
    if wrong.name and visit.words.has("error", wrong.name):
        return visit.words.of("error", wrong.name)
    return str(wrong)


def chosen(upload: Upload | None) -> Upload:
    """The file of a form. Raises UserError when none was chosen."""
    if upload is None:
        raise UserError("Choose a file.", name="no_file")
    return upload
