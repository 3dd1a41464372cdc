"""azd's hooks behind provisioning and deploying, as processes: `az` and `azd` are programs that note what they are asked, and
the database is a real one.

What only Azure has is stood in for: `pgaadauth_create_principal_with_oid` is a function of this cluster's.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import psycopg
import pytest

from cli.azure import database as azure_database
from cli.azure.command import bring_up, is_for_later, look
from cli.azure.database import Server, prepare
from cli.azure.values import Values
from cli.azure.vault import Vault
from cli.doctor.command import is_wrong
from cli.doctor.finding import State
from cli.output import Output
from local.postgres import EmbeddedPostgres
from local.standins.storage_queue import QueueStandIn
from shared.errors import UserError
from tests.e2e.running import Outside, Rows
from tests.fakes.azure_cli import DEPLOYER, ROOT, AzureCli
from tests.fakes.azure_hooks import Address, preflight, run, signed_in

ROLE, IDENTITY = "id-antwoord-proef", "00000000-1111-2222-3333-444444444444"
DATABASE = "azure_hooks"
TOKEN = "twilio-token-0123456789abcdef"
STAND_IN = """
    CREATE OR REPLACE FUNCTION pgaadauth_create_principal_with_oid(
        rolename text, objectid text, objecttype text, isadmin boolean, ismfa boolean)
    RETURNS text LANGUAGE plpgsql SECURITY {security} AS $make$
    BEGIN
        IF objecttype <> 'service' OR isadmin OR ismfa THEN RAISE EXCEPTION 'not as an application signs in'; END IF;
        EXECUTE format('CREATE ROLE %I LOGIN', rolename);
        RETURN 'Created role for ' || rolename;
    END
    $make$
"""


@pytest.fixture
def cli(tmp_path: Path) -> AzureCli:
    return signed_in(tmp_path)


@pytest.fixture
def address() -> Iterator[str]:
    with Address("203.0.113.7") as service:
        yield service.url


def socket_folder(postgres: EmbeddedPostgres) -> str:
    return parse_qs(urlsplit(postgres.url()).query)["host"][0]


@pytest.fixture(scope="module")
def server(postgres: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A server with an Entra administrator and a database, and nothing of the application."""
    postgres.run([f'CREATE ROLE "{DEPLOYER}" LOGIN SUPERUSER', f"CREATE DATABASE {DATABASE}"])
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(STAND_IN.format(security="INVOKER").encode())
    yield postgres
    postgres.run(["DROP FUNCTION pgaadauth_create_principal_with_oid"])


@pytest.fixture
def provisioned(cli: AzureCli, server: EmbeddedPostgres) -> AzureCli:
    """The outputs of the templates are there."""
    cli.change(
        "azd", KEY_VAULT_NAME="kv-proef", AZURE_RESOURCE_GROUP="rg-proef", FUNCTION_APP_NAME="app", DATABASE_NAME=DATABASE,
        DATABASE_HOST=socket_folder(server), APP_IDENTITY_NAME=ROLE, APP_IDENTITY_PRINCIPAL_ID=IDENTITY,
        AZURE_PRINCIPAL_NAME=DEPLOYER, PUBLIC_BASE_URL="https://app.example.org",
    )  # fmt: skip
    return cli


