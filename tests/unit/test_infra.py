"""The templates under infra/, as far as they can be checked without Microsoft's compiler and without Azure."""

from __future__ import annotations

import ast
import json
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from shared.clients.wake import QUEUE_NAME
from shared.db.budget import HEARTBEATS
from tests.fakes.bicep import FILES, INFRA, MAIN, Declaration, read, walk

ROOT = INFRA.parent
MODULES = INFRA / "modules"
FUNCTIONS = {
    "empty", "environment", "guid", "loadTextContent", "replace", "resourceGroup", "string", "subscription",
    "subscriptionResourceId", "tenant", "union", "uniqueString",
}  # fmt: skip
LOGS = {"telemetry.event", "telemetry.warning", "telemetry.error"}
WORDS = {"description", "secure", "allowed", "minValue", "maxValue", "minLength", "maxLength", "true", "false", "null"}
# By size, what the service gives to users: learn.microsoft.com, "Limits in Azure Database for PostgreSQL flexible server".
USER_CONNECTIONS = {"Standard_B1ms": 35, "Standard_B2s": 414}


def name_of(path: Path) -> str:
    return path.stem


def default(name: str) -> str:
    value = read(MAIN).of("param")[name].value
    assert value is not None, name
    return value


def resource(module: str, name: str) -> Declaration:
    return read(MODULES / f"{module}.bicep").of("resource")[name]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_file_is_understood(path: Path) -> None:
    assert read(path).broken() == []
    assert read(path).declarations


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_parameter_is_described_and_used(path: Path) -> None:
    file = read(path)
    for kind in ("param", "output"):
        for one in file.of(kind).values():
            assert any(said.startswith("@description('") and len(said) > 20 for said in one.decorators), one.name
    assert set(file.of("param")) - file.used() == set()
    assert set(file.of("var")) - file.used() == set()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_name_is_declared(path: Path) -> None:
    file = read(path)
    loops = {name for node in walk(file.root) if node.type == "for_statement" for name in _loop_names(node.text or b"")}
    types = {"string", "int", "bool", "object", "array"}
    assert file.used() - {one.name for one in file.declarations} - loops - FUNCTIONS - WORDS - types == set()


def _loop_names(source: bytes) -> list[str]:
    found = re.match(r"\[\s*for\s+\(?(\w+)(?:,\s*(\w+)\))?", source.decode())
    return [name for name in found.groups() if name] if found else []


def test_modules_get_all_that_they_ask_for_and_give_what_is_read() -> None:
    main = read(MAIN)
    modules = {name: (one, read(INFRA / one.type)) for name, one in main.of("module").items()}
    assert {file.path for _, file in modules.values()} == set(FILES) - {MAIN}
    for name, (module, file) in modules.items():
        asked = file.of("param")
        required = {param for param, one in asked.items() if one.value is None}
        given = set(module.names("params"))
        assert given <= set(asked), name
        assert required <= given, name
    for name, output in re.findall(r"\b(\w+)\.outputs\.(\w+)", main.source):
        assert output in modules[name][1].of("output"), f"{name}.outputs.{output}"


def test_a_type_has_one_version_and_a_stable_one() -> None:
    versions: dict[str, set[str]] = {}
    for path in FILES:
        for one in read(path).of("resource").values():
            provider, version = one.type.split("@")
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", version) or provider == "Microsoft.Insights/diagnosticSettings"
            versions.setdefault(provider, set()).add(version)
    assert {provider: found for provider, found in versions.items() if len(found) > 1} == {}


def test_nothing_secret_comes_in_or_goes_out() -> None:
    for path in FILES:
        file = read(path)
        assert not re.search(r"\blist\w*\(|\bgetSecret\(|administratorLoginPassword", file.source), path.name
        for one in file.of("param").values():
            assert "@secure()" not in one.decorators
            assert not re.search(r"(?i)secret|password|token$|credential", one.name), one.name
        for one in file.of("output").values():
            assert not re.search(r"(?i)secret|password|token|connectionstring|[a-z]key$", f"{one.name} {one.value}"), (
                one.name
            )
    assert not re.search(r"vaults/secrets", "".join(read(path).source for path in FILES))


def test_the_parameters_file_fits() -> None:
    asked = read(MAIN).of("param")
    given = json.loads((INFRA / "main.parameters.json").read_text("utf-8"))["parameters"]
    assert set(given) <= set(asked)
    assert {name for name, one in asked.items() if one.value is None} <= set(given)
    for name, item in given.items():
        found = re.fullmatch(r"\$\{[A-Z_]+(?:=([^}]*))?\}", item["value"])
        assert found, name
        assert found[1] == asked[name].value, name  # None: no default, here and there


def test_azd_finds_what_it_is_told() -> None:
    project = yaml.safe_load((ROOT / "azure.yaml").read_text("utf-8"))
    assert (ROOT / project["infra"]["path"] / f"{project['infra']['module']}.bicep") == MAIN
    (service,) = project["services"]
    assert f"'azd-service-name': '{service}'" in resource("functions", "site").at("tags")
    assert (ROOT / project["services"][service]["project"] / "function_app.py").exists()
    assert list(project["hooks"]) == ["preprovision", "postprovision", "postdeploy"]
    for hook in project["hooks"].values():
        assert os.access(ROOT / hook["run"], os.X_OK), hook["run"]


