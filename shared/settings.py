"""Every setting: its name, type, default and meaning; and one error that lists all that is wrong.

The environment is the only source here. On a developer's machine the command puts `Values` of `local.settings.json`
into the environment first (what is set already wins), as Azure does with the app settings.
"""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote

from shared.errors import SettingsError

EMBEDDING_DIMENSIONS = 1536  # the width of chunks.embedding, fixed by migration 0001
SECONDS_OF_SETTLING_AT_MOST = 6.0
KEY_BYTES = 32
LESSER_ROLES = ("Antwoord.Viewer", "Antwoord.Operator")  # app roles of the console that look, and that also act

Parser = Callable[[str], Any]

_INSIDE = re.compile(r"://[^/\s:@]*:([^\s@]+)@|(?:password=|AccountKey=|SharedAccessSignature=)([^\s;&]+)")


def _text(value: str) -> str:
    return value


def _origin(value: str) -> str:
    """Scheme and host, no slash: a trailing one is forgiven, a path is not."""
    origin = value.rstrip("/")
    if not re.fullmatch(r"https?://[^/\s?#]+", origin):
        raise ValueError("must be a scheme and a host, for example https://antwoord.example.org")
    return origin


def _number(low: float, high: float) -> Parser:
    def parse(value: str) -> float:
        number = float(value)
        if not low <= number <= high:
            raise ValueError(f"must be between {low:g} and {high:g}")
        return number

    return parse


def _whole(low: int, high: int) -> Parser:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[+-]?\d+", value.strip()):
            raise ValueError("must be a whole number")
        number = int(value)
        if not low <= number <= high:
            raise ValueError(f"must be between {low} and {high}")
        return number

    return parse


def _word(*words: str) -> Parser:
    def parse(value: str) -> str:
        if value.lower() not in words:
            raise ValueError("must be " + " or ".join(words))
        return value.lower()

    return parse


def _switch(value: str) -> bool:
    if value.lower() in ("on", "true", "1"):
        return True
    if value.lower() in ("off", "false", "0"):
        return False
    raise ValueError("must be on or off")


def _dimensions(value: str) -> int:
    if value.strip() != str(EMBEDDING_DIMENSIONS):
        raise ValueError(
            f"must be {EMBEDDING_DIMENSIONS}: the width of chunks.embedding is fixed by a migration; to change it, "
            "write a migration that alters the column and deletes the chunks, then add the documents again"
        )
    return int(value)


def _keys(value: str) -> tuple[bytes, ...]:
    """One key of 32 bytes as base64, or two, the new one first."""
    try:
        keys = tuple(base64.b64decode(part.strip(), validate=True) for part in value.split(","))
    except ValueError:
        keys = ()
    if not 1 <= len(keys) <= 2 or any(len(key) != KEY_BYTES for key in keys):
        raise ValueError("must be 32 bytes as base64, or two such keys with a comma between while rotating")
    return keys


def _hosts(value: str) -> tuple[str, ...]:
    """Names of hosts, separated by commas; each with a port or without one."""
    hosts = tuple(part.strip().lower() for part in value.split(",") if part.strip())
    for host in hosts:
        if not re.fullmatch(r"[a-z0-9._-]+(:[0-9]{1,5})?|\[[0-9a-f:]+\](:[0-9]{1,5})?", host):
            raise ValueError("must be names of hosts with commas between, without scheme and path")
    return hosts


def _administrators_role(value: str) -> str:
    """Not one that means less: whoever has it, to look or to act, would be an administrator."""
    if value in LESSER_ROLES:
        raise ValueError("is the role of those who may do less: leave it unset, or name a role of administrators alone")
    return value


def _whatsapp_number(value: str) -> str:
    number = value if value.startswith("whatsapp:") else f"whatsapp:{value}"
    if not re.fullmatch(r"whatsapp:\+[1-9]\d{6,14}", number):
        raise ValueError("must be a number in E.164, for example whatsapp:+31201234567")
    return number