def test_the_vault_and_the_database_are_prepared_once(provisioned: AzureCli, server: EmbeddedPostgres) -> None:
    done = run(provisioned, "provisioned", TWILIO_AUTH_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    secrets = provisioned.state["secrets"]
    assert len(base64.b64decode(secrets["secrets-key"], validate=True)) == 32
    assert secrets["twilio-auth-token"] == TOKEN
    assert set(secrets) == {"secrets-key", "twilio-auth-token"}
    calls = provisioned.calls()
    assert {call[call.index("--output") + 1] for call in calls if call[:4] == ["az", "keyvault", "secret", "set"]} == {
        "none"
    }
    said = done.stdout + done.stderr + json.dumps(calls)
    assert secrets["secrets-key"] not in said
    assert TOKEN not in said
    for word in ("secrets-key made", "extension vector created", f"role {ROLE} created", "migrated: 0001_main_job"):
        assert word in done.stdout
    rows = Rows(server.url(DATABASE))
    own = rows.rows("SELECT DISTINCT tableowner, schemaname FROM pg_tables WHERE schemaname !~ '^(pg_|information_)'")
    assert own == [(ROLE, ROLE)]
    assert rows.rows("SELECT nspname FROM pg_namespace WHERE nspowner = (%(role)s)::regrole", role=f'"{ROLE}"') == [
        (ROLE,)
    ]
    [flags] = rows.rows(
        "SELECT rolsuper, rolcreaterole, rolcreatedb, rolcanlogin FROM pg_roles WHERE rolname = %(role)s", role=ROLE
    )
    assert flags == (False, False, False, True)
    assert not rows.value("SELECT has_database_privilege(%(role)s, current_database(), 'CREATE')", role=ROLE)
    assert not rows.value("SELECT has_schema_privilege(%(role)s, 'public', 'CREATE')", role=ROLE)
    assert (
        rows.value("SELECT count(*) FROM pg_extension WHERE extname IN ('vector', 'pg_trgm', 'unaccent', 'btree_gin')")
        == 4
    )
    rows.close()

    again = run(provisioned, "provisioned")
    assert (again.returncode, again.stdout.strip()) == (0, "Nothing to do."), again.stderr
    assert provisioned.state["secrets"] == secrets
    assert not [call for call in provisioned.calls() if "set" in call or "recover" in call]

    provisioned.change("secrets", **{"twilio-auth-token": None})  # and nobody is there to ask for it
    without = run(provisioned, "provisioned")
    assert (without.returncode, without.stdout.strip()) == (0, "Nothing to do."), without.stderr
    assert "put it into the vault kv-proef as twilio-auth-token" in without.stderr


def test_the_app_can_use_it_as_its_own_role_with_its_limits(provisioned: AzureCli, server: EmbeddedPostgres) -> None:
    bring_up(provisioned.values, Output())
    with psycopg.connect(server.url(DATABASE), user=ROLE, autocommit=True) as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("3s",)
        assert connection.execute("SELECT count(*) FROM job_types").fetchone() != (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE public.elsewhere ()")


def test_a_token_is_changed_when_another_one_is_given_and_a_key_never(provisioned: AzureCli) -> None:
    provisioned.change("secrets", **{"secrets-key": "as it was", "twilio-auth-token": "old-one"})
    provisioned.change("azd", TWILIO_ROTATING="true", METRICS_ON="true")
    given = {"TWILIO_AUTH_TOKEN": TOKEN, "TWILIO_AUTH_TOKEN_SECONDARY": "old-one"}
    values = Values(provisioned.programs, provisioned.environment | given)
    assert {"twilio-auth-token set", "metrics-token made"} <= set(bring_up(values, Output()))
    secrets = provisioned.state["secrets"]
    assert secrets["secrets-key"] == "as it was"
    assert (secrets["twilio-auth-token"], secrets["twilio-auth-token-secondary"]) == (TOKEN, "old-one")
    assert len(base64.b64decode(secrets["metrics-token"])) == 32


def test_a_deleted_key_comes_back_as_it_was(provisioned: AzureCli, tmp_path: Path) -> None:
    provisioned.change("deleted_secrets", **{"secrets-key": "sealed with this"})
    vault = Vault(provisioned.programs, "kv-proef")
    assert vault.ensure_key("secrets-key") is False
    assert provisioned.state["secrets"]["secrets-key"] == "sealed with this"


def test_a_role_that_does_not_count_yet_is_waited_for(provisioned: AzureCli) -> None:
    refused = "(Forbidden) Caller is not authorized to perform action (ForbiddenByRbac)"
    provisioned.fail("az keyvault secret show", refused, times=2)
    vault = Vault(provisioned.programs, "kv-proef", tries=3, pause_seconds=0.0)
    assert vault.ensure_key("secrets-key") is True
    provisioned.fail("az keyvault secret show", refused)
    with pytest.raises(UserError, match="Key Vault Secrets Officer"):
        vault.ensure_key("secrets-key")
    assert list(provisioned.state["secrets"]) == ["secrets-key"]


def test_the_sign_in_returns_to_the_app_and_references_are_read_again(provisioned: AzureCli, address: str) -> None:
    preflight(provisioned, address)
    assert "sign-in returns to the app" in bring_up(provisioned.values, Output())
    [app] = provisioned.state["apps"]
    assert app["web"]["redirectUris"] == ["https://app.example.org/.auth/login/aad/callback"]
    refreshed = [call for call in provisioned.calls() if call[:2] == ["az", "rest"]]
    assert len(refreshed) == 1
    assert "configreferences/appsettings/refresh" in refreshed[0][refreshed[0].index("--url") + 1]
    assert bring_up(provisioned.values, Output()) == []


def test_a_sign_in_that_somebody_else_owns_stops_nothing(
    provisioned: AzureCli, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    preflight(provisioned, address)
    provisioned.calls()
    provisioned.fail("az ad app", "Insufficient privileges to complete the operation.")
    bring_up(provisioned.values, Output())
    assert "https://app.example.org/.auth/login/aad/callback" in capsys.readouterr().err
    assert [call for call in provisioned.calls() if call[:2] == ["az", "rest"]]  # the app was told of its secrets


def test_missing_outputs_and_a_server_that_is_away(cli: AzureCli, provisioned: AzureCli) -> None:
    provisioned.change("azd", DATABASE_HOST="127.0.0.1", APP_IDENTITY_NAME=None)
    with pytest.raises(UserError, match="APP_IDENTITY_NAME is not set"):
        bring_up(provisioned.values, Output())
    provisioned.change("azd", APP_IDENTITY_NAME=ROLE)
    done = run(provisioned, "provisioned")
    assert (done.returncode, "DEPLOYER_ADDRESS" in done.stderr) == (2, True)
    assert "token-of-the-deployer" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_an_administrator_who_is_no_superuser_makes_the_role_and_acts_as_it(server: EmbeddedPostgres) -> None:
    """As on Azure: what only the server's own administrator can create there (pgvector) is there already here."""
    where = plain_server(server, "azure_plain")
    done = prepare(where, "id-plain", IDENTITY)
    assert (done.made_role, done.made_schema, len(done.migrations) > 5) == (True, True, True)
    assert set(done.extensions) == {"pg_trgm", "unaccent", "btree_gin"}
    again = prepare(where, "id-plain", IDENTITY)
    assert (again.extensions, again.made_role, again.made_schema, again.migrations) == ([], False, False, [])
    with psycopg.connect(server.url("azure_plain"), autocommit=True) as connection:
        member = connection.execute(
            "SELECT admin_option, inherit_option, set_option FROM pg_auth_members"
            " WHERE roleid = '\"id-plain\"'::regrole AND member = 'azure_plain'::regrole"
            " AND grantor = 'azure_plain'::regrole"
        ).fetchall()
    assert member == [(False, False, True)]


def test_a_role_that_the_deployer_may_not_act_as_is_taken_back(server: EmbeddedPostgres) -> None:
    where = plain_server(server, "azure_definer")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(STAND_IN.format(security="DEFINER").encode())
        try:
            with pytest.raises(UserError, match="id-definer of the app's identity cannot be made"):
                prepare(where, "id-definer", IDENTITY)  # the other way needs a label that this cluster does not know
            made = connection.execute("SELECT count(*) FROM pg_roles WHERE rolname = 'id-definer'").fetchone()
            assert made == (0,)
        finally:
            connection.execute("DROP FUNCTION pgaadauth_create_principal_with_oid")
            connection.execute(STAND_IN.format(security="INVOKER").encode())


def test_a_schema_of_somebody_else_is_not_taken(server: EmbeddedPostgres) -> None:
    where = plain_server(server, "azure_foreign")
    with psycopg.connect(server.url("azure_foreign"), autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "id-foreign"')
    with pytest.raises(UserError, match="belongs to postgres"):
        prepare(where, "id-foreign", IDENTITY)


def plain_server(server: EmbeddedPostgres, name: str) -> Server:
    """A database whose owner may make roles, and is no superuser."""
    server.run([f"CREATE ROLE {name} LOGIN CREATEROLE", f"CREATE DATABASE {name} OWNER {name}"])
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector SCHEMA public")
    return Server(socket_folder(server), name, name, "any")


def test_a_url_of_the_server_hides_nothing_from_the_driver() -> None:
    url = Server("db.example.org", "antwoord", "a@b.org", "to/ken?&").url(role="id-x")
    parts = psycopg.conninfo.conninfo_to_dict(url)
    assert (parts["user"], parts["password"], parts["options"]) == ("a@b.org", "to/ken?&", "-c role=id-x")
    assert parts["sslmode"] == "verify-full"
    assert set(azure_database.EXTENSIONS) == {"vector", "pg_trgm", "unaccent", "btree_gin"}


def test_after_a_deployment_documents_are_added_settings_told_and_all_is_checked(
    provisioned: AzureCli, server: EmbeddedPostgres
) -> None:
    bring_up(provisioned.values, Output())
    host = quote(socket_folder(server), safe="")
    own = f"postgresql://{ROLE}@{host}:5432/{DATABASE}"
    with QueueStandIn() as queue, Outside(own, arguments=("--no-timer", "--no-wake")) as outside:
        outside.start_host()
        queue.queues.create("wake", {})
        reference = "@Microsoft.KeyVault(SecretUri=https://kv-proef.vault.azure.net/secrets/twilio-auth-token)"
        token = outside.stack.environment["TWILIO_AUTH_TOKEN"]
        provisioned.change("secrets", **{"twilio-auth-token": token})
        settings = outside.stack.environment | {"TWILIO_AUTH_TOKEN": reference, "DATABASE_AUTH": "entra"}
        settings["AzureWebJobsStorage"] = queue.connection_string
        provisioned.answer(
            "az functionapp config appsettings list",
            [{"name": name, "value": value} for name, value in settings.items()],
        )
        base = outside.url
        provisioned.change("azd", PUBLIC_BASE_URL=base, FIRST_DOCUMENTS="demo")
        done = run(provisioned, "deployed", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(done.stdout)
        assert {one["state"] for one in told["checks"]} == {"ok"}, told
        assert f"{base}/api/twilio/inbound#rc=5&rp=all&ct=2000&rt=5000" in done.stderr
        assert f"{base}/api/twilio/status" in done.stderr
        assert f"options=-c%20role%3D{ROLE}" in done.stderr
        for secret in (token, "token-of-the-deployer"):
            assert secret not in done.stdout + done.stderr
        assert outside.database.value("SELECT count(*) FROM documents") == 2
        assert outside.database.value("SELECT count(*) FROM ai_jobs WHERE type = 'embed_record'") == 2

        # Again, with Twilio set to an older address: that is for the person to paste, and no failure of the deployment.
        outside.twilio.senders = [outside.twilio.own_sender()]
        outside.twilio.senders[0].callback_url = "https://old.example.org"
        again = look(provisioned.values, Output())
        assert [one.check for one in again if one.state is State.WRONG] == ["twilio: webhook"]
        assert not is_wrong([one for one in again if not is_for_later(one)])
        assert outside.database.value("SELECT count(*) FROM ai_jobs WHERE type = 'embed_record'") == 2

        # A reference that leads nowhere is one.
        provisioned.change("secrets", **{"twilio-auth-token": None})
        broken = next(one for one in look(provisioned.values, Output()) if one.check == "secret: TWILIO_AUTH_TOKEN")
        assert broken.state is State.WRONG
        assert "'twilio-auth-token', which is not in the vault kv-proef" in broken.said
        assert not is_for_later(broken)


@pytest.mark.parametrize(
    ("hook", "verb"), [("preprovision", "preflight"), ("postprovision", "provisioned"), ("postdeploy", "deployed")]
)
def test_a_hook_only_calls_the_command(tmp_path: Path, hook: str, verb: str) -> None:
    shutil.copytree(ROOT / "infra" / "hooks", tmp_path / "infra" / "hooks")
    (tmp_path / "antwoord").write_text('#!/bin/sh\necho "$PWD $*"\nexit 3\n')
    (tmp_path / "antwoord").chmod(0o755)
    script = tmp_path / "infra" / "hooks" / f"{hook}.sh"
    assert os.access(script, os.X_OK)
    done = subprocess.run([script], cwd="/", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (3, f"{tmp_path} azure {verb}")


def test_every_hook_is_tried_here() -> None:
    assert sorted(path.name for path in (ROOT / "infra" / "hooks").iterdir()) == [
        "postdeploy.sh", "postprovision.sh", "preprovision.sh",
    ]  # fmt: skip