def test_the_doors_are_shut() -> None:
    server = resource("database", "server")
    assert server.at("properties", "version") == "17"
    assert server.at("properties", "authConfig", "passwordAuth") == "Disabled"
    assert server.at("properties", "authConfig", "activeDirectoryAuth") == "Enabled"
    account = resource("storage", "account")
    for name, value in (
        ("allowSharedKeyAccess", "false"), ("allowBlobPublicAccess", "false"), ("supportsHttpsTrafficOnly", "true"),
        ("minimumTlsVersion", "TLS1_2"),
    ):  # fmt: skip
        assert account.at("properties", name) == value
    assert resource("model", "account").at("properties", "disableLocalAuth") == "true"
    assert resource("observation", "insights").at("properties", "DisableLocalAuth") == "true"
    vault = resource("vault", "vault")
    assert (
        vault.at("properties", "enableRbacAuthorization") == vault.at("properties", "enablePurgeProtection") == "true"
    )
    assert resource("vault", "audit").at("scope") == "vault"
    site = resource("functions", "site")
    assert site.at("properties", "httpsOnly") == "true"
    assert site.at("properties", "siteConfig", "minTlsVersion") == "1.2"
    assert site.at("properties", "siteConfig", "ftpsState") == "Disabled"
    for name in ("ftp", "scm"):
        assert resource("functions", name).at("name") == name
        assert resource("functions", name).at("properties", "allow") == "false"


def test_forged_identity_headers_are_stripped_on_every_path() -> None:
    sign_in = resource("functions", "signIn")
    assert sign_in.at("name") == "authsettingsV2"
    assert sign_in.at("properties", "platform", "enabled") == "true"
    assert sign_in.names("properties", "globalValidation") == ["requireAuthentication", "unauthenticatedClientAction"]
    assert sign_in.at("properties", "globalValidation", "requireAuthentication") == "false"
    assert sign_in.at("properties", "globalValidation", "unauthenticatedClientAction") == "AllowAnonymous"
    assert "excludedPaths" not in read(MODULES / "functions.bicep").source


def test_the_server_is_changed_one_thing_at_a_time() -> None:
    children = [one for one in read(MODULES / "database.bicep").of("resource").values() if one.at("parent") == "server"]
    assert len(children) == 5
    for before, after in pairwise(children):
        assert after.at("dependsOn").strip("[] \n") == before.name
    deployments = [one for one in read(MODULES / "model.bicep").of("resource").values() if one.at("parent")]
    assert deployments[1].at("dependsOn").strip("[] \n") == deployments[0].name


def test_the_extensions_are_allowed() -> None:
    allowed = resource("database", "extensions").at("properties", "value")
    assert sorted(allowed.split(",")) == ["BTREE_GIN", "PG_TRGM", "UNACCENT", "VECTOR"]


def test_the_connections_fit() -> None:
    groups = _function_groups()
    assert groups == {"http", "poll", "wake"}
    instances, pool = int(default("maximumInstances")), int(default("databasePoolMax"))
    assert len(groups) * instances * (pool + HEARTBEATS) <= USER_CONNECTIONS[default("databaseSku")]
    told = read(MAIN).of("output")["DATABASE_CONNECTIONS_AT_MOST"].value
    assert told == f"({len(groups)} * maximumInstances + httpAlwaysReady) * (databasePoolMax + {HEARTBEATS})"
    said = (MODULES / "database.bicep").read_text("utf-8")
    assert (
        f"{len(groups)} × {instances} × ({pool} + {HEARTBEATS}) = {len(groups) * instances * (pool + HEARTBEATS)}"
        in said
    )


def _function_groups() -> set[str]:
    """HTTP functions scale together, every other by itself."""
    groups = set()
    for node in ast.walk(ast.parse((ROOT / "function_app.py").read_text("utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute):
                groups.add("http" if decorator.func.attr == "route" else node.name)
    return groups


def test_it_fits_host_json() -> None:
    host = json.loads((ROOT / "host.json").read_text("utf-8"))["extensions"]
    assert int(default("httpConcurrency")) == host["http"]["maxConcurrentRequests"]
    always = read(MODULES / "functions.bicep").of("var")["always"]
    threads = int(always.at("PYTHON_THREADPOOL_THREAD_COUNT"))
    queue = host["queues"]
    assert threads >= host["http"]["maxConcurrentRequests"] + queue["batchSize"] + queue["newBatchThreshold"] + 2
    assert resource("storage", "wake").at("name") == QUEUE_NAME


def test_the_embedding_stays_what_the_table_holds() -> None:
    assert default("embeddingModel") == "text-embedding-3-small"  # 1,536 dimensions
    assert resource("model", "embedding").at("properties", "versionUpgradeOption") == "NoAutoUpgrade"


def test_alerts_and_workbook_ask_for_lines_that_are_logged() -> None:
    book = (MODULES / "workbook.json").read_text("utf-8")
    queries = [item["content"]["query"] for item in json.loads(book)["items"] if "query" in item["content"]]
    asked = (MODULES / "alerts.bicep").read_text("utf-8") + "\n".join(queries)
    logged = _logged()
    assert (
        set(re.findall(r'\{"event": "(\w+)"', asked)) == {"gauges", "job_failed", "endpoint_disabled"} <= logged.keys()
    )
    fields = set(re.findall(r"\bgauge\.(\w+)|parse_json\(Message\)\.(?!event)(\w+)", asked))
    assert {one or other for one, other in fields} <= logged["gauges"]
    assert set(re.findall(r"\bline\.(\w+)", asked)) == {"reason"} <= logged["endpoint_disabled"]


def _logged() -> dict[str, set[str]]:
    """By event, the fields that are logged with it."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "shared").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in LOGS:
                for name in (one.value for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant)):
                    found.setdefault(str(name), set()).update(one.arg for one in node.keywords if one.arg)
    return found