def _setting(parse: Parser, meaning: str, default: Any = dataclasses.MISSING) -> Any:
    metadata = {"parse": parse, "meaning": meaning, "optional": default is not dataclasses.MISSING}
    return field(default=None if default is dataclasses.MISSING else default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the application runs with. A field's name is the setting's name in lower case."""

    database_url: str = _setting(_text, "where Postgres is, as a postgresql:// URL")
    database_auth: Literal["password", "entra"] = _setting(
        _word("password", "entra"), "how to sign in to Postgres", "password"
    )

    azure_openai_endpoint: str = _setting(_origin, "the resource's address; the base is <endpoint>/openai/v1/")
    azure_openai_api_key: str | None = _setting(_text, "its key; without one the managed identity is used", None)
    azure_openai_chat_deployment: str = _setting(_text, "the deployment that writes answers")
    azure_openai_embedding_deployment: str = _setting(_text, "the deployment that embeds texts")
    azure_openai_answer_limit: int = _setting(
        _whole(16, 32_768), "tokens that an answer may take at most, reasoning among them; Azure reserves so many", 1000
    )
    azure_openai_reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = _setting(
        _word("none", "minimal", "low", "medium", "high", "xhigh"),
        "how long the model may reason before it answers; sent only when set",
        None,
    )
    embedding_dimensions: int = _setting(_dimensions, "fixed by migration", EMBEDDING_DIMENSIONS)

    twilio_account_sid: str = _setting(_text, "the account's SID, AC…")
    twilio_auth_token: str = _setting(_text, "its auth token: signs webhooks and calls")
    twilio_auth_token_secondary: str | None = _setting(_text, "the other token while rotating", None)
    twilio_webhook_shared_key: str | None = _setting(_text, "the key of Twilio's HMAC-SHA256 signatures", None)
    twilio_whatsapp_from: str = _setting(_whatsapp_number, "the number that answers, whatsapp:+…")
    twilio_api_base_url: str | None = _setting(_origin, "replaces both of Twilio's hosts (a stand-in)", None)
    twilio_template_sid: str | None = _setting(
        _text, "the approved template that carries an answer after WhatsApp's 24 hours; without one it is held", None
    )
    public_base_url: str = _setting(_origin, "where Twilio reaches this app: scheme and host, no slash")

    job_concurrency: int = _setting(_whole(1, 64), "jobs that run at once in one process", 8)
    db_pool_max: int = _setting(_whole(1, 64), "connections of one process", 4)
    job_lease_seconds: float = _setting(_number(1, 600), "how long a claim holds without a renewal", 30.0)
    job_max_seconds: float = _setting(_number(1, 3600), "how long one step of a job may take", 60.0)
    drain_seconds: float = _setting(_number(1, 540), "how long one timer run takes jobs", 55.0)
    poll_schedule: str = _setting(_text, "the timer's schedule, six fields", "*/5 * * * * *")
    slow_job_threshold_ms: int = _setting(_whole(1, 3_600_000), "a longer job is logged as slow", 8000)

    settle_seconds: float = _setting(
        _number(0, SECONDS_OF_SETTLING_AT_MOST), "how long to wait for the rest of a burst", 1.5
    )
    reconcile_window_seconds: float = _setting(
        _number(1, 3600), "how long after a send the last look at Twilio must be before it is sent again", 120.0
    )
    ambiguous_send: Literal["resend", "hold"] = _setting(
        _word("resend", "hold"), "what follows when looking finds nothing: send again, or hold for a person", "resend"
    )
    sweep_minutes: int = _setting(_whole(1, 1440), "how often Twilio is asked for messages that never came in", 15)
    sweep_hours: int = _setting(_whole(1, 24 * 7), "how far back it is asked", 24)
    job_retention_days: int = _setting(_whole(1, 3650), "how long finished jobs and their attempts are kept", 30)

    unknown_senders: Literal["decline", "answer"] = _setting(
        _word("decline", "answer"), "what numbers that are not in people get", "decline"
    )
    sender_daily_limit: int = _setting(_whole(1, 10_000), "answers to one conversation in 24 hours", 50)
    default_language: Literal["nl", "en"] = _setting(_word("nl", "en"), "when nothing tells the language", "nl")
    ai_notice: bool = _setting(_switch, "say that a digital assistant answers", True)
    typing_indicator: bool = _setting(_switch, "show that an answer is being written", True)
    retrieval_floor: float | None = _setting(
        _number(-1, 1), "least cosine of a relevant chunk; by model when absent", None
    )

    ops_auth: Literal["off", "local", "entra"] = _setting(
        _word("off", "local", "entra"),
        "who may open the console: nobody, whoever has a one-time link, or by Entra ID",
        "off",
    )
    ops_tenant_id: str | None = _setting(_text, "the Entra tenant of the console's administrators", None)
    ops_role: str = _setting(_administrators_role, "the app role that an administrator must have", "Antwoord.Admin")

    secrets_key: tuple[bytes, ...] | None = _setting(
        _keys, "seals the secrets of webhooks: 32 bytes as base64; new,old while rotating", None
    )
    metrics_token: str | None = _setting(_text, "who sends it as a bearer token may read /api/metrics", None)
    outbound_allow_hosts: tuple[str, ...] = _setting(
        _hosts, "internal hosts that deliveries and imports may reach, also over http", ()
    )

    azurewebjobsstorage: str | None = field(
        default=None,
        metadata={"parse": _text, "meaning": "the storage account of the wake queue; without one only the timer works",
                  "optional": True, "name": "AzureWebJobsStorage"},
    )  # fmt: skip
    azurewebjobsstorage_account_name: str | None = field(
        default=None,
        metadata={"parse": _text, "meaning": "the storage account's name, with the app's identity instead of a key",
                  "optional": True, "name": "AzureWebJobsStorage__accountName"},
    )  # fmt: skip
    azurewebjobsstorage_queue_service_uri: str | None = field(
        default=None,
        metadata={"parse": _text, "meaning": "the account's queue service, where its name alone does not tell",
                  "optional": True, "name": "AzureWebJobsStorage__queueServiceUri"},
    )  # fmt: skip

    @property
    def has_storage(self) -> bool:
        """Whether there is a storage account for the wake queue, by connection string or by identity."""
        return bool(
            self.azurewebjobsstorage
            or self.azurewebjobsstorage_account_name
            or self.azurewebjobsstorage_queue_service_uri
        )

    def secrets(self) -> list[str]:
        """What must never be shown: keys and tokens, and those inside an address."""
        named = {setting_name(item): getattr(self, item.name) for item in dataclasses.fields(self)}
        named["SECRETS_KEY"] = None
        whole = [value for name, value in named.items() if value and ("TOKEN" in name or name.endswith("KEY"))]
        whole += [base64.b64encode(key).decode("ascii") for key in self.secrets_key or ()]
        addresses = f"{self.database_url or ''} {self.azurewebjobsstorage or ''}"
        return whole + [found for pair in _INSIDE.findall(addresses) for found in (*pair, *map(unquote, pair)) if found]


def setting_name(item: dataclasses.Field[Any]) -> str:
    """The name of a field in the environment."""
    return str(item.metadata.get("name", item.name.upper()))


def setting_names() -> list[str]:
    """The names of all settings in the environment."""
    return [setting_name(item) for item in dataclasses.fields(Settings)]


def load(environment: Mapping[str, str], *, only: Collection[str] | None = None) -> Settings:
    """Read the settings.

    `only` names the settings (fields of `Settings`) that must be there; others that are absent keep None, so that
    `migrate` runs with DATABASE_URL alone. Raises SettingsError with everything that is missing or wrong.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    for item in dataclasses.fields(Settings):
        name, text = setting_name(item), environment.get(setting_name(item), "")
        if text.strip():
            try:
                values[item.name] = item.metadata["parse"](text.strip())
            except ValueError as wrong:
                shown = "" if _is_secret(name) else f" is {text.strip()!r} and"
                problems.append(f"{name}{shown} {_reason(wrong)}.")
        elif not item.metadata["optional"] and (only is None or item.name in only):
            state = "is empty" if name in environment else "is not set"
            problems.append(f"{name} {state}: {item.metadata['meaning']}.")
    if only is None or "ops_auth" in only:
        problems += _console_problems(values, environment)
    if problems:
        raise SettingsError(problems)
    return Settings(**values)


def _console_problems(values: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
    """A way into the console that this place cannot make safe is refused at the start, not at the first request."""
    problems = []
    match values.get("ops_auth"):
        case "local" if environment.get("WEBSITE_SITE_NAME"):
            problems.append(
                "OPS_AUTH is 'local', which is for a developer's machine alone: on Azure it is off or entra."
            )
        case "entra":
            if environment.get("WEBSITE_AUTH_ENABLED", "").lower() != "true":
                problems.append(
                    "OPS_AUTH is 'entra', which needs the platform's sign-in: WEBSITE_AUTH_ENABLED is not True, so "
                    "anybody could send its identity headers. Switch on authentication of the function app."
                )
            if not values.get("ops_tenant_id"):
                problems.append(
                    "OPS_TENANT_ID is not set: OPS_AUTH is 'entra', and the console admits one tenant only."
                )
    return problems


def _is_secret(name: str) -> bool:
    return any(word in name for word in ("TOKEN", "KEY", "URL", "Storage"))


def _reason(wrong: ValueError) -> str:
    text = str(wrong)
    return "must be a number" if text.startswith("could not convert") else text
