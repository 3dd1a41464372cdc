"""The database's certificate: who is not the database is sent nothing."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import certifi
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared.db.pool import Database
from shared.db.roots import trusted_roots
from shared.errors import DatabaseAway
from tests.fakes.tls import Authority, TlsFront

HOST = "database.example.org"
AZURES = ("DigiCert Global Root G2", "Microsoft RSA Root Certificate Authority 2017")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def front(authority: Authority, database_url: str) -> Iterator[TlsFront]:
    behind = Path(str(conninfo_to_dict(database_url)["host"])) / ".s.PGSQL.5432"
    with TlsFront(authority.certify(HOST), behind) as found:
        yield found


def url(front: TlsFront, database_url: str, mode: str, *, host: str = HOST, roots: Path | None = None) -> str:
    """Of the database through the front; the name is looked up nowhere."""
    parts = conninfo_to_dict(database_url)
    named = f"&sslrootcert={roots}" if roots else ""
    query = f"sslmode={mode}&hostaddr=127.0.0.1{named}"
    return f"postgresql://{parts['user']}@{host}:{front.port}/{parts['dbname']}?{query}"


def refusal(address: str) -> str:
    """Why it was refused, before the server was told who asks."""
    with pytest.raises(psycopg.OperationalError) as refused:
        Database(address, 1).dedicated()
    return str(refused.value)


def test_the_right_authority_and_name_are_accepted(front: TlsFront, database_url: str, authority: Authority) -> None:
    address = url(front, database_url, "verify-full", roots=authority.file)
    database = Database(address, 1)
    with database.connection() as connection:
        assert connection.pgconn.ssl_in_use
        assert connection.execute("SELECT 1").fetchone() == (1,)
    database.close()


def test_another_authority_is_refused(front: TlsFront, database_url: str, tmp_path: Path) -> None:
    before = front.handshakes
    said = refusal(url(front, database_url, "verify-full", roots=Authority(tmp_path, "another").file))
    assert "certificate verify failed" in said
    assert front.handshakes == before


def test_another_name_is_refused(front: TlsFront, database_url: str, authority: Authority) -> None:
    said = refusal(url(front, database_url, "verify-full", host="other.example.org", roots=authority.file))
    assert "does not match host name" in said


def test_without_a_file_the_roots_are_certifis(front: TlsFront, database_url: str) -> None:
    """They are found and read, or libpq would say that there is no file; and a self-made authority is none of them."""
    address = url(front, database_url, "verify-full")
    assert trusted_roots(address) == {"sslrootcert": certifi.where()}
    assert "certificate verify failed" in refusal(address)
    database = Database(address, 1)
    with pytest.raises(DatabaseAway), database.connection(wait=0.5):
        pass
    database.close()


def test_the_way_back_checks_nothing(front: TlsFront, database_url: str) -> None:
    address = url(front, database_url, "require")
    assert trusted_roots(address) == {}
    with Database(address, 1).dedicated() as connection:
        assert connection.pgconn.ssl_in_use


def test_who_names_other_roots_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trusted_roots("postgresql://h/d?sslmode=verify-full&sslrootcert=system") == {}
    assert trusted_roots(make_conninfo(host="h", sslmode="prefer")) == {}
    monkeypatch.setenv("PGSSLROOTCERT", "/etc/ours.pem")
    assert trusted_roots("postgresql://h/d?sslmode=verify-full") == {}


def test_both_roots_of_azures_database_are_in_the_deployed_bundle() -> None:
    """As Microsoft's page on TLS for this service names them: an upgrade of certifi that drops one is not taken unseen."""
    context = ssl.create_default_context(cafile=certifi.where())
    names = {str(part[0][1]) for root in context.get_ca_certs() for part in root["subject"]}
    assert set(AZURES) <= names
