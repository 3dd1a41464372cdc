"""What would make a deployment fail after twenty minutes, looked at before it: tools, sign-in, names, region, models, quota.

What azd asks for and Azure knows better (who deploys, and from which address) is set here.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpx2

from cli.azure import models, registration, same_person
from cli.azure.parameters import Parameters
from cli.azure.programs import INSTALL, ProgramFailed
from cli.azure.values import Values
from cli.doctor.finding import Finding, State, advice, left_out, ok, wrong
from shared.clients.deadline import deadline
from shared.clients.http import DeadlineTransport
from shared.db.budget import HEARTBEATS
from shared.errors import UserError

PYTHON = (3, 13)
AZ = (2, 60, 0)  # the first one with Flex Consumption
AZD = (1, 18, 0)  # the first one that reads .funcignore: an older one would upload local.settings.json too
GROUPS = 3  # of functions, each of which scales by itself
RESERVED_CONNECTIONS = 15  # of max_connections, which the service keeps
# By how a size begins.
TIERS = {"standard_b": "Burstable", "standard_d": "GeneralPurpose", "standard_e": "MemoryOptimized"}
SERVER_NAME = re.compile(r"psql-antwoord-[a-z0-9]{13}")  # as in main.bicep; and not one that was restored beside it
OUR_NAME = re.compile(r"(kv-antw|oai-antwoord)-[a-z0-9]{13}")  # of what keeps its name when it is deleted
SUBNET_SERVICE = "Microsoft.App"  # as in modules/network.bicep
ADDRESS_SERVICE = "https://api.ipify.org"  # answers the caller's public address, and nothing else
ADDRESS_SECONDS = 5.0


def check(values: Values, parameters: Parameters, *, address_service: str, today: datetime.date) -> Iterator[Finding]:
    """Everything, in the order in which one thing needs the other."""
    tools = list(_tools(values))
    yield from tools
    if any(tool.state is State.WRONG for tool in tools):
        yield left_out("the rest", "The tools come first.")
        return
    signed_in, account = _account(values)
    yield signed_in
    if account is None:
        yield left_out("the rest", "Sign in first.")
        return
    yield from _unless_odd(same_person.CHECK, lambda: [same_person.check(values, account)])
    yield from _unless_odd("deployer", lambda: [_deployer(values, account)])
    yield from _values(values, parameters)
    yield _connections(parameters)
    if not values.is_on("PRIVATE_NETWORK"):
        yield _address(values, address_service)
    location = values.get("AZURE_LOCATION")
    if not location:
        yield left_out("region", "AZURE_LOCATION is not chosen yet: azd asks for it; then run this again.")
        return
    programs = values.programs
    yield from _unless_odd("names", lambda: [_deleted(values, location)])
    yield from _unless_odd("functions", lambda: [_functions(values, location)])
    if values.is_on("PRIVATE_NETWORK"):
        yield from _unless_odd("network", lambda: [_network(values)])
    yield from _unless_odd("postgres", lambda: [_server(values, parameters, location)])
    yield from _unless_odd("storage", lambda: _storage(values, parameters))
    yield from _unless_odd(
        "models", lambda: models.check(programs, parameters, location, today, is_deployed=_has_model(values))
    )
    yield from _unless_odd("sign-in", lambda: [registration.ensure(values)])


def _unless_odd(check: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The shape of az's answers changes between its versions: what is not understood was not looked at."""
    try:
        yield from look()
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as odd:
        yield left_out(
            check, f"`az` answers otherwise than is known here ({type(odd).__name__}): the deployment will tell."
        )


def _tools(values: Values) -> Iterator[Finding]:
    here = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= PYTHON:
        yield ok("python", f"{here}.")
    else:
        yield wrong("python", f"It is {here}: install Python {PYTHON[0]}.{PYTHON[1]}.")
    for name, least in (("az", AZ), ("azd", AZD)):
        try:
            said = str(values.programs.az("version")) if name == "az" else values.programs.azd("version")
        except UserError as missing:
            yield wrong(name, str(missing))
            continue
        number = r"(\d+)\.(\d+)\.(\d+)"
        found = re.search(rf"azure-cli'?:? '?{number}" if name == "az" else number, said)
        version = tuple(map(int, found.groups())) if found else (0, 0, 0)
        shown, wanted = ".".join(map(str, version)), ".".join(map(str, least))
        if version >= least:
            yield ok(name, f"{shown}.")
        else:
            yield wrong(name, f"It is {shown}, and {wanted} is needed: upgrade it ({INSTALL[name]}).")


