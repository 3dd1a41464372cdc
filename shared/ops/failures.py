"""What a failure looks like: a page with a sentence, never an empty 500 and never a trace."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import psycopg

from shared import telemetry
from shared.db.pool import is_lost
from shared.errors import DatabaseAway, RequestRefused, UserError

if TYPE_CHECKING:
    from starlette.responses import Response

    from shared.ops.visit import Visit


def answer(visit: Visit, error: Exception) -> Response:
    """The page for whatever a handler raised."""
    if isinstance(error, UserError):
        status = 409 if visit.incoming.method == "POST" else 400
        return visit.page("message.html", status, name="not_done", sentence=sentence(visit, error))
    if isinstance(error, RequestRefused):
        return visit.page("message.html", error.status, name="bad_request")
    if isinstance(error, DatabaseAway) or (isinstance(error, psycopg.Error) and is_lost(error)):
        telemetry.warning("console_without_database", path=visit.incoming.path, error_class=type(error).__name__)
        return visit.page("message.html", 503, name="database_away")
    error_id = secrets.token_hex(4)
    telemetry.error("console_failed", error_id=error_id, path=visit.incoming.path, **_described(error))
    return visit.page("message.html", 500, name="failed", error_id=error_id)


def sentence(visit: Visit, error: UserError) -> str:
    """In the reader's language where the error has a name that the catalogue knows; else as it was raised."""
    if error.name and visit.words.has("error", error.name):
        return visit.words.of("error", error.name)
    return str(error)


def _described(error: BaseException) -> dict[str, Any]:
    """Its class and where it happened; not its text, which may repeat what people wrote."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{'/'.join(code.co_filename.split('/')[-3:])}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return {
        "error_class": type(error).__name__,
        "sqlstate": getattr(error, "sqlstate", None),
        "at": " < ".join(reversed(places[-4:])),
    }
