"""Who may come in, by OPS_AUTH; and which POST is really an action of theirs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from shared.db.pool import Conn
from shared.ops.fields import Fields
from shared.ops.incoming import Incoming
from shared.ops.principal import read_principal
from shared.ops.roles import Role
from shared.ops.session import COOKIE, LANGUAGE_COOKIE, Session, find_session, open_session
from shared.ops.words import LANGUAGES, Language
from shared.settings import Settings

SIGN_IN_OF_PLATFORM: Final = "/.auth/login/aad"


@dataclass(frozen=True, slots=True)
class Admitted:
    """Somebody is in, as `role`. `is_new`: the browser has to be given the session's cookie."""

    session: Session
    role: Role
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Nobody is in. `reason` is a line `refused.REASON` of the catalogue; `sign_in` is where to go instead, if anywhere."""

    status: int
    reason: str
    who: str = ""
    sign_in: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether not even the pages for those who have not signed in are shown."""
        return self.reason == "off"


OFF: Final = Refused(403, "off")


def admit(connection: Conn, incoming: Incoming, settings: Settings) -> Admitted | Refused:
    """Look at the cookie, and with `entra` at the platform's headers; in other modes those are not even read."""
    if settings.ops_auth == "off":
        return OFF
    session = find_session(connection, incoming.cookie(COOKIE))
    if settings.ops_auth == "local":
        return Admitted(session, Role.ADMIN) if session else Refused(401, "no_session")
    principal = read_principal(incoming.headers, settings.ops_tenant_id, settings.ops_role)
    if principal is None:
        return Refused(
            401, "not_signed_in", sign_in=f"{SIGN_IN_OF_PLATFORM}?post_login_redirect_uri={_wanted(incoming)}"
        )
    if principal.refusal or principal.role is None:
        return Refused(403, principal.refusal or "role", principal.who)
    if session and session.who == principal.who:
        return Admitted(session, principal.role)
    if incoming.method == "POST" or incoming.is_live:
        return Refused(401, "session_over")
    with connection.transaction():
        replaced = incoming.cookie(COOKIE)
        opened = open_session(connection, principal.who, chosen_language(incoming), replaces=replaced)
        return Admitted(opened, principal.role, is_new=True)


def is_from_its_page(incoming: Incoming, settings: Settings) -> bool:
    """Whether a POST comes from a page of this console, as far as the browser tells."""
    return incoming.comes_from_here(settings.public_base_url)


def has_token(form: Fields, session: Session) -> bool:
    """Whether a form is one of this session's: an older sign-in's, another's or none is refused."""
    return secrets.compare_digest(form.raw("csrf").encode(), session.csrf_token.encode())


def chosen_language(incoming: Incoming) -> Language | None:
    """The language that this browser's person chose at an earlier time."""
    value = incoming.cookie(LANGUAGE_COOKIE)
    return next((language for language in LANGUAGES if language == value), None)


def browsers_language(incoming: Incoming) -> Language | None:
    """The first of the browser's languages that the console has; its weights are taken to be in order, as browsers send them."""
    for part in incoming.headers.get("accept-language", "")[:500].lower().split(","):
        asked = part.partition(";")[0].strip().partition("-")[0]
        if asked in LANGUAGES:
            return next(language for language in LANGUAGES if language == asked)
    return None


def _wanted(incoming: Incoming) -> str:
    return quote(incoming.target, safe="")