def _account(values: Values) -> tuple[Finding, dict[str, Any] | None]:
    try:
        account = values.programs.az("account", "show")
    except ProgramFailed as failed:
        return wrong("signed in", f"Run `az login` (and `azd auth login`). {failed.said}"), None
    if not isinstance(account, dict) or not {"id", "name", "user"} <= account.keys():
        return wrong(
            "signed in", "`az account show` does not say who is signed in: run `az login`, or upgrade `az`."
        ), None
    wanted = values.get("AZURE_SUBSCRIPTION_ID")
    if wanted and account["id"] != wanted:
        return wrong(
            "signed in",
            f"`az` is in the subscription {account['id']}, azd in {wanted}: run `az account set -s {wanted}`.",
        ), None
    if account.get("state") != "Enabled":
        return wrong(
            "signed in", f"The subscription {account['name']} is {account.get('state')}: choose another one."
        ), None
    return ok("signed in", f"As {account['user']['name']}, in {account['name']}."), account


def _deployer(values: Values, account: dict[str, Any]) -> Finding:
    """Postgres knows the deployer by a name: of a user the principal name, of an application what it is called."""
    is_person = account["user"].get("type") == "user"
    known = values.get("AZURE_PRINCIPAL_NAME")  # azd takes the id and type of who is signed in to it, whatever is set
    try:
        if is_person:
            name = str(values.programs.az("ad", "signed-in-user", "show", "--query", "userPrincipalName"))
        else:
            name = str(
                values.programs.az("ad", "sp", "show", "--id", account["user"]["name"], "--query", "displayName")
            )
    except ProgramFailed as failed:
        if known:
            return ok("deployer", f"{known}, as set.")
        return wrong(
            "deployer",
            "Entra does not tell your name: `azd env set AZURE_PRINCIPAL_NAME` your user principal name, or the display name "
            f"of the application that deploys. {failed.said}",
        )
    values.put("AZURE_PRINCIPAL_NAME", name)
    values.put("AZURE_PRINCIPAL_TYPE", "User" if is_person else "ServicePrincipal")
    return ok("deployer", f"{name} becomes the database's administrator.")


def _values(values: Values, parameters: Parameters) -> Iterator[Finding]:
    name = values.get("AZURE_ENV_NAME")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}[A-Za-z0-9]|[A-Za-z0-9]", name):
        yield wrong(
            "name",
            f"The azd environment is called {name!r}: letters, digits and hyphens alone, at most 64 (`azd env new`).",
        )
    known = ("AZURE_ENV_NAME", "AZURE_LOCATION", "AZURE_PRINCIPAL_NAME", "AZURE_PRINCIPAL_ID")
    unset = [variable for variable in parameters.unset if variable not in known]
    if unset:
        yield wrong(
            "values",
            f"Not set: {', '.join(unset)}. `azd env set NAME VALUE` for each; docs/deploy.md says what they are.",
        )
    else:
        yield ok("values", "All that the templates ask for are set.")
    if parameters.mistyped:
        yield wrong(
            "values",
            f"{', '.join(parameters.mistyped)}: a switch is true or false, a number has digits alone. azd would take the "
            "default in its place and not say so.",
        )
    number = parameters.text("twilioWhatsappFrom")
    if number and not re.fullmatch(r"(whatsapp:)?\+[1-9]\d{6,14}", number):
        yield wrong(
            "values", f"TWILIO_WHATSAPP_FROM is {number!r}: a number in E.164, for example whatsapp:+31201234567."
        )
    account = parameters.text("twilioAccountSid")
    if account and not re.fullmatch(r"AC[0-9a-fA-F]{32}", account):
        yield wrong("values", "TWILIO_ACCOUNT_SID is not one: AC and 32 digits, on the first page of Twilio's console.")


