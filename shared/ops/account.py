"""Signing in by a one-time link, signing out, and the language."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from shared.errors import RequestRefused
from shared.ops import session as sessions
from shared.ops.cookies import give_cookie, take_cookie
from shared.ops.gate import chosen_language
from shared.ops.incoming import own_path
from shared.ops.render import url
from shared.ops.routes import PREFIX, Route, action, page
from shared.ops.visit import Visit
from shared.ops.words import LANGUAGES

LANGUAGE_SECONDS = 365 * 24 * 3600
LOCAL = "console:local"


def sign_in_page(visit: Visit) -> Response:
    """One button: a link that is only looked at (by a chat program, say) is not used up."""
    if visit.settings.ops_auth != "local":
        return RedirectResponse(url(), 303)
    token = visit.query.text("token") or ""
    with visit.database.connection() as connection:
        is_usable = sessions.is_usable(connection, token)
    return visit.page("sign_in.html", 200 if is_usable else 410, token=token, is_usable=is_usable)


def sign_in(visit: Visit) -> Response:
    """Take the token, begin a session."""
    if visit.settings.ops_auth != "local":
        raise RequestRefused(403, "Signing in by a link is switched off here.")
    with visit.database.transaction() as connection:
        if not sessions.use_link(connection, visit.form.text("token") or ""):
            return visit.page("sign_in.html", 410, token="", is_usable=False)
        replaced = visit.incoming.cookie(sessions.COOKIE)
        session = sessions.open_session(connection, LOCAL, chosen_language(visit.incoming), replaces=replaced)
    response = RedirectResponse(url(), 303)
    give_cookie(response, visit.services, sessions.COOKIE, session.token, sessions.SESSION_HOURS * 3600)
    return response


def sign_out(visit: Visit) -> Response:
    """End the session here; the platform's own has a link of its own on the page that follows."""
    assert visit.session is not None
    with visit.database.connection() as connection:
        sessions.end_session(connection, visit.session.token)
    response = RedirectResponse(url("/signed-out"), 303)
    take_cookie(response, visit.services, sessions.COOKIE)
    return response


def signed_out(visit: Visit) -> Response:
    """What follows signing out."""
    return visit.page("signed_out.html", is_platform=visit.settings.ops_auth == "entra")


def choose_language(visit: Visit) -> Response:
    """Show everything in the other language, now and when this browser comes back."""
    assert visit.session is not None
    language = visit.form.choice("language", LANGUAGES) or visit.settings.default_language
    with visit.database.connection() as connection:
        sessions.set_language(connection, visit.session.token, language)
    response = RedirectResponse(own_path(visit.form.raw("back"), PREFIX), 303)
    give_cookie(response, visit.services, sessions.LANGUAGE_COOKIE, language, LANGUAGE_SECONDS)
    return response


ROUTES: tuple[Route, ...] = (
    page("/sign-in", sign_in_page, is_open=True),
    action("/sign-in", sign_in, is_open=True),
    page("/signed-out", signed_out, is_open=True),
    action("/sign-out", sign_out),
    action("/language", choose_language),
)
