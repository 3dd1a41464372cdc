"""The form of an endpoint's settings: what was typed, as text, so that a form that is refused shows it again."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from shared.errors import UserError
from shared.ops.fields import Fields
from shared.webhooks.endpoint_settings import SCHEDULES, EndpointSettings

TEXT_LIMIT = 10_000
# Which field of the form an error is about.
FIELD_OF = {
    "endpoint_name": "name", "endpoint_exists": "name", "endpoint_url": "url", "endpoint_host_name": "url",
    "endpoint_events": "events", "endpoint_events_many": "events", "endpoint_rate": "rate", "endpoint_concurrency": "concurrency",
    "endpoint_timeout": "timeout", "endpoint_signature_header": "signature_header", "endpoint_header_line": "headers",
    "endpoint_header_name": "headers", "endpoint_header_reserved": "headers", "endpoint_header_twice": "headers",
    "endpoint_header_value": "headers", "endpoint_headers_many": "headers", "endpoint_secret": "secret",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Typed:
    """What stands in the form's fields; secrets and the values of headers never come back."""

    name: str = ""
    url: str = ""
    events: str = ""
    rate: str = ""
    concurrency: str = "4"
    timeout: str = "15"
    schedule: str = "table"
    signature_header: str = "X-Webhook-Signature"
    drops_headers: bool = False

    @classmethod
    def read(cls, form: Fields) -> Typed:
        """As it was sent."""
        return cls(
            form.text("name", 100) or "", form.text("url", 3000) or "", form.text("events", TEXT_LIMIT) or "",
            form.text("rate", 40) or "", form.text("concurrency", 40) or "", form.text("timeout", 40) or "",
            form.choice("schedule", SCHEDULES) or "table", form.text("signature_header", 200) or "X-Webhook-Signature",
            form.flag("drops_headers"),
        )  # fmt: skip

    @classmethod
    def of(cls, settings: EndpointSettings) -> Typed:
        """As the settings are now."""
        return cls(
            url=settings.url,
            events=" ".join(settings.events),
            rate="" if settings.rate is None else f"{settings.rate:g}",
            concurrency=str(settings.concurrency),
            timeout=f"{settings.timeout_seconds:g}",
            schedule=settings.schedule,
            signature_header=settings.signature_header,
        )

    def settings(self) -> EndpointSettings:
        """What it means. Raises UserError for what is no number; what else cannot be, the endpoint says."""
        return EndpointSettings(
            url=self.url,
            events=tuple(re.split(r"[\s,;]+", self.events)),
            signature_header=self.signature_header,
            schedule="decorrelated" if self.schedule == "decorrelated" else "table",
            rate=_number(self.rate, "endpoint_rate") if self.rate else None,
            concurrency=whole(self.concurrency, "endpoint_concurrency"),
            timeout_seconds=_number(self.timeout, "endpoint_timeout"),
        )


def headers_of(form: Fields) -> dict[str, str] | None:
    """The extra headers, a line each; None when none were typed. Raises UserError, which repeats no value."""
    lines = [line for line in form.raw("headers")[:TEXT_LIMIT].splitlines() if line.strip()]
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise UserError(
                "Each line of the extra headers is a name, a colon and a value.", name="endpoint_header_line"
            )
        if name.strip().lower() in {known.lower() for known in found}:
            raise UserError(f"The header {name.strip()[:100]} is there twice.", name="endpoint_header_twice")
        found[name.strip()] = value.strip()
    return found or ({} if form.flag("drops_headers") else None)


def _number(text: str, name: str) -> float:
    try:
        number = float(text.replace(",", "."))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{text[:20]!r} is not a number.", name=name)
    return number


def whole(text: str, name: str) -> int:
    """A whole number from 0. Raises UserError of this name."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise UserError(f"{text[:20]!r} is not a whole number.", name=name)
    return int(text)
