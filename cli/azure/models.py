"""Whether a region offers the two models, and the subscription has tokens a minute left for them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.azure.parameters import Parameters
from cli.azure.programs import ProgramFailed, Programs
from cli.doctor.finding import Finding, advice, left_out, ok, wrong

RETIRES_SOON = datetime.timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One deployment, as the templates will make it; `capacity` in thousands of tokens a minute."""

    what: str
    model: str
    version: str
    sku: str
    capacity: int


def wanted(parameters: Parameters) -> list[Wanted]:
    """The deployments; none when the templates name none."""
    named = [
        Wanted(
            prefix,
            parameters.text(f"{prefix}Model"),
            parameters.text(f"{prefix}ModelVersion"),
            parameters.text(f"{prefix}Sku"),
            parameters.number(f"{prefix}Capacity", 1),
        )
        for prefix in ("chat", "embedding")
    ]
    return [one for one in named if one.model]


def check(
    programs: Programs, parameters: Parameters, location: str, today: datetime.date, *, is_deployed: bool
) -> Iterator[Finding]:
    """A line for each model, and one for its quota; of what is deployed already the quota says nothing."""
    deployments = wanted(parameters)
    try:
        offered = programs.az("cognitiveservices", "model", "list", "--location", location) or []
    except ProgramFailed as failed:
        yield wrong(
            "models", f"{location} does not say which models it offers: is it a region of Azure OpenAI? {failed.said}"
        )
        return
    for one in deployments:
        yield _offer(one, offered, location, today)
    if is_deployed:
        yield left_out("quota", "The deployments are there already, and count in it.")
        return
    try:
        usages = programs.az("cognitiveservices", "usage", "list", "--location", location) or []
    except ProgramFailed as failed:
        yield left_out("quota", f"Azure does not say: the deployment will. {failed.said}")
        return
    for one in deployments:
        yield _quota(one, usages, location)


def _offer(one: Wanted, offered: Sequence[Mapping[str, Any]], location: str, today: datetime.date) -> Finding:
    check = f"model: {one.what}"
    models = [item["model"] for item in offered if item.get("kind") == "OpenAI" and item.get("model")]
    versions = {str(model.get("version")): model for model in models if model.get("name") == one.model}
    if one.version not in versions:
        there = f"its versions there: {', '.join(sorted(versions))}" if versions else "no version of it is there"
        return wrong(
            check,
            f"{location} does not offer {one.model} {one.version} ({there}): `azd env set` another {one.what.upper()}_MODEL "
            "or version, or choose another AZURE_LOCATION.",
        )
    model = versions[one.version]
    kinds = sorted(str(sku.get("name")) for sku in model.get("skus") or [])
    if one.sku not in kinds:
        return wrong(
            check,
            f"{location} offers {one.model} {one.version} as {', '.join(kinds) or 'nothing'}, not as {one.sku}: set "
            f"{one.what.upper()}_SKU.",
        )
    retires = _date((model.get("deprecation") or {}).get("inference"))
    if retires and retires <= today:
        return wrong(check, f"{one.model} {one.version} was retired on {retires}: choose a newer one.")
    if retires and retires - today < RETIRES_SOON:
        return advice(
            check, f"{one.model} {one.version} is there, and is retired on {retires}: choose a newer one soon."
        )
    return ok(check, f"{location} offers {one.model} {one.version} as {one.sku}.")


def _quota(one: Wanted, usages: Sequence[Mapping[str, Any]], location: str) -> Finding:
    check, name = f"quota: {one.what}", f"OpenAI.{one.sku}.{one.model}"
    usage = next((item for item in usages if _name(item).lower() == name.lower()), None)
    if usage is None:
        return left_out(check, f"{location} lists none for {name}: the deployment will tell.")
    left = int(float(usage.get("limit") or 0) - float(usage.get("currentValue") or 0))
    if left < one.capacity:
        return wrong(
            check,
            f"{left} thousand tokens a minute are left of {name}, and {one.capacity} are asked for: lower "
            f"{one.what.upper()}_CAPACITY, delete a deployment, or ask for more (Azure AI Foundry › Quotas).",
        )
    return ok(check, f"{left} thousand tokens a minute are left, {one.capacity} are asked for.")


def _name(usage: Mapping[str, Any]) -> str:
    name = usage.get("name")
    return str(name.get("value") if isinstance(name, Mapping) else name)


def _date(text: object) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(str(text)[:10])
    except ValueError:
        return None