def _connections(parameters: Parameters) -> Finding:
    pool, always = parameters.number("databasePoolMax", 4), parameters.number("httpAlwaysReady", 0)
    instances, limit = parameters.number("maximumInstances", 2), parameters.number("databaseMaxConnections", 50)
    needed, given = (GROUPS * instances + always) * (pool + HEARTBEATS), limit - RESERVED_CONNECTIONS
    told = f"{GROUPS} groups of at most {instances} instances take {needed} connections, the server gives {given}"
    if needed > given:
        return wrong("connections", f"{told}: lower MAXIMUM_INSTANCES or DB_POOL_MAX, or choose a larger DATABASE_SKU.")
    return ok("connections", f"{told}.")


def _address(values: Values, service: str) -> Finding:
    """The database lets in this machine, which is the one that migrates it."""
    known = values.get("DEPLOYER_ADDRESS")
    try:
        with (
            httpx2.Client(transport=DeadlineTransport(body_limit=64), timeout=ADDRESS_SECONDS) as client,
            deadline(ADDRESS_SECONDS),
        ):
            found = str(ipaddress.IPv4Address(client.get(service).raise_for_status().text.strip()))
    except (httpx2.HTTPError, ValueError):
        if known:
            return ok("address", f"The database will let in {known}, as set.")
        return wrong(
            "address",
            "This machine's public address cannot be found, and the database must let it in: `azd env set DEPLOYER_ADDRESS` "
            "your public IPv4 address.",
        )
    values.put("DEPLOYER_ADDRESS", found)
    return ok("address", f"The database will let in this machine, {found}.")


def _deleted(values: Values, location: str) -> Finding:
    """What `azd down` left behind keeps its name for months: then it is taken back instead of made."""
    environment = values.get("AZURE_ENV_NAME")
    set_by_hand = [switch for switch in ("RECOVER_VAULT", "RECOVER_MODEL") if values.is_on(switch)]
    try:
        vaults = values.programs.az("keyvault", "list-deleted", "--resource-type", "vault") or []
        accounts = values.programs.az("cognitiveservices", "account", "list-deleted") or []
    except ProgramFailed as failed:
        ways = (
            f"{' and '.join(set_by_hand)} is on, as set: right only while it lies deleted, so set it to false afterwards."
            if set_by_hand
            else "If this environment was deployed before and taken down, its names are kept (the vault cannot be purged): set "
            "RECOVER_VAULT (within 90 days) and RECOVER_MODEL (within 48 hours) to true for this one deployment."
        )
        return left_out("names", f"Azure does not say which names are kept by what was deleted. {ways} {failed.said}")
    found: list[str] = []
    # Each by itself: a vault is kept for 90 days, a model account for two, and what is not there cannot be taken back.
    for switch, items in (("RECOVER_VAULT", vaults), ("RECOVER_MODEL", accounts)):
        ours = [str(item.get("name")) for item in items if _belongs(item, environment, location)]
        values.put(switch, "true" if ours else "false")
        found += ours
    if found:
        return advice("names", f"Deleted before, and taken back with what is in it: {', '.join(found)}.")
    return ok("names", "Free: nothing that was deleted keeps them.")


def _belongs(item: dict[str, Any], environment: str, location: str) -> bool:
    """By the tag of azd; or, where az does not show the tags, by our names in this environment's resource group."""
    properties = item.get("properties") or {}
    tags = item.get("tags") or properties.get("tags") or {}
    place = str(item.get("location") or properties.get("location") or "")
    was = f"{item.get('id')}/ {properties.get('vaultId')}/".lower()
    in_group = f"/resourcegroups/rg-{environment}/".lower() in was
    is_named_so = OUR_NAME.fullmatch(str(item.get("name"))) is not None
    is_ours = tags["azd-env-name"] == environment if "azd-env-name" in tags else in_group and is_named_so
    return is_ours and _same_region(place, location)


