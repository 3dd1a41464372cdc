"""What is looked at before azd provisions: `az` and `azd` are programs that note what they are asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.azure.parameters import read_parameters
from cli.azure.preflight import SUBNET_SERVICE
from cli.azure.values import read_answers
from cli.doctor.finding import State
from tests.fakes.azure_cli import CHAT, DEPLOYER, EMBEDDING, REGION, SUBSCRIPTION, AzureCli, offered, token_of, usage
from tests.fakes.azure_hooks import Address, preflight, run, signed_in
from tests.fakes.bicep import INFRA


@pytest.fixture
def cli(tmp_path: Path) -> AzureCli:
    return signed_in(tmp_path)


@pytest.fixture
def address() -> Iterator[str]:
    with Address("203.0.113.7") as service:
        yield service.url


def test_preflight_finds_nothing_and_sets_what_the_templates_read(cli: AzureCli, address: str) -> None:
    done = run(cli, "preflight", "--json", "--address-service", address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {one["state"] for one in json.loads(done.stdout)["checks"]} == {"ok"}, done.stdout
    variables = cli.state["azd"]
    assert variables["AZURE_PRINCIPAL_NAME"] == DEPLOYER
    assert variables["DEPLOYER_ADDRESS"] == "203.0.113.7"
    assert variables["RECOVER_VAULT"] == variables["RECOVER_MODEL"] == "false"
    assert variables["CONSOLE_CLIENT_ID"] == "app-1"
    [app] = cli.state["apps"]
    assert [role["value"] for role in app["appRoles"]] == ["Antwoord.Viewer", "Antwoord.Operator", "Antwoord.Admin"]
    cli.calls()
    assert {one.state for one in preflight(cli, address).values()} == {State.OK}
    again = cli.calls()
    assert not [call for call in again if call[:3] == ["azd", "env", "set"] or "create" in call]


def test_a_registration_is_found_again_when_the_environment_was_lost(cli: AzureCli, address: str) -> None:
    preflight(cli, address)
    cli.change("azd", CONSOLE_CLIENT_ID=None)
    preflight(cli, address)
    assert cli.state["azd"]["CONSOLE_CLIENT_ID"] == "app-1"
    assert len(cli.state["apps"]) == 1


@pytest.mark.parametrize(
    ("begins", "answer", "check", "words"),
    [
        ("az version", {"azure-cli": "2.50.0"}, "az", "upgrade it"),
        ("azd version", "azd version 1.17.2 (commit 0)", "azd", "1.18.0 is needed"),
        (
            "az account show", {"id": "another", "name": "x", "state": "Enabled", "user": {"name": "x"}},
            "signed in", "az account set -s",
        ),
        ("az functionapp list-flexconsumption-locations", [{"name": "East US"}], "functions", "AZURE_LOCATION"),
        ("az functionapp list-flexconsumption-runtimes", [{"version": "3.12"}], "functions", "no Python 3.13"),
        ("az postgres flexible-server list-skus", [], "postgres", "DATABASE_SKU"),
        ("az cognitiveservices model list", [offered(CHAT, "2024-01-01"), offered(EMBEDDING)], "model: chat", "2024-01-01"),
        ("az cognitiveservices model list", [offered(CHAT)], "model: embedding", "EMBEDDING_MODEL"),
        (
            "az cognitiveservices model list", [offered(CHAT, None, "2026-01-01"), offered(EMBEDDING)],
            "model: chat", "was retired",
        ),
        ("az cognitiveservices usage list", [usage(CHAT, CHAT.capacity - 1), usage(EMBEDDING)], "quota: chat", "CHAT_CAPACITY"),
    ],
    ids=["az", "azd", "subscription", "flex", "python", "size", "version", "model", "retired", "quota"],
)  # fmt: skip
def test_preflight_says_what_is_wrong_and_what_to_do(
    cli: AzureCli, address: str, begins: str, answer: Any, check: str, words: str
) -> None:
    cli.answer(begins, answer)
    found = preflight(cli, address)
    assert found[check].state is State.WRONG, found
    assert words in found[check].said
    assert [name for name, one in found.items() if one.state is State.WRONG] == [check]


@pytest.mark.parametrize(
    ("variable", "value", "check", "words"),
    [
        ("ALERT_EMAIL", None, "values", "ALERT_EMAIL"),
        ("TWILIO_WHATSAPP_FROM", "020-1234567", "values", "E.164"),
        ("TWILIO_ACCOUNT_SID", "SK" + "0" * 32, "values", "TWILIO_ACCOUNT_SID"),
        ("AZURE_ENV_NAME", "proef_1", "name", "hyphens"),
        ("MAXIMUM_INSTANCES", "1000", "connections", "lower MAXIMUM_INSTANCES"),
        ("PRIVATE_NETWORK", "on", "values", "PRIVATE_NETWORK: a switch is true or false"),
        ("CHAT_CAPACITY", "50k", "values", "CHAT_CAPACITY"),
        ("DATABASE_SKU", "Standard_D2ds_v5", "postgres", "set DATABASE_TIER"),
        ("DATABASE_HIGH_AVAILABILITY", "ZoneRedundant", "postgres", "no standby"),
    ],
)
def test_preflight_looks_at_the_values(
    cli: AzureCli, address: str, variable: str, value: str | None, check: str, words: str
) -> None:
    cli.change("azd", **{variable: value})
    found = preflight(cli, address)
    assert found[check].state is State.WRONG, found
    assert words in found[check].said


def test_a_private_network_needs_a_service_that_the_templates_do_not_name(cli: AzureCli, address: str) -> None:
    assert "network" not in preflight(cli, address)
    cli.change("azd", PRIVATE_NETWORK="true")
    assert preflight(cli, address)["network"].state is State.OK
    cli.answer("az provider show", {"registrationState": "NotRegistered"})
    found = preflight(cli, address)
    assert "az provider register --namespace Microsoft.App" in found["network"].said
    assert [name for name, one in found.items() if one.state is State.WRONG] == ["network"]
    network = (INFRA / "modules" / "network.bicep").read_text("utf-8")
    assert f"'{SUBNET_SERVICE}/environments'" in network
    cli.fail("az provider show", "(AuthorizationFailed)")
    assert preflight(cli, address)["network"].state is State.LEFT_OUT


def test_preflight_without_a_sign_in_or_tools(cli: AzureCli, address: str, tmp_path: Path) -> None:
    cli.fail("az account show", "Please run 'az login' to setup account.")
    assert "Run `az login`" in preflight(cli, address)["signed in"].said
    (tmp_path / "azd").unlink()
    done = run(cli, "preflight", "--address-service", address)
    assert done.returncode == 1
    assert "`azd` is not installed" in done.stdout
    assert "The tools come first" in done.stdout
    assert "Traceback" not in done.stderr


def test_two_people_in_the_two_programs_are_told_apart(cli: AzureCli, address: str) -> None:
    cli.answer("azd auth token", json.dumps({"token": token_of("2", "colleague@example.org")}))
    found = preflight(cli, address)
    assert found["same person"].state is State.WRONG
    for word in (DEPLOYER, "colleague@example.org", "az login", "azd auth login"):
        assert word in found["same person"].said
    assert [name for name, one in found.items() if one.state is State.WRONG] == ["same person"]
    asked = [call for call in cli.calls() if call[:3] == ["azd", "auth", "token"]]
    assert asked == [["azd", "auth", "token", "--output", "json", "--no-prompt", "--tenant-id", "t"]]
    assert not [one for one in found.values() if "token-of-the-deployer" in one.said]


def test_who_is_signed_in_to_one_program_alone_is_told_so(cli: AzureCli, address: str) -> None:
    cli.fail("azd auth token", "not logged in, run `azd auth login` to login")
    assert "`azd` is not signed in" in preflight(cli, address)["same person"].said


@pytest.mark.parametrize("token", ["opaque", "a.b.c", "e30.W10.x", "e30.e30.x"])
def test_a_token_that_tells_nothing_stops_nobody(cli: AzureCli, address: str, token: str) -> None:
    cli.answer("azd auth token", json.dumps({"token": token}))
    assert preflight(cli, address)["same person"].state is State.LEFT_OUT


def test_what_was_deleted_is_taken_back_and_what_is_not_allowed_is_done_without(cli: AzureCli, address: str) -> None:
    cli.answer(
        "az keyvault list-deleted",
        [{"name": "kv-1", "properties": {"location": "Sweden Central", "tags": {"azd-env-name": "proef"}}},
         {"name": "kv-2", "properties": {"location": REGION, "tags": {"azd-env-name": "other"}}}],
    )  # fmt: skip
    cli.fail("az ad app", "Insufficient privileges to complete the operation.")
    found = preflight(cli, address)
    assert cli.state["azd"]["RECOVER_VAULT"] == "true"
    assert cli.state["azd"]["RECOVER_MODEL"] == "false"  # kept for two days only: there is none to take back
    assert found["names"].state is State.ADVICE
    assert "kv-1" in found["names"].said
    assert "kv-2" not in found["names"].said
    assert found["sign-in"].state is State.ADVICE
    assert "CONSOLE_CLIENT_ID" not in cli.state["azd"]


GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg-proef"
VAULT = {"name": "kv-antw-abcdefghijklm", "properties": {"location": REGION}}
ACCOUNT = {"name": "oai-antwoord-abcdefghijklm", "location": REGION}
DELETED = "/subscriptions/x/providers/Microsoft.CognitiveServices/locations/y/resourceGroups"


@pytest.mark.parametrize(
    ("vaults", "accounts", "vault", "model"),
    [
        ([], [ACCOUNT | {"tags": {"azd-env-name": "proef"}}], "false", "true"),
        ([], [ACCOUNT | {"id": f"{DELETED}/rg-proef/deletedAccounts/oai-antwoord-abcdefghijklm"}], "false", "true"),
        ([], [ACCOUNT | {"id": f"{DELETED}/rg-proef-2/deletedAccounts/oai-antwoord-abcdefghijklm"}], "false", "false"),
        ([], [ACCOUNT | {"id": f"{DELETED}/rg-proef/x", "location": "westeurope"}], "false", "false"),
        ([], [ACCOUNT | {"id": f"{DELETED}/rg-proef/x", "name": "somebodys"}], "false", "false"),
        ([VAULT | {"properties": {"location": REGION, "vaultId": f"{GROUP}/providers/v"}}], [], "true", "false"),
    ],
    ids=["by tag", "by group", "another group", "another region", "another name", "vault by group"],
)
def test_what_keeps_our_names_is_found_without_tags_too(
    cli: AzureCli, address: str, vaults: Any, accounts: Any, vault: str, model: str
) -> None:
    cli.answer("az keyvault list-deleted", vaults)
    cli.answer("az cognitiveservices account list-deleted", accounts)
    found = preflight(cli, address)["names"]
    assert (cli.state["azd"]["RECOVER_VAULT"], cli.state["azd"]["RECOVER_MODEL"]) == (vault, model)
    assert found.state is (State.ADVICE if "true" in (vault, model) else State.OK)


def test_who_may_not_see_what_was_deleted_is_told_what_to_set(cli: AzureCli, address: str) -> None:
    cli.fail("az keyvault list-deleted", "(Forbidden)")
    found = preflight(cli, address)["names"]
    assert found.state is State.LEFT_OUT
    assert "RECOVER_VAULT (within 90 days) and RECOVER_MODEL (within 48 hours) to true" in found.said
    cli.change("azd", RECOVER_VAULT="true")
    assert "RECOVER_VAULT is on" in preflight(cli, address)["names"].said
    assert cli.state["azd"]["RECOVER_VAULT"] == "true"


def test_what_azd_has_asked_for_itself_counts_as_set(cli: AzureCli, tmp_path: Path) -> None:
    cli.change("azd", ALERT_EMAIL=None, TWILIO_WHATSAPP_FROM=None)
    folder = tmp_path / ".azure" / "proef"
    folder.mkdir(parents=True)
    answers = {"alertEmail": "beheer@example.org", "twilioWhatsappFrom": "whatsapp:+31201234567"}
    (folder / "config.json").write_text(json.dumps({"infra": {"parameters": answers}}))
    read = read_parameters(cli.values.given, answered=read_answers("proef", tmp_path / ".azure"))
    assert read.text("alertEmail") == "beheer@example.org"
    assert set(read.unset) <= {"AZURE_PRINCIPAL_ID"}
    assert read_answers("another", tmp_path / ".azure") == read_answers("", tmp_path / ".azure") == {}


def test_a_pipeline_that_knows_no_outputs_asks_azure_what_is_there(cli: AzureCli, address: str) -> None:
    cli.answer("az cognitiveservices usage list", [usage(CHAT, 0), usage(EMBEDDING, 0)])  # all of it is in use: by us
    cli.answer("az cognitiveservices account list", [{"name": "oai-antwoord-abcdefghijklm"}])
    name = "psql-antwoord-abcdefghijklm"
    grown = [
        {"name": f"{name}-r1", "storage": {"storageSizeGb": 256}},
        {"name": name, "storage": {"storageSizeGb": 64}},
    ]
    cli.answer("az postgres flexible-server list", grown)
    found = preflight(cli, address)
    assert found["quota"].state is State.LEFT_OUT
    assert not [one for one in found.values() if one.state is State.WRONG]
    assert "64 GiB" in found["storage"].said
    assert cli.state["azd"]["DATABASE_STORAGE_GB"] == "64"
    assert "storage" not in preflight(cli, address)


@pytest.mark.parametrize(
    "begins",
    [
        "az account show", "az ad signed-in-user show", "az keyvault list-deleted", "az ad app list",
        "az functionapp list-flexconsumption-locations", "az postgres flexible-server list-skus",
        "az postgres flexible-server list", "az cognitiveservices model list", "az cognitiveservices usage list",
    ],
)  # fmt: skip
@pytest.mark.parametrize("odd", ["text", [1, None], {"value": 7}], ids=["text", "list", "object"])
def test_an_answer_of_another_shape_is_a_line_and_no_traceback(
    cli: AzureCli, address: str, begins: str, odd: Any
) -> None:
    cli.answer(begins, odd)
    assert "python" in preflight(cli, address)


def test_a_pipeline_deploys_as_an_application_and_may_not_find_its_address(cli: AzureCli) -> None:
    account = {
        "id": SUBSCRIPTION,
        "name": "x",
        "state": "Enabled",
        "user": {"name": "client", "type": "servicePrincipal"},
    }
    cli.answer("az account show", account)
    found = preflight(cli, "http://127.0.0.1:9")
    assert found["address"].state is State.WRONG
    assert "DEPLOYER_ADDRESS" in found["address"].said
    assert cli.state["azd"]["AZURE_PRINCIPAL_NAME"] == "antwoord-deployer"
    assert cli.state["azd"]["AZURE_PRINCIPAL_TYPE"] == "ServicePrincipal"


def test_what_the_templates_take_is_read_from_them(tmp_path: Path) -> None:
    (tmp_path / "main.bicep").write_text(
        "param one string = 'a'\nparam two int = 2\n@description('x')\nparam three string\n"
    )
    (tmp_path / "main.parameters.json").write_text(
        json.dumps({"parameters": {"one": {"value": "${ONE=b}"}, "three": {"value": "${THREE}"}, "four": {"value": 4}}})
    )
    found = read_parameters({}, tmp_path)
    assert (found.values, found.unset) == ({"one": "b", "two": 2, "three": "", "four": 4}, ("THREE",))
    assert read_parameters({"ONE": "c", "THREE": "d"}, tmp_path).values["one"] == "c"


def test_a_console_that_is_not_wanted_stays_off(cli: AzureCli, address: str) -> None:
    preflight(cli, address)
    cli.change("azd", CONSOLE="false")
    assert preflight(cli, address)["sign-in"].state is State.OK
    assert cli.state["azd"]["CONSOLE_CLIENT_ID"] == ""
    cli.change("azd", CONSOLE="true")
    preflight(cli, address)
    assert cli.state["azd"]["CONSOLE_CLIENT_ID"] == "app-1"  # the same one again


def test_a_console_that_is_turned_off_in_other_words_is_not_made_and_an_id_of_ones_own_is_told(
    cli: AzureCli, address: str
) -> None:
    cli.change("azd", CONSOLE="off", CONSOLE_CLIENT_ID="mine")
    found = preflight(cli, address)["sign-in"]
    assert (found.state, "CONSOLE is 'off'" in found.said) == (State.WRONG, True)
    cli.change("azd", CONSOLE="false")
    assert "CONSOLE_CLIENT_ID was mine" in preflight(cli, address)["sign-in"].said
    assert cli.state["azd"]["CONSOLE_CLIENT_ID"] == ""


def test_a_registration_that_was_half_made_is_finished(cli: AzureCli, address: str) -> None:
    cli.fail("az ad sp create", "a fault in between", times=1)
    assert preflight(cli, address)["sign-in"].state is State.ADVICE
    cli.calls()
    assert preflight(cli, address)["sign-in"].state is State.OK
    assert [call[:4] for call in cli.calls() if "create" in call] == [["az", "ad", "sp", "create"]]
    assert cli.state["azd"]["CONSOLE_CLIENT_ID"] == "app-1"
