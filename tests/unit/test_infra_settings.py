"""The app settings in infra/modules/functions.bicep against shared/settings.py."""

from __future__ import annotations

import dataclasses
import json
import re

from shared.settings import Settings, load, setting_name, setting_names
from tests.fakes.bicep import INFRA, read

FILE = read(INFRA / "modules" / "functions.bicep")
OPTIONAL = ("secondaryToken", "sharedKey", "metrics")
# Read by the platform, the Functions host or a library, not by our own settings.
PLATFORM = {
    "AzureWebJobsStorage__credential",
    "AzureWebJobsStorage__clientId",
    "AzureWebJobsStorage__blobServiceUri",
    "AZURE_CLIENT_ID",
    "PYTHON_THREADPOOL_THREAD_COUNT",
    "APPLICATIONINSIGHTS_CONNECTION_STRING",
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
    "AzureMonitorExporter__EnableTraceBasedLogsSampler",
}


def always() -> set[str]:
    return set(FILE.of("var")["always"].names())


def sometimes() -> set[str]:
    return {name for one in OPTIONAL for name in FILE.of("var")[one].names()}


def listed(word: str) -> set[str]:
    return {name for line in re.findall(rf"^//   {word}: (.*)$", FILE.source, re.MULTILINE) for name in line.split()}


def test_every_setting_is_known() -> None:
    assert (always() | sometimes()) - set(setting_names()) == PLATFORM


def test_every_required_setting_is_always_set() -> None:
    required = {setting_name(item) for item in dataclasses.fields(Settings) if not item.metadata["optional"]}
    assert required - always() == set()


def test_every_other_is_set_or_left_out_on_purpose() -> None:
    groups = [always(), sometimes(), listed("default"), listed("never")]
    assert set().union(*groups) - PLATFORM == set(setting_names())
    assert sum(map(len, groups)) == len(set().union(*groups))  # each in one group alone


def test_all_of_them_are_given_to_the_app() -> None:
    assert FILE.of("resource")["settings"].at("properties") == f"union(always, {', '.join(OPTIONAL)})"


def test_secrets_are_references_and_nothing_else_is() -> None:
    values = {name: FILE.of("var")["always"].at(name) for name in always()}
    values |= {name: FILE.of("var")[one].at(name) for one in OPTIONAL for name in FILE.of("var")[one].names()}
    secret = {name for name in values if re.search(r"TOKEN|KEY", name)}
    assert {name for name, value in values.items() if "@Microsoft.KeyVault(SecretUri=" in value} == secret
    assert {name: re.findall(r"vaultSecrets}/([a-z-]+)\)'$", values[name]) for name in secret} == {
        name: [name.lower().replace("_", "-")] for name in secret
    }


def test_the_application_accepts_what_it_will_be_given() -> None:
    samples = {
        "databasePoolMax": "4", "jobConcurrency": "8", "modelEndpoint": "https://oai.example.org/",
        "baseUrl": "https://func.example.org", "twilioWhatsappFrom": "whatsapp:+31201234567", "twilioTemplateSid": "",
        "unknownSenders": "decline", "defaultLanguage": "nl", "outboundAllowHosts": "",
        "chatAnswerLimit": "1000", "chatReasoningEffort": "none",
    }  # fmt: skip
    environment = {"WEBSITE_AUTH_ENABLED": "True", "WEBSITE_SITE_NAME": "func"}
    for name in always():
        value = FILE.of("var")["always"].at(name)
        value = samples.get(value.removeprefix("string(").removesuffix(")"), value)
        environment[name] = "entra" if name == "OPS_AUTH" else value
    environment["SECRETS_KEY"] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    settings = load(environment)
    assert settings.database_auth == "entra"
    assert settings.has_storage
    assert settings.azure_openai_endpoint == "https://oai.example.org"
    assert settings.outbound_allow_hosts == ()
    assert settings.twilio_template_sid is None
    assert settings.azure_openai_reasoning_effort == "none"


def test_the_certificate_of_the_database_is_checked() -> None:
    assert FILE.of("var")["always"].at("DATABASE_URL").strip("'").endswith("?sslmode=${databaseTls}")
    assert read(INFRA / "main.bicep").of("param")["databaseTls"].value == "verify-full"


def test_no_log_line_is_left_out_under_load() -> None:
    """The host's exporter would keep five invocations a second, and with them the lines that the alerts are made of."""
    assert json.loads((INFRA.parent / "host.json").read_text("utf-8"))["telemetryMode"] == "OpenTelemetry"
    always = FILE.of("var")["always"]
    assert always.at("OTEL_TRACES_SAMPLER") == "microsoft.fixed_percentage"
    assert always.at("OTEL_TRACES_SAMPLER_ARG") == "1"
    assert always.at("AzureMonitorExporter__EnableTraceBasedLogsSampler") == "false"


def test_nothing_is_set_that_flex_consumption_refuses() -> None:
    """Runtime, package and scale are said in functionAppConfig; as settings they are refused, or read by nobody."""
    refused = r"FUNCTIONS_(WORKER_RUNTIME|EXTENSION_VERSION|WORKER_PROCESS_COUNT)|SCM_DO_BUILD|ENABLE_ORYX|WEBSITE_"
    assert [name for name in always() | sometimes() if re.match(refused, name)] == []
    assert "linuxFxVersion" not in FILE.source
    assert "alwaysOn" not in FILE.source
