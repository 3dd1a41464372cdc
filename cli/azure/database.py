"""The database's part of a deployment: extensions, the application's own role and schema, and the migrations.

All of it is done as the deployer, an Entra administrator of the server, with a token for a password. The role is the managed
identity's and owns nothing but the schema of its own name, which Postgres's default search_path ("$user", public) finds. The
migrations run as that role, so that it owns what they make.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import LiteralString
from urllib.parse import quote

import psycopg

from shared.db.migrate import migrate
from shared.db.pool import Conn, one
from shared.db.roots import trusted_roots
from shared.errors import UserError, shorten

CONNECT_SECONDS = 10
# An ordinary role may create none of them; all that azure.extensions allows, so that a later migration needs no administrator.
EXTENSIONS = {
    "vector": "CREATE EXTENSION IF NOT EXISTS vector SCHEMA public",
    "pg_trgm": "CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA public",
    "unaccent": "CREATE EXTENSION IF NOT EXISTS unaccent SCHEMA public",
    "btree_gin": "CREATE EXTENSION IF NOT EXISTS btree_gin SCHEMA public",
}
HAVE_EXTENSIONS = "SELECT extname FROM pg_extension"
HAS_ROLE = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %(role)s)"
# Names cannot be parameters of these statements: they are read from a setting of the session and quoted by Postgres.
TELL = "SELECT set_config('antwoord.role', %(role)s, false), set_config('antwoord.identity', %(identity)s, false)"
MAKE_PRINCIPAL = "SELECT pgaadauth_create_principal_with_oid(%(role)s, %(identity)s, 'service', false, false)"
MAKE_ROLE = """
    DO $make$
    BEGIN
        EXECUTE format('CREATE ROLE %I LOGIN', current_setting('antwoord.role'));
        EXECUTE format('SECURITY LABEL FOR pgaadauth ON ROLE %I IS %L', current_setting('antwoord.role'),
            format('aadauth,oid=%s,type=service', current_setting('antwoord.identity')));
    END
    $make$
"""
BE_ALLOWED = """
    DO $allow$
    BEGIN
        IF NOT pg_has_role(current_user, current_setting('antwoord.role'), 'SET') THEN
            EXECUTE format('GRANT %I TO %I WITH INHERIT FALSE, SET TRUE', current_setting('antwoord.role'), current_user);
        END IF;
    END
    $allow$
"""
OWNER_OF_SCHEMA = "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = %(role)s"
MAKE_SCHEMA = """
    DO $schema$
    BEGIN
        EXECUTE format('CREATE SCHEMA %1$I AUTHORIZATION %1$I', current_setting('antwoord.role'));
    END
    $schema$