def _functions(values: Values, location: str) -> Finding:
    try:
        offered = values.programs.az("functionapp", "list-flexconsumption-locations") or []
        if not any(_same_region(str(one.get("name")), location) for one in offered):
            return wrong("functions", f"{location} has no Flex Consumption: choose another AZURE_LOCATION.")
        runtimes = values.programs.az(
            "functionapp", "list-flexconsumption-runtimes", "--location", location, "--runtime", "python"
        )
    except ProgramFailed as failed:
        return left_out("functions", f"Azure does not say what Flex Consumption offers in {location}. {failed.said}")
    python = ".".join(map(str, PYTHON))
    if python not in _texts(runtimes):
        return wrong(
            "functions", f"Flex Consumption has no Python {python} in {location}: choose another AZURE_LOCATION."
        )
    return ok("functions", f"{location} has Flex Consumption with Python {python}.")


def _network(values: Values) -> Finding:
    """A subnet of Flex Consumption is handed to a service that the templates do not name, so nothing registers it by itself."""
    try:
        state = values.programs.az("provider", "show", "--namespace", SUBNET_SERVICE, "--query", "registrationState")
    except ProgramFailed as failed:
        return left_out("network", f"Azure does not say whether {SUBNET_SERVICE} is registered. {failed.said}")
    if state != "Registered":
        return wrong(
            "network",
            f"The subscription does not know {SUBNET_SERVICE}, which the functions' subnet needs: run `az provider register "
            f"--namespace {SUBNET_SERVICE} --wait`.",
        )
    return ok("network", f"The subscription knows {SUBNET_SERVICE}, which the functions' subnet needs.")


def _server(values: Values, parameters: Parameters, location: str) -> Finding:
    size, tier = parameters.text("databaseSku", "Standard_B1ms"), parameters.text("databaseTier", "Burstable")
    fitting = next((name for begins, name in TIERS.items() if size.lower().startswith(begins)), tier)
    if fitting != tier:
        return wrong("postgres", f"{size} is of the tier {fitting}, not {tier}: set DATABASE_TIER.")
    if tier == "Burstable" and parameters.text("databaseHighAvailability", "Disabled") != "Disabled":
        return wrong(
            "postgres", f"{size} has no standby: set DATABASE_HIGH_AVAILABILITY to Disabled, or a larger DATABASE_SKU."
        )
    try:
        sizes = values.programs.az("postgres", "flexible-server", "list-skus", "--location", location)
    except ProgramFailed as failed:
        return wrong(
            "postgres", f"{location} offers you no Postgres server: choose another AZURE_LOCATION. {failed.said}"
        )
    if size.lower() not in {text.lower() for text in _texts(sizes)}:
        return wrong(
            "postgres", f"{location} has no server of the size {size}: set DATABASE_SKU, or another AZURE_LOCATION."
        )
    return ok("postgres", f"{location} has servers of the size {size}.")


def _storage(values: Values, parameters: Parameters) -> Iterator[Finding]:
    """Storage grows by itself, and a deployment that asks for less is refused."""
    group, asked = f"rg-{values.get('AZURE_ENV_NAME')}", parameters.number("databaseStorageGb", 32)
    try:
        servers = values.programs.az("postgres", "flexible-server", "list", "--resource-group", group) or []
    except ProgramFailed:
        return  # no group as yet
    for server in servers:
        size = next((int(size) for name, size in server["storage"].items() if name.lower() == "storagesizegb"), 0)
        if SERVER_NAME.fullmatch(server["name"]) and size > asked:
            values.put("DATABASE_STORAGE_GB", str(size))
            yield advice("storage", f"The database's has grown to {size} GiB, so DATABASE_STORAGE_GB is set to that.")


def _has_model(values: Values) -> bool:
    """Whether the deployments are there already; a pipeline's environment is new each time and cannot say."""
    if values.get("AZURE_OPENAI_ENDPOINT"):
        return True
    group = f"rg-{values.get('AZURE_ENV_NAME')}"
    try:
        return bool(values.programs.az("cognitiveservices", "account", "list", "--resource-group", group))
    except ProgramFailed:
        return False  # no group as yet


def _same_region(one: str, other: str) -> bool:
    """`West Europe` is westeurope."""
    return one.replace(" ", "").lower() == other.replace(" ", "").lower()


def _texts(answer: Any) -> set[str]:
    """Every text in an answer, at whatever depth: its shape differs between versions of az."""
    if isinstance(answer, dict):
        return set().union(*map(_texts, answer.values()))
    if isinstance(answer, list):
        return set().union(*map(_texts, answer))
    return {answer} if isinstance(answer, str) else set()
