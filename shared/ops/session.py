"""Who has signed in: sessions and one-time links. The database holds SHA-256 hashes of their tokens only."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from shared.db.pool import Conn, one
from shared.ops.words import Language

SESSION_HOURS = 12
LINK_HOURS = 12
COOKIE = "antwoord_ops"
LANGUAGE_COOKIE = "antwoord_ops_language"
TOKEN_LENGTH_AT_MOST = 200

CREATE_LINK = "INSERT INTO ops_links (token_sha256) VALUES (%(hash)s)"
USE_LINK = """
    UPDATE ops_links SET used_at = now()
    WHERE token_sha256 = %(hash)s AND used_at IS NULL AND created_at > now() - make_interval(hours => %(hours)s)
    RETURNING true
"""
IS_USABLE = """
    SELECT true FROM ops_links
    WHERE token_sha256 = %(hash)s AND used_at IS NULL AND created_at > now() - make_interval(hours => %(hours)s)
"""
FORGET_OLD_LINKS = "DELETE FROM ops_links WHERE created_at < now() - interval '7 days'"
FORGET_SESSIONS = "DELETE FROM ops_sessions WHERE expires_at < now() OR token_sha256 = %(replaced)s"
OPEN_SESSION = """
    INSERT INTO ops_sessions (token_sha256, who, csrf_token, language, expires_at)
    VALUES (%(hash)s, %(who)s, %(csrf)s, %(language)s, now() + make_interval(hours => %(hours)s))
"""
FIND_SESSION = """
    SELECT who, csrf_token, language FROM ops_sessions WHERE token_sha256 = %(hash)s AND expires_at > now()
"""
END_SESSION = "DELETE FROM ops_sessions WHERE token_sha256 = %(hash)s"
SET_LANGUAGE = "UPDATE ops_sessions SET language = %(language)s WHERE token_sha256 = %(hash)s"


@dataclass(frozen=True, slots=True)
class Session:
    """One sign-in. `csrf_token` is in every form of it, and in no other's. `language` is what its person chose."""

    token: str
    who: str
    csrf_token: str
    language: Language | None


def create_link(connection: Conn) -> str:
    """A token that signs in once, within LINK_HOURS."""
    token = secrets.token_urlsafe(32)
    connection.execute(FORGET_OLD_LINKS)
    connection.execute(CREATE_LINK, {"hash": _hash(token)})
    return token


def is_usable(connection: Conn, token: str) -> bool:
    """Whether a link's token can still sign in."""
    return one(connection, IS_USABLE, {"hash": _hash(token), "hours": LINK_HOURS}) is not None


def use_link(connection: Conn, token: str) -> bool:
    """Take the token of a link: True for one caller, once."""
    return one(connection, USE_LINK, {"hash": _hash(token), "hours": LINK_HOURS}) is not None


def open_session(connection: Conn, who: str, language: Language | None, *, replaces: str = "") -> Session:
    """Begin a session; the one that the browser had before ends, and with it every form that it had open."""
    session = Session(secrets.token_urlsafe(32), who, secrets.token_urlsafe(32), language)
    connection.execute(FORGET_SESSIONS, {"replaced": _hash(replaces)})
    connection.execute(
        OPEN_SESSION,
        {
            "hash": _hash(session.token),
            "who": who,
            "csrf": session.csrf_token,
            "language": language,
            "hours": SESSION_HOURS,
        },
    )
    return session


def find_session(connection: Conn, token: str) -> Session | None:
    """The session of a cookie's token."""
    if not 0 < len(token) <= TOKEN_LENGTH_AT_MOST:
        return None
    row = one(connection, FIND_SESSION, {"hash": _hash(token)})
    return Session(token, row[0], row[1], row[2]) if row else None


def end_session(connection: Conn, token: str) -> None:
    """Sign out."""
    connection.execute(END_SESSION, {"hash": _hash(token)})


def set_language(connection: Conn, token: str, language: Language) -> None:
    """Remember the language that a session's person chose."""
    connection.execute(SET_LANGUAGE, {"hash": _hash(token), "language": language})


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