"""
BE = "SELECT set_config('role', %(role)s, false)"


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is, and who signs in: `login` is the administrator's name in Entra, `token` what he is known by."""

    host: str
    database: str
    login: str
    token: str
    tls: str = "verify-full"  # an sslmode of libpq

    def url(self, database: str | None = None, *, role: str | None = None) -> str:
        """A postgresql:// URL, the token in it; with `role` its sessions act as that role."""
        acting = f"&options={quote(f'-c role={role}', safe='')}" if role else ""
        user, password, host = (quote(part, safe="") for part in (self.login, self.token, self.host))
        return (
            f"postgresql://{user}:{password}@{host}:5432/{quote(database or self.database)}?sslmode={self.tls}{acting}"
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was done now, and was not there before."""

    extensions: list[str]
    made_role: bool
    made_schema: bool
    migrations: list[str]


def prepare(server: Server, role: str, identity: str) -> Prepared:
    """Bring the database to where the application can use it; what is there already is left as it is.

    `role` is the managed identity's name, `identity` its object id. Raises UserError with what to do.
    """
    with _connected(server, "postgres") as connection:  # the functions of Entra are in this one alone
        made_role = _ensure_role(connection, role, identity)
    with _connected(server, server.database) as connection:
        extensions = _ensure_extensions(connection)
        _tell(connection, role, identity)
        made_schema = _ensure_schema(connection, role)
        connection.execute(BE, {"role": role})
        return Prepared(extensions, made_role, made_schema, migrate(connection))


def _hint(error: BaseException) -> str:
    """What to do about a certificate that is not believed; nothing for another error."""
    if "certificate" not in str(error):
        return ""
    return (
        "its certificate is not believed, so somebody may stand in between, or it is of an authority that certifi does not know "
        "yet (upgrade certifi; until then `azd env set DATABASE_TLS require` checks nothing); "
    )


@contextmanager
def _connected(server: Server, database: str) -> Iterator[Conn]:
    try:
        url = server.url(database)
        connection = psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS, **trusted_roots(url))
    except psycopg.OperationalError as away:
        raise UserError(
            f"The database server {server.host} cannot be reached as {server.login}: {_hint(away)}check that DEPLOYER_ADDRESS is "
            "this machine's public address (`azd env get-values`; with PRIVATE_NETWORK=true run this inside that network), and "
            f"that you are its Entra administrator. {shorten(away)}"
        ) from away
    with connection:
        yield connection


def _tell(connection: Conn, role: str, identity: str) -> None:
    connection.execute(TELL, {"role": role, "identity": identity})


def _ensure_role(connection: Conn, role: str, identity: str) -> bool:
    """Make the identity's role if it is not there, and let the deployer act as it; whether it was made.

    Who creates a role may act as it (Postgres 16). Where the service's function makes it in another one's name, that is taken
    back, and the role is made here and labelled, as the service documents too.
    """
    row = one(connection, HAS_ROLE, {"role": role})
    _tell(connection, role, identity)
    if row and row[0]:
        _allow(connection, role)
        return False
    try:
        with connection.transaction():
            connection.execute(MAKE_PRINCIPAL, {"role": role, "identity": identity})
            connection.execute(BE_ALLOWED)
    except psycopg.errors.UndefinedFunction as missing:
        raise UserError(
            "The server does not know Entra's roles: switch on Microsoft Entra authentication for it, and sign in as its "
            f"Entra administrator. {shorten(missing)}"
        ) from missing
    except psycopg.errors.InsufficientPrivilege:
        try:
            with connection.transaction():
                connection.execute(MAKE_ROLE)
                connection.execute(BE_ALLOWED)
        except psycopg.Error as refused:
            raise UserError(
                f"The role {role} of the app's identity cannot be made: sign in as the server's Entra administrator. "
                f"{shorten(refused)}"
            ) from refused
    return True


def _allow(connection: Conn, role: str) -> None:
    try:
        connection.execute(BE_ALLOWED)
    except psycopg.errors.InsufficientPrivilege as refused:
        raise UserError(
            f'You may not act as {role}: the administrator who made it grants it to you once (GRANT "{role}" TO your name), '
            f"or runs this in your place. {shorten(refused)}"
        ) from refused


def _ensure_extensions(connection: Conn) -> list[str]:
    there = {str(name) for (name,) in connection.execute(HAVE_EXTENSIONS)}
    made = [name for name in EXTENSIONS if name not in there]
    for name in made:
        try:
            statement: LiteralString = EXTENSIONS[name]
            connection.execute(statement)
        except psycopg.Error as refused:
            raise UserError(
                f"The extension {name} cannot be created: allow {name.upper()} in the server parameter azure.extensions, and "
                f"sign in as the server's Entra administrator. {shorten(refused)}"
            ) from refused
    return made


def _ensure_schema(connection: Conn, role: str) -> bool:
    row = one(connection, OWNER_OF_SCHEMA, {"role": role})
    if row is not None:
        if row[0] != role:
            raise UserError(
                f"The schema {role} belongs to {row[0]}, not to {role}: give it to that role (ALTER SCHEMA … OWNER)."
            )
        return False
    try:
        connection.execute(MAKE_SCHEMA)
    except psycopg.errors.InsufficientPrivilege as refused:
        raise UserError(
            f"The schema {role} cannot be made: you need the right to create in the database. {shorten(refused)}"
        ) from refused
    return True
